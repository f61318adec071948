"""A gang that trains, stands still, or does both in part: its workers' vectors, sent every few seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import HangAction
from holdfast.hang.evidence.evidence import Dump, Evidence, Look, ProcessEvidence, RankEvidence, ThreadStack, Vector
from holdfast.hang.evidence.flight_recorder import FlightRecord
from holdfast.hang.evidence.frames import Frame
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.hang.thresholds import HangSettings

EVERY_S = 5.0
WAITS = Wait(WaitKind.PEER, "all_reduce")
IN_ALL_REDUCE = (
    Frame("all_reduce", "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2501),
    Frame("train", "/home/ann/train.py", 80),
)
IN_LOOP = (Frame("retry", "/home/ann/train.py", 57),)
IN_LOADER = (Frame("get", "/usr/lib/python3.11/queue.py", 171), Frame("load", "/home/ann/data_loader.py", 212))


def hanging_gang(workers: int = 2, action: HangAction = HangAction.RESTART, **rules: Any) -> Any:
    """A gang whose hangs are acted on."""
    return gang(workers, hang=HangSettings(action), **rules)


@dataclass
class Training:
    """One job's program. Moves return what followed, as ``World``'s do."""

    world: World
    job: str = "a"
    beating: tuple[str, ...] = ("host-0", "host-1")
    changes: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What differs in some ranks, by rank."""
    mute: set[int] = field(default_factory=set)
    """Workers of which nothing is heard."""
    step: float | None = None
    checkpoint_s: float | None = None
    still_s: float | None = None
    printed_s: float | None = None
    wait: Wait | None = WAITS
    comes_back: bool = False
    """Each generation hangs at the same line as the one before; otherwise at another."""

    def trains(self, for_s: float = 60.0) -> list[str]:
        """Every rank works, and something new is printed each time."""
        self.still_s = None
        return self._passes(for_s, Motion.WORKING)

    def stands_still(self, for_s: float) -> list[str]:
        """No rank moves."""
        self.still_s = self.world.mono if self.still_s is None else self.still_s
        return self._passes(for_s, Motion.BLOCKED)

    def restarts(self) -> list[str]:
        """All places are ready for the next generation, and it runs."""
        self.still_s = self.printed_s = self.checkpoint_s = None
        told: list[str] = []
        for state in ("PREPARED", "RUNNING"):
            for worker in range(len(self.world.cluster.jobs[self.job].places)):
                told += self.world.report(self.job, worker, state)
        return told

    def _passes(self, for_s: float, motion: Motion) -> list[str]:
        told: list[str] = []
        for _ in range(round(for_s / EVERY_S)):
            told += self.world.wait(EVERY_S, beating=self.beating)
            if motion is Motion.WORKING:
                self.printed_s = self.world.mono
            for vector in self.vectors(motion):
                if vector.host in self.world.sessions:
                    told += self.world.features(self.job, vector)
        return told

    def vectors(self, motion: Motion = Motion.BLOCKED) -> list[WorkerFeatures]:
        """What all workers that can be heard would tell now."""
        job, now = self.world.cluster.jobs[self.job], self.world.mono
        since_s = now if self.still_s is None else self.still_s
        line = 1 if self.comes_back else job.generation
        wait = replace(self.wait, place=f"train.py:{line} `step`") if self.wait else None
        rank = RankFeatures(
            0,
            motion,
            since_s,
            state=State.SLEEPING,
            wchan="futex",
            wait=wait if motion is Motion.BLOCKED else None,
        )
        output = OutputFeatures(self.printed_s, self.step, self.checkpoint_s)
        return [
            WorkerFeatures(
                member.name,
                place.host,
                now,
                tuple(replace(rank, rank=n, **self.changes.get(n, {})) for n in member.ranks),
                output,
            )
            for member, place in zip(job.gang.members, job.places, strict=False)
            if member.index not in self.mute
        ]

    def dumps(
        self,
        worker: int,
        frames: tuple[Frame, ...] = IN_ALL_REDUCE,
        *,
        moved: bool = False,
        flight: FlightRecord | None = None,
    ) -> Evidence:
        """A worker's evidence: every rank is in ``frames`` at both looks, or elsewhere at the second."""
        job = self.world.cluster.jobs[self.job]
        member = job.gang.members[worker]
        later = (replace(frames[0], line=frames[0].line + 1, file="/home/ann/train.py"), *frames[1:])
        looks = tuple(
            Look(at_s, Vector("S"), Dump("py-spy", (ThreadStack(1, frames=seen, main=True),)))
            for at_s, seen in ((0.0, frames), (5.0, later if moved else frames))
        )
        ranks = tuple(
            RankEvidence(rank, ProcessEvidence(1000 + rank, looks=looks), flight=flight) for rank in member.ranks
        )
        return Evidence(
            self.job, member.name, job.places[worker].host, job.generation, self.world.wall, ranks=ranks
        )


def training(
    job: str = "a", workers: int = 2, *, hosts: int = 2, world: World | None = None, **rules: Any
) -> Training:
    """A job that has trained for five minutes."""
    made = world or World(hosts=hosts)
    made.submit(job, hanging_gang(workers, **rules))
    made.run(job)
    program = Training(made, job, tuple(made.sessions))
    assert program.trains(300) == []
    return program
