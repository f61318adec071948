"""What processes take of the machine: proportional memory, and CPU."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def pss_mb(pid: int) -> float:
    """Memory in MB (10^6 bytes), pages that are shared counted in proportion."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def private_mb(pid: int) -> float:
    """Memory in MB (10^6 bytes) that no other process has too."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024 / 1e6


def cpu_s(pid: int) -> float:
    """Seconds of CPU of a process so far, and of the children that it has waited for."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def own_cpu_s(pid: int) -> float:
    """Seconds of CPU of a process so far, to the nanosecond, without its children and threads that have ended."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def is_of(ancestor: int, pid: int) -> bool:
    """Whether a process is another one's descendant. Raises ``OSError`` for one that is gone."""
    while pid > 1 and pid != ancestor:
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
    return pid == ancestor


def command(pid: int) -> str:
    """Its arguments in one line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def children(pid: int) -> list[int]:
    """Processes that a process has started and that still live."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # the thread has ended meanwhile
    return found
