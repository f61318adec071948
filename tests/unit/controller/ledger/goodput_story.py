"""A story of a job's time: told in moves, and checked against what the ledger counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.sim.goodput import GoodputOracle

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.goodput import Interval, Progress, Reached
from holdfast_controller.core.model.hosts.host import Gpu, Inventory, Place
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.model.runtime import Started

GIB = 1 << 30
TASK = Task(("python", "train.py"))
EPOCH_S = 1_700_006_400.0
"""Midnight UTC."""
Sums = dict[tuple[str, str], float]


class Wrong(AssertionError):
    """A story that did not come out as it must."""


def check(holds: bool, name: str, text: str) -> None:
    """Raises ``Wrong`` where it doesn't hold."""
    if not holds:
        raise Wrong(f"{name}: {text}")


class Story:
    """One job of two workers with 4 GPUs each on two hosts; times are seconds since its submission."""

    def __init__(self, gpus: int = 4, processes: int = 1, start_s: float = 3600.0, snapshot_every: int = 1) -> None:
        self.oracle = GoodputOracle(check, snapshot_every=snapshot_every)
        self.start_s = EPOCH_S + start_s
        self.generation = 0
        self.attempt = 0
        self.gang = Gang((Pool(2, TASK, processes=processes, gpus=gpus),))
        self.gpus = gpus
        for host in ("h1", "h2", "h3"):
            devices = tuple(Gpu(f"{host}-{n}", n, "H100", 80 * GIB) for n in range(8))
            inventory = Inventory(64, 512 * GIB, devices)
            self.take(0, ev.HostJoined, host=host, address="", boot_id="b", agent_version="1", inventory=inventory)
        submitted: dict[str, Any] = {"owner": "ann", "request_id": "", "display_name": "a", "labels": {}}
        self.of_job(0, ev.JobSubmitted, gang=self.gang, spec_json="{}", **submitted)

    def take(self, at_s: float, kind: Callable[..., Any], **fields: Any) -> None:
        self.oracle.take(kind(at=Wall(self.start_s + at_s), **fields))

    def of_job(self, at_s: float, kind: Callable[..., Any], **fields: Any) -> None:
        self.take(at_s, kind, job_id="a", **fields)

    def wall(self, at_s: float) -> Wall:
        return Wall(self.start_s + at_s)

    def ms(self, at_s: float) -> int:
        return round((self.start_s + at_s) * 1000)

    def place(self, at_s: float, *hosts: str) -> None:
        self.generation += 1
        self.attempt += 1
        places = tuple(
            Place(host, tuple(f"{host}-{n}" for n in range(self.gpus))) for host in hosts or ("h1", "h2")
        )
        self.of_job(at_s, ev.JobPlaced, attempt=self.attempt, generation=self.generation, places=places)

    def launch(self, at_s: float) -> None:
        rendezvous = Rendezvous("", 1, "", ("", ""), (1, 2))
        self.of_job(at_s, ev.GangLaunched, generation=self.generation, rendezvous=rendezvous)

    def start(self, at_s: float) -> None:
        started = {0: Started(1, (2,)), 1: Started(3, (4,))}
        self.of_job(at_s, ev.GangStarted, generation=self.generation, started=started)

    def run(self, placed_s: float = 10, launched_s: float = 14, started_s: float = 15) -> None:
        self.place(placed_s)
        self.launch(launched_s)
        self.start(started_s)

    def progress(self, at_s: float, since_s: float, **fields: Any) -> None:
        """``first`` etc. are (seconds, step), ``of`` what they count up to; ``apart`` are (from, to, category)."""
        points, of = {name: fields[name] for name in ("first", "last") if name in fields}, fields.get("of")
        found: dict[str, Any] = {name: Reached(self.ms(s), step, of) for name, (s, step) in points.items()}
        began_s = fields.get("began", points.get("first", (None, 0))[0])
        if began_s is not None:
            found["began"] = self.ms(began_s)
        moved_s = fields.get("moved", points.get("last", (None, 0))[0])
        if moved_s is not None:
            found["moved"] = self.ms(moved_s)
        found["saved"] = tuple(Reached(self.ms(s), step) for s, step in fields.get("saved", ()))
        found["apart"] = tuple(Interval(self.ms(a), self.ms(b), c) for a, b, c in fields.get("apart", ()))
        found["resumed"] = fields.get("resumed")
        recorded = Progress(since=self.ms(since_s), until=self.ms(at_s), **found)
        self.of_job(at_s, ev.ProgressRecorded, generation=self.generation, progress=recorded)

    def exit(self, at_s: float, reason: ExitReason, end_s: float | None = None, worker: int = 0) -> None:
        ended = self.wall(at_s if end_s is None else end_s)
        gone = Exit(self.attempt, self.generation, worker, reason, 1, end_time=ended)
        self.of_job(at_s, ev.RankExited, worker=f"workerpool0-{worker}", exit=gone)

    def restart(self, at_s: float, reason: EndReason, failed_s: float | None = None, **fields: Any) -> None:
        self.generation += 1
        failed_at = self.wall(at_s if failed_s is None else failed_s)
        if fields.get("not_before") is not None:
            fields["not_before"] = self.wall(fields["not_before"])
        decided = {"end_reason": reason, "related": Related(), "stop_reason": ExitReason.STOPPED, **fields}
        self.of_job(at_s, ev.RestartDecided, generation=self.generation, failed_at=failed_at, **decided)

    def end(self, at_s: float, outcome: JobState = JobState.SUCCEEDED) -> None:
        self.of_job(at_s, ev.JobEnding, outcome=outcome)
        for worker in (0, 1):
            self.of_job(at_s + 1 + worker, ev.WorkerEmptied, worker=f"workerpool0-{worker}")
        self.of_job(at_s + 2, ev.JobEnded, state=outcome)

    def sums(self) -> Sums:
        """Seconds x weight by category and cause, of the closing statement."""
        found: Counter[tuple[str, str]] = Counter()
        for key, ms in self.oracle.statements["a"].ledger.sums.items():
            _, category, cause = key.split("|")
            found[category, cause] += ms
        return {key: ms / 1000 for key, ms in found.items()}


def _expect(story: Story, **expected: Any) -> None:
    """Seconds of the two workers together, of 4 GPUs each, by CATEGORY__CAUSE."""
    wanted = {(key.partition("__")[0], key.partition("__")[2]): float(s) * 4 for key, s in expected.items() if s}
    found = story.sums()
    check(found == wanted, "sums", f"{found} instead of {wanted}")
