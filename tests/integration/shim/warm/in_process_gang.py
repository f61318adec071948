"""A gang of four ranks on one shim that can go on in their own processes, whose ends are ordered by files."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.shim.warm.warm_jobs import Job, Shim

WARM = {"preload": [], "never": [], "in_process": True}
RANKS = 4
PROGRAM = """
import os, sys, time
import holdfast

@holdfast.restartable(within_s=WITHIN)
def train(kept):
    mine = os.environ["HOLDFAST_GENERATION"] + "." + os.environ["RANK"]
    kept.append(mine)
    print(mine, os.getpid(), *kept, flush=True)
    while not os.path.exists("fate." + mine):
        time.sleep(0.005)
    exec(open("fate." + mine).read(), globals())

train([])
"""


def eventually(happens: Callable[[], bool], wait_s: float = 180.0) -> bool:
    deadline = time.monotonic() + wait_s
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Gang:
    """A job of four ranks whose ends are ordered by files; the shim's words come in one stream."""

    def __init__(self, shim: Shim, program: str = PROGRAM, within_s: float = 5.0) -> None:
        self.shim = shim
        path = shim.out / "train.py"
        path.write_text(program.replace("WITHIN", str(within_s)))
        self.job = Job(shim, "-u", str(path), ranks=RANKS)
        self.heard: list[dict[str, Any]] = []

    def until(self, enough: Callable[[], bool], wait_s: float = 180.0) -> None:
        while not enough():
            message = self.shim.receive(wait_s)
            assert message is not None, "the shim has ended"
            self.heard.append(message)

    def of(self, event: str, generation: int) -> dict[int, dict[str, Any]]:
        """By rank, what was said of a generation; nothing is said twice."""
        said = [each for each in self.heard if each["ev"] == event and each.get("generation") == generation]
        assert len(said) == len({each["rank"] for each in said})
        return {each["rank"]: each for each in said}

    def said(self, generation: int) -> list[str]:
        return [each["message"] for each in self.heard if each["ev"] == "warm" and each["generation"] == generation]

    def launch(
        self, generation: int, warm: dict[str, object] | None = WARM, **fields: object
    ) -> dict[int, list[str]]:
        """Starts a generation; by rank, what each prints once it has begun."""
        self.job.launch(generation, warm=warm, **fields)
        self.until(lambda: len(self.of("started", generation)) == RANKS)
        words = {rank: self.shim.await_output(rank, generation).split() for rank in range(RANKS)}
        for rank, each in words.items():
            assert each[:2] == [f"{generation}.{rank}", str(self.of("started", generation)[rank]["pid"])]
        return words

    def fate(self, generation: int, rank: int, code: str) -> None:
        place = Path(f"{self.job.cwd}/fate.{generation}.{rank}")
        place.with_suffix(".new").write_text(code)
        os.rename(place.with_suffix(".new"), place)

    def crash(self, generation: int, rank: int, code: str = "sys.exit(3)") -> None:
        self.fate(generation, rank, code)
        self.until(lambda: rank in self.of("exited", generation))

    def stop(self, generation: int, *, another: bool = True, grace_s: float = 10.0, **more: object) -> None:
        order = {"grace_s": grace_s, "reason": "STOPPED", "another_follows": another, **more}
        self.shim.send(op="stop", generation=generation, **order)
        self.until(lambda: any(each["ev"] == "empty" and each["generation"] == generation for each in self.heard))

    def end_without_shim(self) -> None:
        """Kills the ranks that a dead shim has left."""
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f"{self.shim.out}/train.py".encode() in entry.read_bytes():
                    os.kill(int(entry.parent.name), signal.SIGKILL)

    def in_process(self, generation: int) -> set[int]:
        return {rank for rank, each in self.of("started", generation).items() if each.get("in_process")}
