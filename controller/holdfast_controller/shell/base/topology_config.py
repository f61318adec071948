"""The setting ``topology``: the levels of the network."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ConfigError

MOST_LEVELS = 8
MOST_CHARS = 64


def check_topology(levels: Sequence[str]) -> None:
    """Raise ``ConfigError`` unless these can be levels, each named once."""
    if len(levels) > MOST_LEVELS:
        raise ConfigError(f"topology has {len(levels)} levels.", fix=f"Name {MOST_LEVELS} at most.")
    for level in levels:
        if not level or len(level) > MOST_CHARS:
            problem = f"topology names the label {level[:MOST_CHARS]!r}."
            raise ConfigError(problem, fix=f"Write keys of labels, of 1 to {MOST_CHARS} characters.")
        if levels.count(level) > 1:
            fix = 'Name each level once, the outermost first: ["pod", "rack"].'
            raise ConfigError(f"topology names {level} twice.", fix=fix)
