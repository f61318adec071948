"""Finds the cgroup under which this host's workers get theirs, once, at the agent's start."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import WorkerId
from holdfast_agent.shell.config import Config
from holdfast_agent.shim.walls import cgroup

MOST_PIDS = 65536
"""Threads of one worker's generation: far above what trainings have, far below what brings a host down."""
_MOUNTS = Path("/proc/self/mountinfo")
_PID_MAX = Path("/proc/sys/kernel/pid_max")


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Paths of this agent's cgroups. ``root`` is empty where there are none; ``why`` then says why."""

    root: str
    why: str = ""

    def directory(self, key: WorkerId) -> str:
        """The directory of a worker; empty without cgroups."""
        return f"{self.root}/{key.job}/{key.worker}" if self.root else ""

    def generation(self, key: WorkerId, generation: int) -> str:
        """The directory of one of its generations; empty without cgroups."""
        return f"{self.directory(key)}/g{generation}" if self.root else ""

    def leave(self) -> None:
        """Remove this agent's cgroups, except those in which workers still run."""
        if self.root:
            cgroup.remove(self.root)
            try:
                os.rmdir(os.path.dirname(self.root))
            except OSError:
                pass  # another agent's is there

    def forget(self, key: WorkerId) -> None:
        """Remove a worker's cgroup, and its job's where that was the last."""
        if self.root:
            cgroup.remove(self.directory(key))
            try:
                os.rmdir(f"{self.root}/{key.job}")
            except OSError:
                pass  # another worker's is there, or none was ever made


def find(settings: Config, mounts: Path = _MOUNTS) -> Cgroups:
    """The directory that the settings name, or one of this agent's own at the top of the host's tree."""
    if not settings.cgroups:
        return Cgroups("", "cgroups = false")
    above = str(settings.cgroup_root) if settings.cgroup_root else top(mounts)
    if not above:
        return Cgroups("", "cgroup v2 is not mounted")
    # Two agents on one machine must not meet.
    own = f"{settings.name}-{zlib.crc32(os.fsencode(settings.state_dir.resolve())):08x}"
    root = f"{above}/holdfast/{own}"
    try:
        cgroup.enable(above)
        for path in (f"{above}/holdfast", root):
            if not os.path.isdir(path):
                os.mkdir(path, 0o711)  # the names in it are those of jobs
            cgroup.enable(path)
    except OSError as error:
        return Cgroups("", f"{root} can't be made: {error.strerror}")
    if not os.access(f"{root}/cgroup.kill", os.W_OK):
        return Cgroups("", f"{root} has no cgroup.kill; it takes Linux 5.14")
    return Cgroups(root)


def most_pids() -> int:
    """The limit of processes for one generation: at most half of the host's."""
    return min(MOST_PIDS, int(_PID_MAX.read_text()) // 2)


def top(mounts: Path = _MOUNTS) -> str:
    """Mount point of cgroup v2; empty if it isn't mounted."""
    for line in os.fsdecode(mounts.read_bytes()).split("\n"):  # names in it are any bytes, and of any user
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            return fields.split(" ")[4]
    return ""
