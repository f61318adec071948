"""Whether this host is fit to start a worker: what was read of it against what the admin asks for.

Everything here is the host's doing, never the program's: a host that is unfit is cordoned with the reason, and the
worker goes elsewhere. The first thing that is wrong is named, with its figure and the setting that asks for more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast._base.dataclass import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Minimums:
    """``[checks]`` of agent.toml: what a host must have before a worker starts, and again before it restarts."""

    disk_free_mb: int = 1024
    """MiB free where output and scratch directories lie; 0 asks for nothing, here and below."""
    shm_free_mb: int = 16
    """MiB free in /dev/shm. Containers often have 64 in all."""
    nofile: int = 1024
    """Open files that a rank may have."""
    nproc: int = 256
    """Processes that the worker's user may have."""
    stack_kb: int = 1024
    """KiB of stack of a rank."""
    memlock_kb: int = 64
    """Memory that a rank may pin; RDMA wants it unlimited."""
    gpus_free: bool = True
    """No compute process on the worker's GPUs, and no more memory in use than when they were last unused."""
    peer_names: bool = True
    """The names of the worker's peers resolve, where they are names."""

    def limits(self) -> dict[str, int]:
        """The least value of each resource limit by its name, in the kernel's own unit."""
        return {
            "nofile": self.nofile,
            "nproc": self.nproc,
            "stack": self.stack_kb * 1024,
            "memlock": self.memlock_kb * 1024,
        }


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Bytes free at a path, or in ``problem`` why they are unknown. ``setting`` names the minimum to compare with."""

    path: str
    setting: str
    free_bytes: int = 0
    problem: str = ""


def lack_of_room(rooms: Iterable[DiskRoom], minimums: Mapping[str, int]) -> str:
    """Which path has too little room; empty where none has. ``minimums`` in MiB, by setting."""
    for room in rooms:
        wanted = minimums[room.setting]
        if wanted and room.problem:
            return f"{room.path} can't be used: {room.problem}"
        if room.free_bytes < wanted * MIB:
            free = f"{room.free_bytes // MIB} MiB free of the {wanted} that it must have"
            return f"{room.path} has {free} (agent.toml: [checks] {room.setting})"
    return ""


def tight_limit(limits: Mapping[str, int | None], minimums: Minimums) -> str:
    """Which resource limit is too low; empty where none is. ``limits`` by name, None for unlimited."""
    for name, wanted in minimums.limits().items():
        has = limits.get(name)
        if has is not None and has < wanted:
            key = name if name in ("nofile", "nproc") else f"{name}_kb"
            size = f"{has} of the {wanted} that it must be"
            if key != name:
                size = f"{has // 1024} KiB of the {wanted // 1024} that it must be"
            fix = f"agent.toml: [checks] {key}; raise it by Limit{name.upper()}= of the agent's unit"
            return f"the limit of {name} is {size} ({fix})"
    return ""


def missing_gpu(uuids: Iterable[str], names: Mapping[str, str], problems: Mapping[str, str]) -> str:
    """Which of the worker's GPUs is gone or ill; empty where all are well. ``problems`` by UUID."""
    for uuid in uuids:
        if uuid not in names:
            return f"the GPU {uuid} is not there"
        if problems.get(uuid):
            return f"the GPU {names[uuid]} ({uuid}) is not well: {problems[uuid]}"
    return ""
