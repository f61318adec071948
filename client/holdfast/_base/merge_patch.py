"""JSON merge patch, RFC 7396."""

from __future__ import annotations

from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """``target`` with the changes of ``patch``: objects go into one another, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
