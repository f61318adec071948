"""Gangs in virtual time: ranks that step together, and what an agent would count of them.

A model, with its own idea of what a fault does. It shares no code with the judge but the types of its input.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast_controller.core.slowness.pace import Look

LOOK_S = 10.0
SAMPLE_S = 2.0


@dataclass(frozen=True)
class Gang:
    """A healthy gang; times in seconds, shares of one. ``gpu``: its ranks spin on a GPU where they wait."""

    ranks: int = 8
    per_host: int = 4
    step_s: float = 0.5
    noise: float = 0.03
    uneven: float = 0.02
    comm: float = 0.1
    no_core: float = 0.01
    gpu: bool = False
    reports: bool = False
    evaluates_every_s: float = 0.0
    evaluation_s: float = 0.0
    drift: float = 0.0
    wander: float = 0.0


@dataclass(frozen=True)
class Fault:
    """What becomes of some ranks from ``at_s`` on: their work takes ``by`` more of the time. ``kind`` says why."""

    kind: str
    at_s: float
    by: float
    ranks: tuple[int, ...]
    named: bool
    lasts_s: float = math.inf


@dataclass
class _Rank:
    work: float
    ran_s: float = 0.0
    queued_s: float = 0.0
    stopped: float = 0.0
    storage: float = 0.0
    aside: float = 0.0
    seen_s: float = 0.0
    looks: int = 0
    stops: int = 0
    disks: int = 0
    sides: int = 0
    gpu_looks: int = 0
    clock: float = 0.0
    util: float = 0.0
    energy: float = 0.0
    power: float = 550.0
    mhz: float = 1_900.0
    step: float = 0.0


@dataclass
class Run:
    """One run of a gang: an iterator of looks, as the controller has them."""

    gang: Gang
    faults: tuple[Fault, ...]
    seed: int
    hours: float = 1.0
    findings: frozenset[str] = frozenset()
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def looks(self) -> Iterator[Look]:
        """Looks every ten seconds of virtual time."""
        gang, rng = self.gang, self._random
        ranks = [
            _Rank(
                gang.step_s * (1 + rng.gauss(0, gang.uneven)),
                power=550 * (1 + rng.gauss(0, 0.02)),
                mhz=1_900 * (1 + rng.gauss(0, 0.005)),
            )
            for _ in range(gang.ranks)
        ]
        now, step, last = 0.0, 0, 0.0
        next_look, next_evaluation = LOOK_S, gang.evaluates_every_s or math.inf
        wander = 0.0
        while now < self.hours * 3600:
            wander = 0.98 * wander + rng.gauss(0, gang.wander * 0.2)
            everyone = (1 + gang.drift * now / 3600) * math.exp(wander)
            spent = [self._step(rank, number, now, everyone) for number, rank in enumerate(ranks)]
            comm = gang.comm * gang.step_s * self._network(now) * math.exp(rng.gauss(0, 0.1))
            longest = max(total for total, *_ in spent) + comm
            if now >= next_evaluation:
                # Unannounced, by all of them.
                now, next_evaluation = now + gang.evaluation_s, next_evaluation + gang.evaluates_every_s
            for rank, (total, ran, queued, stopped, storage, aside, slow) in zip(ranks, spent, strict=True):
                rank.ran_s += ran + (longest - total if gang.gpu else 0.0)
                rank.queued_s += queued
                rank.stopped, rank.storage, rank.aside = (
                    rank.stopped + stopped,
                    rank.storage + storage,
                    rank.aside + aside,
                )
                if gang.gpu:
                    busy = (total / longest) * rank.power * slow**2 + (1 - total / longest) * 200
                    rank.energy += busy * longest
                    rank.clock += rank.mhz * slow * longest * math.exp(rng.gauss(0, 0.002))
            now, step = now + longest, step + 1
            if now >= next_look:
                elapsed, last = now - last, now
                for rank in ranks:
                    self._sample(rank, elapsed)
                next_look = now + LOOK_S
                yield self._look(ranks, now, step)

    def _step(
        self, rank: _Rank, number: int, now: float, everyone: float
    ) -> tuple[float, float, float, float, float, float, float]:
        """Total time of a rank's part of a step; on a core, without one, stopped, on storage, aside; clock's share."""
        rng, gang = self._random, self.gang
        work = rank.work * everyone * math.exp(rng.gauss(0, gang.noise))
        queued = work * gang.no_core * rng.expovariate(1.0)
        stopped = storage = aside = 0.0
        slow = 1.0
        for fault in self.faults:
            if not (fault.at_s <= now < fault.at_s + fault.lasts_s) or number not in fault.ranks:
                continue
            more = rank.work * everyone * fault.by * math.exp(rng.gauss(0, 0.1))
            match fault.kind:
                case "no core":
                    queued += more
                case "stopped":
                    stopped += more
                case "storage":
                    storage += more
                case "loader" | "sleep":
                    aside += more
                case "more work":
                    work += more
                case "clock":
                    work, slow = work + more, slow / (1 + fault.by)
        return work + queued + stopped + storage + aside, work, queued, stopped, storage, aside, slow

    def _network(self, now: float) -> float:
        factor = 1.0
        for fault in self.faults:
            if fault.kind == "network" and fault.at_s <= now < fault.at_s + fault.lasts_s:
                factor += fault.by / self.gang.comm
        return factor

    def _sample(self, rank: _Rank, elapsed: float) -> None:
        rank.seen_s += elapsed
        looks = max(1, round(elapsed / SAMPLE_S))
        rank.looks += looks
        for name, total in (("stops", "stopped"), ("disks", "storage"), ("sides", "aside")):
            share = min(1.0, getattr(rank, total) / elapsed)
            hits = sum(self._random.random() < share for _ in range(looks))
            setattr(rank, name, getattr(rank, name) + hits)
            setattr(rank, total, 0.0)
        if self.gang.gpu:
            readings = max(1, round(elapsed / 5))
            rank.gpu_looks += readings
            rank.util += 99.0 * readings

    def _look(self, ranks: list[_Rank], now: float, step: int) -> Look:
        times = {}
        for number, rank in enumerate(ranks):
            found = RankTimes(
                seen_s=rank.seen_s,
                ran_s=rank.ran_s,
                queued_s=rank.queued_s,
                looks=rank.looks,
                stopped=rank.stops,
                storage=rank.disks,
                aside=rank.sides,
            )
            if self.gang.reports:
                found = replace(found, step=float(step), step_s=now)
            if self.gang.gpu:
                # Sums of readings: the mean clock times their number.
                mean = rank.clock / rank.seen_s if rank.seen_s else 0.0
                found = replace(
                    found,
                    gpu_looks=rank.gpu_looks,
                    clock_mhz=mean * rank.gpu_looks,
                    util_pct=rank.util,
                    gpu_s=rank.seen_s,
                    energy_j=rank.energy,
                )
            times[number] = (f"h{number // self.gang.per_host}", now, found)
        return Look(now, float(step), apart=False, times=times, findings=self.findings)


Scenario = Callable[[random.Random], Run]
