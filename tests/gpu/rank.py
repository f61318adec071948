"""A rank for the GPU pack: ``python rank.py story FOLDER PHASES`` or ``python rank.py hold MIB``. No dependencies.

A story is one phase after the other on all ranks, by the machine's monotonic clock; PHASES is ``name:seconds,…``:

- idle: a context is held, and nothing done
- train: matrix products and sweeps over memory; a line each second
- spin: a kernel waits for a flag, as in a collective that a rank is missing from
- compile: the driver compiles kernels, on the CPU
- save: rank 0 copies its weights to a file, portion by portion; the others spin

Rank 0 writes ``FOLDER/phases.jsonl`` as the phases begin. Without a CUDA driver the phases are slept through: a
scripted driver says what the GPU does. Every kernel is bounded.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.gpu import cuda

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LOCAL = int(os.environ.get("LOCAL_RANK", "0"))
PORTION_S = 0.25


class Story:
    """The phases of one rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps = self.modules = 0
        self.device = None if cuda.missing() else cuda.Device(LOCAL)
        self.training = cuda.Training(self.device) if self.device else None

    def play(self, phases: list[tuple[str, float]]) -> None:
        began = self._together()
        for name, lasts_s in phases:
            if RANK == 0:
                with open(self.folder / "phases.jsonl", "a") as file:
                    record = {"phase": name, "began_s": time.monotonic(), "lasts_s": lasts_s}
                    file.write(json.dumps(record) + "\n")
            print(f"phase {name}", flush=True)
            began += lasts_s
            getattr(self, name)(began)
        if self.training is not None and (found := self.training.result()) != 2.0 * self.training.SIZE:
            raise SystemExit(f"the matrix product gave {found}, not {2.0 * self.training.SIZE}")

    def _together(self) -> float:
        """When the first phase begins: as soon as every rank is ready."""
        (self.folder / f"ready-{RANK}").touch()
        start = self.folder / "start"
        while not start.exists():
            if RANK == 0 and len(list(self.folder.glob("ready-*"))) == WORLD:
                fresh = self.folder / "start.new"
                fresh.write_text(str(time.monotonic() + 1))
                fresh.rename(start)
            time.sleep(0.05)
        at = float(start.read_text())
        time.sleep(max(0.0, at - time.monotonic()))
        return at

    def idle(self, until: float) -> None:
        time.sleep(max(0.0, until - time.monotonic()))

    def train(self, until: float) -> None:
        printed = 0.0
        while time.monotonic() < until:
            if self.training is None:
                time.sleep(PORTION_S)
            else:
                self.training.step()
            self.steps += 1
            if time.monotonic() - printed >= 1:
                printed = time.monotonic()
                print(f"step={self.steps} loss={1 / self.steps:.6f}", flush=True)

    def spin(self, until: float) -> None:
        if self.device is None:
            self.idle(until)
            return
        spin = cuda.Spin(self.device, until - time.monotonic() + 5)
        self.idle(until)
        began = time.monotonic()
        spin.end()
        print(f"spin ended {1e3 * (time.monotonic() - began):.1f} ms after its flag", flush=True)

    def compile(self, until: float) -> None:
        source = cuda.PTX.read_bytes()
        while time.monotonic() < until:
            self.modules += 1
            if self.device is None:
                compile("x = 1\n" * 20_000, "kernels", "exec")
            else:
                self.device.unload(self.device.load(source + b"\n// %d\n" % self.modules))

    def save(self, until: float) -> None:
        if RANK:
            self.spin(until)
            return
        with open(self.folder / "model.pt", "wb") as file:
            while time.monotonic() < until:
                weights = bytes(1 << 20) if self.training is None else self.training.weights()
                file.seek(0 if file.tell() > 1 << 30 else file.tell())
                file.write(weights)
                file.flush()
                os.fsync(file.fileno())
                time.sleep(PORTION_S)


def hold(mib: int) -> None:
    """Hold so much of the GPU's memory until killed, ten minutes at most."""
    device = cuda.Device(LOCAL)
    device.allocate(mib << 20)
    print("held", flush=True)
    time.sleep(600)


def main() -> None:
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # what is compiled twice is compiled each time
    match sys.argv[1:]:
        case ["story", folder, phases]:
            wanted = [(name, float(lasts_s)) for name, lasts_s in (one.split(":") for one in phases.split(","))]
            Story(Path(folder)).play(wanted)
        case ["hold", mib]:
            hold(int(mib))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
