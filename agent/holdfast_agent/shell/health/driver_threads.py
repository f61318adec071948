"""Kernel threads of NVIDIA's driver that wait where no signal and nothing else ends them (state D).

A look costs one read of the list of kernel threads, and one for each thread of the driver: the name of a thread is read
once. Where the host's processes can't be seen, as in a container, nothing is found.
"""

from __future__ import annotations

from pathlib import Path

from holdfast_agent.core.health.engine import Reading
from holdfast_agent.shell.base.kernel_files import text

RULE = "gpu.driver_stuck"
MOST_BYTES = 1 << 18
MOST_THREADS = 256
_NAMES = ("nvidia", "nv_queue", "nv_open", "UVM ")


class DriverThreads:
    """``proc`` is the kernel's /proc."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._known: dict[str, str] = {}
        """Names of the driver's threads by pid; empty for any other kernel thread."""

    def look(self) -> list[Reading]:
        """Each thread of the driver, and whether it is in state D."""
        if text(self._proc / "2" / "comm") != "kthreadd":
            return []
        pids = text(self._proc / "2" / "task" / "2" / "children", MOST_BYTES).split()
        self._known = {pid: self._known[pid] if pid in self._known else self._name(pid) for pid in pids}
        of_driver = [(pid, name) for pid, name in self._known.items() if name][:MOST_THREADS]
        readings = []
        for pid, name in of_driver:
            state = text(self._proc / pid / "stat").rpartition(") ")[2][:1]
            if state:
                # Another thread may come to have the number of one that has ended.
                what = f"the driver's kernel thread {name} (pid {pid}) can't be interrupted"
                readings.append(Reading(RULE, f"{name}:{pid}", float(state == "D"), what))
        return readings

    def _name(self, pid: str) -> str:
        name = text(self._proc / pid / "comm")
        return name.replace(" ", "_") if name.startswith(_NAMES) else ""
