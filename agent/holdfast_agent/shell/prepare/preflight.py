"""Reads the facts that the checks before a start need; ``core.launch.preflight`` judges them."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from holdfast._session.assignment import Launch
from holdfast_agent.core.launch.environment import HostFacts
from holdfast_agent.core.launch.preflight import DiskRoom, Minimums, lack_of_room, missing_gpu, tight_limit
from holdfast_agent.core.worker.gpu_release import still_held
from holdfast_agent.shell.gpus.gpu_watch import GpuWatch
from holdfast_agent.shell.gpus.release import GpuFreeing
from holdfast_agent.shim.walls.namespaces import SHM

LOOKS, LOOK_AGAIN_S = 3, 0.5
"""A process that uses a GPU for a moment is no reason to withdraw the host."""
LOOK_WITHIN_S = 6.0
"""The helper has its own, shorter bound for each answer."""
_NUMBERS = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "stack": resource.RLIMIT_STACK,
    "memlock": resource.RLIMIT_MEMLOCK,
}


@dataclass
class Fitness:
    """The checks of one host. ``unused`` is what each GPU holds when nothing uses it, as it is learnt."""

    minimums: Minimums
    gpus: GpuWatch
    freeing: GpuFreeing
    unused: Mapping[str, int]
    fresh_shm: bool = False
    """Each generation gets a /dev/shm of its own, as large as the host's: then its size counts."""
    shm: str = SHM

    def at_once(self, launch: Launch, facts: HostFacts) -> str:
        """The first problem that a few system calls find; empty where there is none."""
        asked = self.minimums
        rooms = [_room(path, "disk_free_mb") for path in (facts.log_dir, facts.scratch_dir)]
        rooms.append(_room(self.shm, "shm_free_mb", whole=self.fresh_shm))
        minimums = {"disk_free_mb": asked.disk_free_mb, "shm_free_mb": asked.shm_free_mb}
        problem = (
            missing_gpu(launch.gpus, facts.gpu_names, self.gpus.problems())
            or lack_of_room(rooms, minimums)
            or tight_limit(own_limits(root=facts.user.uid in (None, 0) and os.geteuid() == 0), asked)
        )
        return f"{facts.name}: {problem}." if problem else ""

    async def gpus_in_use(self, launch: Launch, facts: HostFacts, survivors: frozenset[int] = frozenset()) -> str:
        """Why the worker's GPUs are not free, but for processes that wait to use them; asks the driver."""
        if not launch.gpus or not self.minimums.gpus_free:
            return ""
        held = "the GPU driver doesn't answer"
        with anyio.move_on_after(LOOK_WITHIN_S):
            for look in range(LOOKS):
                if look:
                    await anyio.sleep(LOOK_AGAIN_S)
                read = await self.freeing.occupied()
                held = still_held(launch.gpus, read, self.unused, facts.gpu_names, survivors)
                if not held:
                    return ""
        return f"{facts.name}: {held}, though nothing of ours runs there."


def own_limits(*, root: bool) -> dict[str, int | None]:
    """The soft limits that ranks inherit from us; None for unlimited. Root's processes are not counted."""
    limits: dict[str, int | None] = {}
    for name, number in _NUMBERS.items():
        soft, _ = resource.getrlimit(number)
        free = soft == resource.RLIM_INFINITY or (root and name in ("nproc", "memlock"))
        limits[name] = None if free else soft
    return limits


def _room(path: str, setting: str, *, whole: bool = False) -> DiskRoom:
    """Free space of the file system on which ``path`` lies, or will lie."""
    there = path
    while True:
        try:
            found = os.statvfs(there)
            break
        except (FileNotFoundError, NotADirectoryError):
            there = os.path.dirname(there) or "/"
        except OSError as error:
            return DiskRoom(path, setting, problem=error.strerror or str(error))
    return DiskRoom(path, setting, (found.f_blocks if whole else found.f_bavail) * found.f_frsize)
