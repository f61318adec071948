"""The machine under test: its own GPUs, or a scripted driver that stands in for what they would say."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.gpu import cuda
from tests.support.fake_nvml.library import ASLEEP, SPINNING, TRAINING, Doing, FakeNvml, build

DOINGS = {
    "idle": [ASLEEP],
    "train": [TRAINING],
    "spin": [SPINNING],
    "compile": [ASLEEP],
    "save": [Doing(145, 3, 1), SPINNING],
}
"""By phase of a story: GPU 0, and the others."""
REAL_STORY = "idle:15,train:45,spin:30,train:20,compile:25,train:20,save:30,train:15,idle:20"
SCRIPTED_STORY = "idle:12,train:26,spin:16,train:11,save:16,idle:16"
"""Readings come five seconds apart, and a phase is told by those that lie wholly in it."""


@dataclass(frozen=True)
class Machine:
    """Where the pack runs. ``driver`` is the scripted one; None: the machine's own GPUs are read."""

    gpus: int
    folder: Path
    driver: FakeNvml | None

    @property
    def real(self) -> bool:
        return self.driver is None

    @property
    def story(self) -> str:
        """The phases of the story on this machine."""
        return REAL_STORY if self.real else SCRIPTED_STORY

    def follow(self, phase: str) -> None:
        """The scripted driver tells what GPUs do in this phase."""
        if self.driver is not None:
            doings = DOINGS[phase]
            for gpu in range(self.gpus):
                self.driver.do([gpu], doings[min(gpu, len(doings) - 1)])

    def needs_cuda(self) -> None:
        """Skip the test where no kernel can be run."""
        if self.driver is not None or (why := cuda.missing()):
            pytest.skip("the driver is scripted" if self.driver is not None else why)

    def smi(self, *columns: str) -> list[list[str]]:
        """The rows of nvidia-smi; skips the test where there is none."""
        if self.driver is not None:
            pytest.skip("the driver is scripted: nvidia-smi knows nothing of it")
        query = ["nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(query, capture_output=True, text=True, timeout=180, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"nvidia-smi can't be asked: {error}")
        return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]


def own_gpus() -> int:
    """GPUs that the machine's own driver counts; 0 without a driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    count = ctypes.c_uint()
    if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return 0
    return count.value


@contextlib.contextmanager
def found(folder: Path) -> Iterator[Machine]:
    """The machine's own GPUs, eight at most, or two scripted ones."""
    if gpus := own_gpus():
        yield Machine(min(gpus, 8), folder, None)
        return
    driver = FakeNvml(build(folder), folder / "nvml.script")
    driver.gpus(2)
    driver.do(range(2), ASLEEP)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in driver.env.items():
            environment.setenv(name, value)
        yield Machine(2, folder, driver)


class Report:
    """Figures of one run, in ``gpu-report.json`` of the folder that ``HOLDFAST_GPU_OUT`` names."""

    def __init__(self, machine: Machine) -> None:
        self.folder = Path(os.environ.get("HOLDFAST_GPU_OUT") or machine.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._found: dict[str, object] = {"driver": "own" if machine.real else "scripted", "gpus": machine.gpus}

    def note(self, name: str, value: object) -> None:
        """Keep one figure; what was kept before is not lost if the run ends early."""
        self._found[name] = value
        print(f"{name}: {json.dumps(value)}")
        (self.folder / "gpu-report.json").write_text(json.dumps(self._found, indent=1) + "\n")
