"""Looking at files as the account of a worker does: what root says of them tells users of what is hidden."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
from collections.abc import Iterator

from holdfast_agent.core.launch.environment import WorkerUser

_libc = ctypes.CDLL(None, use_errno=True)
_LARGEST = (1 << 32) - 1
_SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""The kernel's call changes one thread; that of the C library changes them all."""


@contextlib.contextmanager
def files_as(user: WorkerUser) -> Iterator[None]:
    """This thread looks at files with the rights of ``user`` meanwhile. Raises OSError if the kernel refuses.

    Where the account is the agent's own, or the agent is not root, nothing changes.
    """
    if user.uid is None or os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    _set_groups(user.groups or ())
    try:
        # In this order: with the user's goes the right to see everything, and comes back with root's.
        _libc.setfsgid(os.getegid() if user.gid is None else user.gid)
        _libc.setfsuid(user.uid)
        if _libc.setfsuid(-1) & _LARGEST != user.uid:  # it says nothing of a refusal, and for -1 changes nothing
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(os.getegid())
        _set_groups(groups)


def _set_groups(groups: tuple[int, ...] | list[int]) -> None:
    """Set them for this thread. On other processors root's stay; then what the account sees by its groups is hidden."""
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        return
    if _libc.syscall(number, len(groups), (ctypes.c_uint32 * len(groups))(*groups)) != 0:
        wrong = ctypes.get_errno()
        raise OSError(wrong, os.strerror(wrong))
