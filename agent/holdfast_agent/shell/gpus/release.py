"""Reads memory and processes on the GPUs for the proof that a worker is empty, and keeps what an unused GPU holds.

That is in ``gpu_unused.json``, ``{UUID: bytes}`` for one boot, since the driver of another may be another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import anyio

from holdfast._session.reports import WorkerId
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.core.worker.actions import ReadGpus
from holdfast_agent.core.worker.events import GpusRead
from holdfast_agent.gpu.reader import GpuSource
from holdfast_agent.shell.base.boot_file import BootFile
from holdfast_agent.shell.shims import shim_files
from holdfast_agent.shell.shims.worker_files import WorkerFiles
from holdfast_agent.shim.processes import Process, read_small

MPS_SERVER = b"nvidia-cuda-mps-server"[:15]
"""Listed as a compute process; it serves one client after the other and outlives them all."""


class GpuFreeing:
    """Readings of the host's GPUs for the proof, and the memory that each holds when unused."""

    def __init__(self, source: GpuSource, files: WorkerFiles, path: Path) -> None:
        self._source = source
        self._files = files
        self._kept = BootFile(path, "used_bytes", dict[str, int], {})

    async def read(self, action: ReadGpus | None = None) -> GpusRead:
        """Processes and memory on the GPUs now, or after the requested pause."""
        if action is None:
            return GpusRead(await self._source.usage())
        await anyio.sleep(action.after_s)
        usage = await self._source.usage()
        pids = () if isinstance(usage, Blind) else {pid for gpu in usage for pid in gpu.pids or ()}
        born = self._born(action.key) if pids else 0
        foreign = frozenset(pid for pid in pids if _is_foreign(pid, born))
        return GpusRead(usage, action.key, action.generation, foreign)

    async def occupied(self) -> GpusRead:
        """Processes and memory on the GPUs now, of all users and workers."""
        usage = await self._source.usage()
        pids = () if isinstance(usage, Blind) else {pid for gpu in usage for pid in gpu.pids or ()}
        return GpusRead(usage, foreign=frozenset(pid for pid in pids if _is_foreign(pid, 0)))

    def known(self) -> dict[str, int]:
        """Baselines that earlier runs of the agent learned since the last boot."""
        return self._kept.load()

    def write(self, used_bytes: Iterable[tuple[str, int]]) -> None:
        """Keep it for the next life. Raises ``OSError``."""
        self._kept.save(dict(used_bytes))

    def _born(self, key: WorkerId) -> int:
        """Start ticks of the worker's shim, which is older than whatever it has started; 0 where it isn't known."""
        with contextlib.suppress(OSError, ValueError):
            shim = shim_files.read_shim_id(self._files.directory(key) / "shim.json")
            if shim is not None and shim.boot_id == shim_files.boot_id():
                return shim.start_ticks
        return 0


def _is_foreign(pid: int, born: int) -> bool:
    """Whether a process can't be what a worker has left. One that can't be seen may be."""
    try:
        return Process(pid).start_ticks < born or read_small(f"/proc/{pid}/comm").strip() == MPS_SERVER
    except OSError:
        return False
