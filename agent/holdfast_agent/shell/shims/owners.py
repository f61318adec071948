"""Owners of processes, also of those in a user namespace, in which an account may have many numbers."""

from __future__ import annotations

import fcntl
import os
import struct

_NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB702, 0xB704
_STATUS_MOST_BYTES = 65536
_NESTED_MOST = 33
"""The kernel makes no more."""


def is_of_another(pid: int, uid: int) -> bool:
    """Whether a process is surely neither root's nor the account's. Raises ``OSError`` where it can't be looked at.

    Its real uid counts: programs that gain rights keep it, and may be anyone's.
    """
    with open(f"/proc/{pid}/status", "rb") as file:
        lines = file.read(_STATUS_MOST_BYTES).splitlines()
    real = next(int(line.split()[1]) for line in lines if line.startswith(b"Uid:"))
    return real not in (0, uid) and _maker(pid, real) not in (0, uid)


def _maker(pid: int, real: int) -> int:
    """The account that made the outermost user namespace below ours with the process in it; else ``real``."""
    ours = os.stat("/proc/self/ns/user")
    maker, space = real, os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(_NESTED_MOST):
            if os.path.samestat(os.fstat(space), ours):
                break
            maker = struct.unpack("I", fcntl.ioctl(space, _NS_GET_OWNER_UID, bytes(4)))[0]
            above = fcntl.ioctl(space, _NS_GET_PARENT)
            os.close(space)
            space = above
    finally:
        os.close(space)
    return maker
