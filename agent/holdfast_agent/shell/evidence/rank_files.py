"""Files that a rank's program names: found in the root that it sees, and with the rights that it has.

The agent may be root, and a path is the program's word, which may lead through links to where its account may not look.
What is there is not opened then, which a device takes as an order, and no answer depends on whether it is there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.users import fs_identity, safe_paths

_STATUS_BYTES = 64 << 10
"""A process has groups without number."""


def opened(pid: int, path: str, flags: int) -> int:
    """A descriptor of what a process finds at the absolute ``path``; never waits for a pipe. Raises ``OSError``."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with _folder(pid, path) as (folder, name):
        return os.open(name, flags, dir_fd=folder)


def status(pid: int, path: str) -> os.stat_result:
    """The status of what a process finds at the absolute ``path``, be it a link. Raises ``OSError``."""
    with _folder(pid, path) as (folder, name):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


@contextlib.contextmanager
def _folder(pid: int, path: str) -> Iterator[tuple[int, str]]:
    """The descriptor of the folder and the name in it, within the rights of the process. Raises ``OSError``."""
    above, slash, name = path.rpartition("/")
    if not path.startswith("/"):
        raise FileNotFoundError(path)
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with fs_identity.files_as(_account(pid)):
            folder = safe_paths.open_in_root(root, above or slash)
            try:
                yield folder, name
            finally:
                os.close(folder)
    finally:
        os.close(root)


def _account(pid: int) -> WorkerUser:
    """The account with whose rights a process looks at files. Raises ``OSError``."""
    with open(f"/proc/{pid}/status", "rb") as file:
        lines = file.read(_STATUS_BYTES).splitlines()
    said = {name: rest.split() for name, _, rest in (line.partition(b":") for line in lines)}
    uid, gid = int(said[b"Uid"][3]), int(said[b"Gid"][3])
    own = uid == os.geteuid()
    return WorkerUser("", "", "", None if own else uid, gid, tuple(map(int, said[b"Groups"])))
