"""Reads the files of /proc/PID that tell what a process does, and finds a worker's rank processes in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from holdfast._base.dataclass import dataclass
from holdfast.hang.evidence.evidence import Vector, clipped
from holdfast_agent.core.proc import system_calls
from holdfast_agent.core.proc.process_tree import is_parent

KERNEL_FRAMES = 12


def vector(files: Mapping[str, str], ticks_per_s: int, machine: str = "x86_64") -> Vector:
    """Build the vector from ``stat``, ``status`` (the main thread's), ``wchan``, ``syscall`` and ``stack``.

    Missing files are passed over, but for ``stat``. Raises ``ValueError`` where that makes no sense.
    """
    stat = files["stat"]
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before it may hold anything
    status = dict(line.split(":", 1) for line in files.get("status", "").splitlines() if ":" in line)
    switches = status.get("voluntary_ctxt_switches", "").strip()
    wchan = files.get("wchan", "").strip()
    try:
        return Vector(
            state=fields[0],
            wchan="" if wchan == "0" else clipped(wchan, 80),
            syscall=_call(files.get("syscall", ""), machine),
            cpu_s=(int(fields[11]) + int(fields[12])) / ticks_per_s,
            main_switches=int(switches) if switches.isdigit() else None,
            threads=int(fields[17]),
            tracer=int(status.get("TracerPid", "0")),
            kernel_stack=tuple(_kernel_frames(files.get("stack", ""))),
        )
    except IndexError as error:
        raise ValueError(f"a short stat: {stat!r}") from error


def _call(text: str, machine: str) -> str:
    """The name of the system call that a process is in; empty for none."""
    number = text.split(" ", 1)[0].strip()
    if not number.isdigit():
        return ""  # "running", or -1 for none
    return system_calls.name(int(number), machine)


def _kernel_frames(text: str) -> Iterator[str]:
    for line in text.splitlines()[:KERNEL_FRAMES]:
        name = line.rpartition("] ")[2].partition("+")[0].strip()
        if name and not name.startswith("0x"):
            yield clipped(name, 80)


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a worker: its arguments, and the rank that its environment names, if any."""

    pid: int
    parent: int
    argv: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def starts_others(self) -> bool:
        """Whether the process only starts the ranks, as a launcher or a shell does."""
        return is_parent(self.argv)

    @property
    def python(self) -> bool:
        """Whether the process looks like a Python interpreter."""
        return bool(self.argv) and PurePosixPath(self.argv[0]).name.startswith(("python", "pypy"))


def below(pid: int, members: Sequence[Member]) -> list[Member]:
    """All descendants of ``pid``, nearest first."""
    children: dict[int, list[Member]] = {}
    for member in members:
        children.setdefault(member.parent, []).append(member)
    found = children.pop(pid, [])
    for member in found:  # grows while it is walked
        found += children.pop(member.pid, [])
    return found


def rank_processes(launched: Mapping[int, int], members: Sequence[Member]) -> dict[int, int]:
    """Rank to the pid that does its work, from rank to the pid that was launched.

    Under a launcher or a shell a rank is the first process that has RANK in its environment and starts no others
    itself, an interpreter before anything else. Where there is none, the launched process stands for it.
    """
    by_pid = {member.pid: member for member in members}
    found: dict[int, int] = {}
    for rank, pid in sorted(launched.items()):
        top = by_pid.get(pid)
        if top is None or not top.starts_others:
            found[rank] = pid
            continue
        workers = _workers_below(pid, members)
        for worker in sorted(workers, key=lambda member: not member.python):
            found.setdefault(worker.rank if worker.rank is not None else rank, worker.pid)
        if not workers:
            found.setdefault(rank, pid)
    return found


def _workers_below(pid: int, members: Sequence[Member]) -> list[Member]:
    """The nearest processes under ``pid`` that have a rank and start no others."""
    found: list[Member] = []
    taken: set[int] = set()
    for member in below(pid, members):
        if member.parent in taken:
            taken.add(member.pid)
        elif member.rank is not None and not member.starts_others:
            taken.add(member.pid)
            found.append(member)
    return found
