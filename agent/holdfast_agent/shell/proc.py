"""What /proc says about processes, read without a library."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stat:
    """Of one process."""

    pid: int
    state: str
    session: int
    start_ticks: int


def stat(pid: int) -> Stat | None:
    """None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name may hold spaces and parentheses; everything after the last one is plain.
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(pid, fields[0].decode(), int(fields[3]), int(fields[19]))


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where it is gone, or is a zombie."""
    found = stat(pid)
    return None if found is None or found.state in "ZX" else found.start_ticks


def boot_id() -> str:
    """Of the running kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def all_pids() -> list[int]:
    """Of every process that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
