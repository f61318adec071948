"""Whether the folders that a root agent works in are its own: no other user may put something in their place."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from holdfast.errors import ConfigError

FIRST_OF_PEOPLE = 1000
"""Lower numbers of groups are the system's (login.defs: GID_MIN)."""


def check(key: str, folder: Path) -> None:
    """Return if only root can change ``folder``, or any folder on the way to it. Raises ``ConfigError``.

    ``key`` is the setting that names it. A user who could rename a folder above it could have root write elsewhere.
    """
    way = folder.resolve()
    for part in (way, *way.parents):
        status = os.stat(part)
        if status.st_uid != 0:
            problem = f"{part} belongs to {_name(status.st_uid)}"
        elif _others_write(status) if part == way else _others_rename(status):
            problem = f"{part} may be written to by others"
        else:
            continue
        raise ConfigError(
            f"{key} is {folder}, and {problem}, who could lead an agent that is root astray there.",
            fix=f"Name a folder that only root may change, such as one in /var; or: chown root {part}; "
            f"chmod go-w {part}",
        )


def _others_write(status: os.stat_result) -> bool:
    """Whether other users may write into the folder itself; members of root's group count as root."""
    group = stat.S_IWGRP if status.st_gid != 0 else 0
    return bool(status.st_mode & (stat.S_IWOTH | group))


def _others_rename(status: os.stat_result) -> bool:
    """Whether other users may rename entries of a folder above it; system groups are trusted, as in /var/log."""
    group = stat.S_IWGRP if status.st_gid >= FIRST_OF_PEOPLE else 0
    return bool(status.st_mode & (stat.S_IWOTH | group)) and not status.st_mode & stat.S_ISVTX


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
