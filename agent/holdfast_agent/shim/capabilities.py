"""Empties the capability sets, so that ranks that are not root can regain none of root's powers.

A process that becomes another user loses the capabilities that it has, but not those that a program could give it
again: its bounding set stays. It is emptied here, in the shim and once, so that each of its ranks is born without;
beside `no_new_privs`, which the shim has set for all (`settle`), it is the second lock on the same door. The shim's
own capabilities are not touched by it, as the shim never runs a program.
"""

from __future__ import annotations

import ctypes
import errno
import os

from holdfast_agent.shim.walls.namespaces import checked, libc

PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_left = True


def leave_none_to_gain() -> None:
    """Drop all ambient and bounding capabilities of this process for good, where it is root.

    A later generation of the same worker that runs as root, after the admin has changed his mind, would be a root
    without powers. Raises OSError.
    """
    global _left
    if not _left or os.geteuid() != 0:
        return
    try:
        checked(_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL))
        number = 0
        while _prctl(PR_CAPBSET_DROP, number) == 0:
            number += 1
        if ctypes.get_errno() != errno.EINVAL or not number:  # which the first one past the last is answered with
            checked(-1)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "taking root's capabilities from the ranks") from None
    _left = False


def _prctl(option: int, value: int) -> int:
    result: int = libc().prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)
    return result
