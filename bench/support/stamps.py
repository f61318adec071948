"""The moments of workers' first instructions, as the static worker (stamp.c) writes them into a file."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.01
"""Between two looks at the file. Times come from the workers, so this adds nothing to them."""


class TooSlow(Exception):
    """What was awaited did not happen in time."""


def build(directory: Path) -> Path:
    """Compile the static worker. Raises ``CalledProcessError`` without a C compiler and a static C library."""
    program = directory / "stamp"
    source = Path(__file__).with_name("stamp.c")
    subprocess.run(["cc", "-O2", "-static", "-o", program, source], check=True)
    return program


@dataclass(frozen=True, slots=True)
class Stamp:
    """One worker's first instruction; ``at`` in seconds on CLOCK_MONOTONIC."""

    generation: int
    rank: int
    pid: int
    at: float


class Stamps:
    """A file of stamps that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._all: list[Stamp] = []

    def read(self) -> list[Stamp]:
        """All so far."""
        if self.path.exists() and os.stat(self.path).st_size > self._offset:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            data = data[: data.rindex(b"\n") + 1]
            self._offset += len(data)
            for line in data.decode().splitlines():
                generation, rank, pid, nanoseconds = (int(word) for word in line.split())
                self._all.append(Stamp(generation, rank, pid, nanoseconds / 1e9))
        return self._all

    def newest(self, after: float = 0.0) -> dict[int, Stamp]:
        """The last of each rank that began after a moment. (A generation's number is no help with torchrun: on
        several nodes each counts for itself.)"""
        return {stamp.rank: stamp for stamp in sorted(self.read(), key=lambda s: s.at) if stamp.at > after}

    def wait(self, world: int, within_s: float, after: float = 0.0) -> list[Stamp]:
        """The stamps of ``world`` ranks that began after a moment, once all have. Raises ``TooSlow``."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            stamps = self.newest(after)
            if len(stamps) == world:
                return list(stamps.values())
            time.sleep(LOOK_S)
        raise TooSlow(f"{len(self.newest(after))} of {world} workers within {within_s:g} s")

    def wait_for(self, count: int, within_s: float) -> list[Stamp]:
        """All stamps once there are ``count``. Raises ``TooSlow``."""
        deadline = time.monotonic() + within_s
        while len(stamps := self.read()) < count:
            if time.monotonic() >= deadline:
                raise TooSlow(f"{len(stamps)} of {count} workers within {within_s:g} s")
            time.sleep(LOOK_S)
        return stamps
