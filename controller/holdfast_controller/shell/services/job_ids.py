"""Ids of jobs and arrays: names that a person can type."""

from __future__ import annotations

import re
import secrets
from collections.abc import Container
from pathlib import PurePosixPath

_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"


def new_id(display_name: str, *taken: Container[str]) -> str:
    """A name that a person can type: what the job is about, and six characters that make it its own.

    Among ten thousand jobs of one name two of them would be the same once in eight times.
    """
    while True:
        number = secrets.randbelow(len(_ALPHABET) ** 6)
        drawn = "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(6))
        found = f"{_slug(display_name)}-{drawn}"
        if not any(found in ids for ids in taken):
            return found


def _slug(display_name: str) -> str:
    """A short name for ids: ``train`` for "python jobs/train.py --lr 3", ``my-run`` for "My run"."""
    words = display_name.split()
    script = next((PurePosixPath(word).stem for word in words if word.endswith((".py", ".sh"))), "")
    looks_like_command = len(words) > 1 and any(word.startswith("-") for word in words)
    name = script or (words[0] if looks_like_command else display_name)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:30].strip("-") or "job"
