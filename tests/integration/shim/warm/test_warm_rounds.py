"""Crash after crash of one job with warm starts: each end is told as it was, each launch is the next generation's own.

``WARM_ROUNDS=1000 pytest tests/integration/shim/warm/test_warm_rounds.py -s`` has more rounds than the tests' few, and
``WARM_SEED`` others.
"""

from __future__ import annotations

import collections
import functools
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.warm.warm_jobs import Job, Shim, children, parked

from holdfast.dev import processes

ROUNDS, SEED = int(os.environ.get("WARM_ROUNDS", "12")), int(os.environ.get("WARM_SEED", "0"))
RANKS = 2
PROGRAM = """
import os, sys, time
import decimal, json
mine = os.environ["HOLDFAST_GENERATION"] + "." + os.environ["RANK"]
print(mine, os.getpid(), flush=True)
while not os.path.exists("fate." + mine):
    time.sleep(0.005)
with open("fate." + mine) as file:
    kind, number = file.read().split()
if kind == "exit":
    sys.exit(int(number))
os.kill(os.getpid(), int(number))
"""
FATES = ("exit 1", "exit 3", "exit 255", "kill 6", "kill 9", "kill 11")
STATUS = {
    fate: int(number) << 8 if kind == "exit" else int(number) for fate in FATES for kind, number in [fate.split()]
}
CORE = 0x80
"""Of a wait status: the kernel has dumped core, or would have."""


class Rounds:
    """One job's generations, and what is said of them; the shim's words come in one stream."""

    def __init__(self, shim: Shim, job: Job, chance: random.Random) -> None:
        self.shim, self.job, self.chance = shim, job, chance
        self.heard: list[dict[str, Any]] = []
        self.kept: set[int] = set()
        """The keeper, and what it kept."""

    def until(self, enough: Callable[[], bool], wait_s: float = 180.0) -> None:
        """Reads what the shim says until that is enough."""
        while not enough():
            message = self.shim.receive(wait_s)
            assert message is not None, "the shim has ended"
            self.heard.append(message)

    def of(self, event: str, generation: int) -> list[dict[str, Any]]:
        """What was said of a generation; what is parked for the next one is said of it, too."""
        return [each for each in self.heard if each["ev"] == event and each.get("generation") == generation]

    def is_parked(self, generation: int) -> bool:
        """Whether the newest word is that all ranks of the next generation wait."""
        said = self.of("warm", generation)
        return bool(said) and said[-1].get("ranks") == RANKS

    def launch(self, generation: int) -> int:
        """Starts a generation and returns how many ranks began warm, once each has said who it is."""
        self.job.launch(generation, warm={})
        self.until(lambda: len(self.of("started", generation)) == RANKS)
        started = {each["rank"]: each for each in self.of("started", generation)}
        for rank, each in started.items():
            assert self.shim.await_output(rank, generation).split() == [f"{generation}.{rank}", str(each["pid"])]
        return sum(bool(each.get("warm")) for each in started.values())

    def disturb(self, generation: int) -> str:
        """Kills something of what is parked for the next generation, or nothing."""
        what = self.chance.choice(("nothing", "nothing", "nothing", "parked rank", "keeper"))
        keeper, pids = parked(self.shim, RANKS)
        self.kept = {keeper, *pids}
        if what != "nothing":
            os.kill(keeper if what == "keeper" else self.chance.choice(pids), signal.SIGKILL)
        return what

    def crash(self, generation: int) -> None:
        """Ends one rank as a fate has it, stops the other, and checks both records and that nothing is left."""
        victim, fate = self.chance.randrange(RANKS), self.chance.choice(FATES)
        Path(f"{self.job.cwd}/fate.{generation}.{victim}.new").write_text(fate)
        os.rename(f"{self.job.cwd}/fate.{generation}.{victim}.new", f"{self.job.cwd}/fate.{generation}.{victim}")
        self.until(lambda: bool(self.of("exited", generation)))
        self.shim.send(op="stop", generation=generation, grace_s=0.0, reason="STOPPED", another_follows=True)
        self.until(lambda: bool(self.of("empty", generation)))
        ends = {each["rank"]: each for each in self.of("exited", generation)}
        assert len(self.of("exited", generation)) == len(ends) == RANKS, "each end is told once"
        assert ends[victim]["status"] & ~CORE == STATUS[fate]
        other = ends[1 - victim]
        assert (other["reason"], other["status"]) in (("STOPPED", signal.SIGTERM), ("STOPPED", signal.SIGKILL))
        below = set(children(self.shim.process.pid))
        assert len(below) <= 1 or below <= self.kept, (
            "all is gone but what was parked: its keeper, or what that leaves"
        )


@pytest.mark.timeout(7200)
def test_rounds_of_crashes(hasty: Callable[..., Shim]) -> None:
    shim, chance = hasty(), random.Random(SEED)
    program = shim.out / "rounds.py"
    program.write_text(PROGRAM)
    rounds = Rounds(shim, Job(shim, str(program), ranks=RANKS, WARM_ROUNDS_OF=str(shim.out)), chance)
    counts: collections.Counter[str] = collections.Counter()
    waited = disturbed = False
    for generation in range(1, ROUNDS + 1):
        warm = rounds.launch(generation)
        counts[f"{warm} warm"] += 1
        assert warm == RANKS or not waited or disturbed, [each["message"] for each in rounds.of("warm", generation)]
        waited, what = chance.random() < 0.8, "nothing"
        if waited:
            rounds.until(functools.partial(rounds.is_parked, generation))
            what = rounds.disturb(generation)
            counts[what] += 1
        disturbed = what != "nothing"
        rounds.crash(generation)
        rounds.heard.clear()
        if generation % 100 == 0:
            print(f"{generation} of {ROUNDS}: {dict(counts)}", flush=True)
    shim.send(op="stop", generation=ROUNDS, grace_s=0.0, reason="STOPPED", another_follows=False)
    rounds.until(lambda: bool(rounds.of("empty", ROUNDS)))
    assert children(shim.process.pid) == []
    marked = [
        pid for pid in processes.snapshot() if processes.environment(pid).get("WARM_ROUNDS_OF") == str(shim.out)
    ]
    assert marked == []
    print(dict(counts))
    assert counts[f"{RANKS} warm"] >= ROUNDS // 6
