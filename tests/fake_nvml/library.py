"""Builds the scripted NVML and writes its script. See ``nvml.c`` for the language."""

from __future__ import annotations

import subprocess
from pathlib import Path

GIB = 1 << 30
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, VERSION_MISMATCH = 3, 4, 9, 15, 18
UNKNOWN = 999


def build(directory: Path) -> Path:
    """Compile ``libnvidia-ml.so.1`` into ``directory``; returns the directory, for ``LD_LIBRARY_PATH``."""
    source = Path(__file__).with_name("nvml.c")
    target = directory / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", target, source], check=True)
    return directory


class FakeNvml:
    """A driver whose script can be changed while programs use it."""

    def __init__(self, library_dir: Path, script: Path) -> None:
        self.library_dir = library_dir
        self.script = script
        self.lines: list[str] = []
        self._write()

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to load this driver."""
        return {"LD_LIBRARY_PATH": str(self.library_dir), "FAKE_NVML_SCRIPT": str(self.script)}

    def say(self, *lines: str) -> None:
        """Append statements."""
        self.lines.extend(lines)
        self._write()

    def replace(self, *lines: str) -> None:
        """A new script in place of the old one."""
        self.lines = list(lines)
        self._write()

    def gpus(self, count: int, *, total: int = 80 * GIB, used: int = 0) -> None:
        """Append ``count`` whole GPUs, ``GPU-0`` and on, each on a bus of its own, in bus order."""
        self.say(
            *(f"gpu GPU-{i} 00000000:{0x17 + i:02X}:00.0 {total} {used} NVIDIA H100 80GB" for i in range(count))
        )

    def _write(self) -> None:
        # Renamed into place, since a program may be reading the old one.
        new = self.script.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in self.lines))
        new.rename(self.script)
