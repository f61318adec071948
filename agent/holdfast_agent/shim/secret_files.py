"""The values of variables that are what a file on the host holds, read by each rank on its way to its program.

The shim may be root and the path is the user's wish, so the file is opened with the rights of the rank's account
and no other: effective uid, gid and supplementary groups are the account's, and with the effective uid go root's
capabilities. Real and saved uid stay root's until the rank takes its identity for good, since entering a container,
which hides the host's files, takes root; no process of the account may signal or trace it meanwhile. Where a
link or another user's directory leads is then no question of ours: what the account could not read is not read.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.launch import Identity

MAX_BYTES = 64 << 10


class Unreadable(Exception):
    """Why there is no value, as a sentence that shows nothing of it, and the errno; 0 for none."""

    def __init__(self, problem: str, number: int | None = 0) -> None:
        super().__init__(problem)
        self.errno = number or 0


def read(files: dict[bytes, bytes], identity: Identity) -> dict[bytes, bytes]:
    """The content of each variable's file, without its final line end. Runs in the child.

    Raises Unreadable or OSError.
    """
    back = os.geteuid(), os.getegid()
    if identity.uid is not None:
        os.setgroups(identity.groups or [])
        os.setresgid(-1, identity.gid if identity.gid is not None else -1, -1)
        os.setresuid(-1, identity.uid, -1)
    try:
        return {name: _value(name, path) for name, path in files.items()}
    finally:
        if identity.uid is not None:
            os.setresuid(-1, back[0], -1)
            os.setresgid(-1, back[1], -1)


def _value(name: bytes, path: bytes) -> bytes:
    about = f"{name.decode('utf-8', 'replace')}: {path.decode('utf-8', 'replace')}"
    try:
        # Not blocking: a FIFO must not hold the rank up.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"cannot read the secret {about}: {os.strerror(error.errno or 0)}", error.errno) from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Unreadable(f"cannot read the secret {about}: it is no file")
        value = b""
        while len(value) <= MAX_BYTES + 2 and (more := os.read(file, MAX_BYTES + 3 - len(value))):
            value += more
    except OSError as error:
        raise Unreadable(f"cannot read the secret {about}: {os.strerror(error.errno or 0)}", error.errno) from None
    finally:
        os.close(file)
    value = value.removesuffix(b"\n").removesuffix(b"\r")
    if not value:
        raise Unreadable(f"the secret {about} is empty")
    if b"\0" in value:
        raise Unreadable(f"the secret {about} contains a NUL byte, which no variable can hold")
    if len(value) > MAX_BYTES:
        raise Unreadable(f"the secret {about} has more than {MAX_BYTES >> 10} KiB")
    return value
