"""Closes a finished environment to those who use it, and tells whether it was changed since.

Several jobs use one environment, one after the other, and none may change what the next one runs. Where the agent is
root the tree becomes root's and the account may only read it. Elsewhere the account is the agent's own: the tree is
write-protected against mistakes, and the digest notices the rest. That covers the time at which the kernel last
changed each inode, which no program can set.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from holdfast_agent.shell.packages.settings import CodeProblem
from holdfast_agent.shell.users import safe_paths
from holdfast_agent.shim.processes import printable


def seal(top: Path, user: tuple[int, int] | None) -> None:
    """Take a tree of the account's into the agent's hands, readable for the account's group.

    ``user``: uid and gid; None where they are the agent's own. Each directory is closed before what is in it is looked
    at, so that no process of the account can put something in its place. Raises ``OSError``, ``CodeProblem``.
    """
    handle = os.open(top, safe_paths.DIRECTORY)
    try:
        if user is not None:
            os.fchown(handle, 0, user[1])
        os.fchmod(handle, 0o550)
        for folder, name in safe_paths.entries(handle, whole=True):
            _close(folder, name, user)
    finally:
        os.close(handle)


def _close(folder: int, name: str, user: tuple[int, int] | None) -> None:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    kind = stat.S_IFMT(status.st_mode)
    # By a second name it could still be changed, or be a file that this account must not get to read.
    if status.st_uid != (user[0] if user else os.geteuid()) or (kind != stat.S_IFDIR and status.st_nlink > 1):
        raise CodeProblem(f"the installation has linked {printable(name)} to a file of another place")
    if user is not None:
        os.chown(name, 0, user[1], dir_fd=folder, follow_symlinks=False)
    if kind != stat.S_IFLNK:
        runs = kind == stat.S_IFDIR or status.st_mode & stat.S_IXUSR
        os.chmod(name, 0o550 if runs else 0o440, dir_fd=folder)


def digest(top: Path) -> str:
    """A digest of names, kinds and times of change of all that is in the tree. Raises ``OSError``."""
    found = hashlib.sha256()
    waiting = [str(top)]
    while waiting:
        path = waiting.pop()
        with os.scandir(path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                status = entry.stat(follow_symlinks=False)
                facts = (
                    entry.name,
                    status.st_mode,
                    status.st_uid,
                    status.st_ino,
                    status.st_size,
                    status.st_ctime_ns,
                )
                found.update(repr(facts).encode("utf-8", "surrogateescape"))
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        status = os.stat(path)
        found.update(repr((status.st_mode, status.st_ctime_ns)).encode())
    return found.hexdigest()
