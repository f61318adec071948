"""Builds the wall clock that can be set for some programs, and sets it. See ``clock.c``."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

DAY_S = 86_400


class FakeClock:
    """A wall clock for the programs that are started with ``env``."""

    def __init__(self, directory: Path) -> None:
        self._library = directory / "clock.so"
        self._offset = directory / "clock.offset"
        source = Path(__file__).with_name("clock.c")
        command: list[str | Path] = [
            "cc",
            "-Wall",
            "-Werror",
            "-O1",
            "-shared",
            "-fPIC",
            "-o",
            self._library,
            source,
            "-ldl",
        ]
        subprocess.run(command, check=True)
        self._offset.write_bytes(struct.pack("q", 0))

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to live by this clock."""
        return {"LD_PRELOAD": str(self._library), "FAKE_CLOCK_OFFSET": str(self._offset)}

    def jump(self, offset_s: int) -> None:
        """The clock reads so much more than the machine's from now on; negative: less."""
        # In place, since programs have the file mapped.
        with self._offset.open("r+b") as file:
            file.write(struct.pack("q", offset_s))
