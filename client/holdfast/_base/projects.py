"""Names of projects, to which jobs, quotas, shares, roles and settings belong."""

from __future__ import annotations

import re

from holdfast.errors import ConfigError

EVERY_PROJECT = "*"
"""In the place of a project's name: all of them."""
PATTERN = "[a-z0-9][a-z0-9-]*"
MOST_CHARS = 63
MUST = "be lower-case letters, digits and dashes"
"""The rule in words that follow "must"."""
_NAME = re.compile(PATTERN)


def is_project(name: str) -> bool:
    """Whether a job may be in a project of this name."""
    return len(name) <= MOST_CHARS and _NAME.fullmatch(name) is not None


def check_setting(key: str, name: str) -> None:
    """Raises ``ConfigError`` where the setting ``key`` names a project that no job can be in."""
    if name != EVERY_PROJECT and not is_project(name):
        fix = f'A project must {MUST}, or "{EVERY_PROJECT}" for all of them.'
        raise ConfigError(f"{key}: no job can be in a project {name!r}.", fix=fix)
