"""The directory on the host, named by the job, in which a job in a container keeps its results.

The engine runs as root and mounts any path that it is given, so the directory must be one that the worker's user can
enter, links and closed folders above it included. Since that user could put a link in its place right after the
check, the directory that was mounted is compared with the one that was checked.
"""

from __future__ import annotations

import os

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.base import host_errors, programs
from holdfast_agent.shell.base.programs import Program
from holdfast_agent.shell.users import safe_paths

ENTER_S = 20.0
_ENTER = 'mkdir -p -- "$WANTED" && stat -L -c %d:%i -- "$WANTED/."'


class Unreachable(Exception):
    """The worker's user can't use the directory, and why, as a sentence without the host's name or a full stop."""

    def __init__(self, problem: str, *, host_fault: bool) -> None:
        super().__init__(problem)
        self.host_fault = host_fault


def entered_by(user: WorkerUser, path: str) -> str:
    """Device and inode of the directory as ``user`` reaches it, made if need be. Raises ``Unreachable``."""
    # Not as an argument: all accounts can read command lines.
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "WANTED": path}
    made = programs.run(Program(["sh", "-c", _ENTER], ENTER_S, env, user=user))
    if made.code is None:
        raise Unreachable(f"the base output directory {path} can't be made: {made.problem}", host_fault=True)
    said = made.errors.decode("utf-8", "replace").strip()
    if made.code:
        words = said.removeprefix("mkdir: ").removeprefix("stat: ")
        problem = f"the base output directory can't be used as {user.name}: {words}"
        raise Unreachable(problem, host_fault=bool(host_errors.told(words)))
    return made.output.decode().strip()


def is_mounted(pid: int, path: str, identity: str) -> bool:
    """Whether the process sees that very directory at ``path``. Raises ``OSError``."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = safe_paths.open_in_root(root, path)
    finally:
        os.close(root)
    try:
        status = os.fstat(found)
    finally:
        os.close(found)
    return identity == f"{status.st_dev}:{status.st_ino}"
