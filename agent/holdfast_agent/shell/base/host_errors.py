"""Errors of the system that are the host's fault: no program can help a full disk, or a file server that is away."""

from __future__ import annotations

import errno
import os

_AWAY = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    }
)
ERRNOS = _AWAY | {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""Where the agent's own directories, or what it is to run, can't be had."""


def told(words: str) -> int:
    """The error that a program's last words on a path of a user's end in, if that is the host's fault; else 0.

    Room that a user's own directory lacks is none: other hosts see the same.
    """
    return next((number for number in _AWAY if words.rstrip().endswith(os.strerror(number))), 0)
