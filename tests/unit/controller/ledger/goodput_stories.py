"""Stories for the goodput ledger: events of one job, and the seconds that each category of its time must have.

Longer than 400 lines because it is one list of stories.

Each runs under the simulation's oracle, which adds allocations up by itself after every event, and continues from a
snapshot after each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.sim.goodput import GoodputOracle

from holdfast._session.reports import Exit, ExitReason
from holdfast.hang.judge.finding import Rule
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.goodput import Category, Interval, Progress, Reached
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.hosts.host import Gpu, Inventory, Place
from holdfast_controller.core.model.job import Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import EndReason, Recover, Related
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
        """``first`` etc. are (seconds, step); ``apart`` are (from, to, category)."""
        points = {name: fields[name] for name in ("first", "last") if name in fields}
        found: dict[str, Any] = {name: Reached(self.ms(s), step) for name, (s, step) in points.items()}
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


def success_with_saves() -> None:
    s = Story()
    s.place(10)
    s.of_job(12, ev.PreparationNoted, worker="workerpool0-0", host="h1", doing="installing requirements")
    s.launch(20)
    s.start(22)
    saves = [(60, 90, Category.SAVE), (120, 130, Category.EVALUATE), (140, 145, Category.PAUSE)]
    s.progress(200, 22, first=(40, 1.0), last=(199, 100.0), saved=[(90, 30.0)], apart=saves)
    s.end(200)
    _expect(
        s,
        prepare__FIRST_START=4,
        install__FIRST_START=16,
        launch__FIRST_START=4,
        warm_up__FIRST_START=36,
        train__WORK=2 * (160 - 45),
        save__WORK=60,
        evaluate__WORK=20,
        pause__DECLARED_IDLE=10,
        wind_down__FINISHED=1 + 2,
    )


def nothing_reported_is_not_productive() -> None:
    s = Story()
    s.run()
    s.end(115)
    _expect(s, prepare__FIRST_START=8, launch__FIRST_START=2, ran__WORK=200, wind_down__FINISHED=3)


def crash_and_resume() -> None:
    s = Story()
    s.run()
    s.exit(112, ExitReason.NONZERO_EXIT, 110)
    s.progress(112, 15, first=(20, 1.0), last=(110, 91.0), saved=[(60, 41.0)])
    s.restart(112, EndReason.NONZERO_EXIT, 110, not_before=120)
    s.exit(114, ExitReason.STOPPED, worker=1)
    s.launch(121)
    s.start(122)
    s.progress(222, 122, first=(132, 42.0), last=(221, 130.0), resumed=41.0)
    s.end(222)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        warm_up__FIRST_START=10,
        train__WORK=2 * (40 + 90),
        lost__NONZERO_EXIT=100,
        detect__NONZERO_EXIT=4,
        stop__NONZERO_EXIT=2 * (2 + 1),
        back_off__NONZERO_EXIT=12,
        relaunch__NONZERO_EXIT=2,
        warm_up__NONZERO_EXIT=20,
        wind_down__FINISHED=3,
    )


def resume_from_an_older_save() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(115, 100.0), saved=[(45, 30.0), (75, 60.0)])
    s.restart(115, EndReason.RESTART_REQUESTED)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, first=(117, 30.0), last=(217, 130.0), resumed=30.0)
    s.end(217)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        train__WORK=2 * (30 + 100),
        lost__OLDER_SAVE=60,
        lost__RESTART_REQUESTED=80,
        stop__RESTART_REQUESTED=2,
        relaunch__RESTART_REQUESTED=2,
        wind_down__FINISHED=3,
    )


def steps_without_saves_count_from_the_resumed_step() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(115, 100.0))
    s.restart(115, EndReason.SIGNALED)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, first=(117, 25.0), last=(217, 125.0))
    s.end(217)
    found = s.sums()
    check(found["train", "WORK"] == 8 * 125 and found["lost", "SIGNALED"] == 8 * 75, "level B", str(found))


def unknown_when_the_next_generation_reports_no_step() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, began=15, moved=115)
    s.restart(115, EndReason.SIGNALED)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, began=117, moved=217)
    s.end(217)
    found = s.sums()
    check(found["ran", "WORK"] == 8 * 100 and found["train", "WORK"] == 8 * 100, "level C", str(found))


def hang_is_noticed_diagnosed_and_relaunched() -> None:
    s = Story()
    s.run()
    hang: dict[str, Any] = {"rule": Rule.STUCK_RANK, "sentence": "", "suspects": (), "hosts": ()}
    s.of_job(145, ev.HangNoticed, generation=1, since=s.wall(115), **hang)
    s.of_job(147, ev.HangDiagnosed, stacks="", since=s.wall(113))
    s.of_job(150, ev.HangJudged, outcome=HangOutcome.RESTARTED)
    s.progress(150, 15, first=(25, 0.0), last=(113, 88.0), saved=[(65, 40.0)])
    s.restart(150, EndReason.HANG, 113, hang_restarts=1, diagnose_s=5.0)
    s.launch(152)
    s.start(153)
    s.progress(253, 153, first=(163, 40.0), last=(253, 130.0), resumed=40.0)
    s.end(253)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        warm_up__FIRST_START=20,
        train__WORK=2 * (40 + 90),
        lost__HANG=96,
        detect__HANG=64,
        diagnose__HANG=10,
        stop__HANG=4,
        relaunch__HANG=2,
        warm_up__HANG=20,
        wind_down__FINISHED=3,
    )


def hang_that_ends_by_itself_is_a_stall() -> None:
    s = Story()
    s.run()
    hang: dict[str, Any] = {"rule": Rule.STUCK_RANK, "sentence": "", "suspects": (), "hosts": ()}
    s.of_job(145, ev.HangNoticed, generation=1, since=s.wall(115), **hang)
    s.of_job(147, ev.HangDiagnosed, stacks="", since=s.wall(110))
    s.of_job(150, ev.HangJudged, outcome=HangOutcome.WOULD_RESTART)
    s.of_job(160, ev.HangOver, note="")
    s.progress(215, 15, first=(25, 0.0), last=(214, 88.0))
    s.end(215)
    found = s.sums()
    check(found["stall", "HANG"] == 8 * 50, "stall", str(found))
    check(found["train", "WORK"] == 8 * (85 + 55), "train around it", str(found))
    check(("detect", "HANG") not in found, "nothing else is left of it", str(found))


def cause_is_renamed() -> None:
    s = Story()
    s.run()
    s.restart(115, EndReason.NONZERO_EXIT, 110)
    found = {"end_reason": EndReason.OUT_OF_MEMORY, "related": Related(), "failed_at": s.wall(110)}
    s.of_job(117, ev.CauseFound, generation=2, **found)
    s.launch(118)
    s.start(119)
    s.end(219)
    sums = s.sums()
    check(sums["detect", "OUT_OF_MEMORY"] == 40 and sums["relaunch", "OUT_OF_MEMORY"] == 8, "renamed", str(sums))
    check(not any(cause == "NONZERO_EXIT" for _, cause in sums), "no other cause is left", str(sums))


def failure_loses_what_was_not_saved() -> None:
    s = Story()
    s.run()
    s.exit(115, ExitReason.OUT_OF_MEMORY, 113)
    s.progress(115, 15, first=(15, 0.0), last=(113, 98.0), saved=[(65, 50.0)])
    s.end(115, JobState.FAILED)
    found = s.sums()
    check(found["lost", "OUT_OF_MEMORY"] == 8 * 48, "lost", str(found))
    check(found["detect", "OUT_OF_MEMORY"] == 8 * 2, "detect", str(found))
    check(found["train", "WORK"] == 8 * 50, "kept", str(found))


def cancelled_without_saves_is_unknown() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(113, 98.0))
    s.of_job(115, ev.CancelRequested, by="ann")
    s.end(115, JobState.CANCELLED)
    found = s.sums()
    check(found["ran", "WORK"] == 8 * 100 and ("lost", "CANCELLED") not in found, "unknown", str(found))


def moved_with_one_share_kept() -> None:
    s = Story()
    s.run()
    moved: dict[str, Any] = {"leaving": Leaving.RETRY, "end_reason": EndReason.DRAINED, "keep": (1,)}
    s.of_job(115, ev.AttemptEnded, recover=Recover.WORKER_RESCHEDULE, failed_at=s.wall(115), **moved)
    s.of_job(117, ev.WorkerEmptied, worker="workerpool0-1")
    s.of_job(119, ev.WorkerEmptied, worker="workerpool0-0")
    s.place(130, "h3", "h2")
    s.launch(131)
    s.start(132)
    s.end(232)
    found = s.sums()
    check(found["held", "DRAINED"] == 4 * 13, "held", str(found))
    check(found["stop", "DRAINED"] == 4 * (4 + 2), "stop", str(found))
    check(found["prepare", "DRAINED"] == 8, "prepare", str(found))
    check(found["ran", "WORK"] == 8 * 200, "ran", str(found))
    check(s.oracle.booked["h3"] == 4 * (103 * 1000), "h3", str(s.oracle.booked))


def pause_and_resume() -> None:
    s = Story()
    s.run()
    s.of_job(110, ev.PauseRequested, by="ann", due=s.wall(115))
    s.of_job(115, ev.AttemptEnded, leaving=Leaving.PAUSE, end_reason=EndReason.PAUSED)
    for worker in (0, 1):
        s.of_job(116, ev.WorkerEmptied, worker=f"workerpool0-{worker}")
    s.of_job(116, ev.JobPaused)
    s.of_job(1000, ev.JobResumed, by="ann")
    s.run(1010, 1012, 1013)
    s.end(1113)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        ran__WORK=2 * (95 + 100),
        wind_down__PAUSED=2 * 6,
        prepare__PAUSED=4,
        relaunch__PAUSED=2,
        wind_down__FINISHED=3,
    )


def fenced_share_is_its_hosts() -> None:
    s = Story()
    s.run()
    s.of_job(
        115, ev.AttemptEnded, leaving=Leaving.RETRY, end_reason=EndReason.LOST_HOST, recover=Recover.JOB_RESCHEDULE
    )
    s.of_job(118, ev.WorkerFenced, worker="workerpool0-0")
    s.of_job(119, ev.WorkerEmptied, worker="workerpool0-1")
    s.place(130, "h2", "h3")
    s.take(150, ev.HostPlaceFreed, host="h1", place="a/0")
    s.launch(151)
    s.start(152)
    s.end(252)
    found = s.sums()
    check(found["stop", "LOST_HOST"] == 4 * (3 + 4), "stop", str(found))
    check(s.oracle.categories["quarantine"] == 4 * 32_000, "quarantine", str(s.oracle.categories))


def fenced_share_is_taken_again_by_its_worker() -> None:
    s = Story()
    s.run()
    lost = {"leaving": Leaving.RETRY, "end_reason": EndReason.LOST_HOST, "recover": Recover.JOB_RESCHEDULE}
    s.of_job(115, ev.AttemptEnded, **lost)
    s.of_job(118, ev.WorkerFenced, worker="workerpool0-0")
    s.of_job(119, ev.WorkerEmptied, worker="workerpool0-1")
    s.run(130, 131, 132)  # where it was: the host is back, and has not yet said that the old one is gone
    s.end(232)
    check(s.oracle.categories["quarantine"] == 4 * 12_000, "quarantine", str(s.oracle.categories))
    check(s.sums()["ran", "WORK"] == 8 * 200, "ran", str(s.sums()))


def one_worker_alone() -> None:
    s = Story()
    s.run()
    s.restart(115, EndReason.NONZERO_EXIT, 114, worker=1, not_before=125)
    s.exit(117, ExitReason.STOPPED, worker=1)
    s.of_job(126, ev.WorkerLaunched, worker="workerpool0-1", generation=2)
    s.of_job(128, ev.WorkerStarted, worker="workerpool0-1", generation=2, started=Started(1, (2,)))
    s.end(228)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        ran__WORK=213 + 99 + 100,
        detect__NONZERO_EXIT=1,
        stop__NONZERO_EXIT=3,
        back_off__NONZERO_EXIT=8,
        relaunch__NONZERO_EXIT=2,
        wind_down__FINISHED=3,
    )


def restart_in_fractions_of_seconds() -> None:
    s = Story(start_s=3600.4567)
    s.run(10.1234, 14.9876, 15.3333)
    s.restart(115.7777, EndReason.HANG, 100.25, diagnose_s=5.5, not_before=200.0)
    s.exit(116.1, ExitReason.STOPPED)
    s.launch(117.001)
    s.start(118.0009)
    s.end(218.123)
    found = s.sums()
    check(found["diagnose", "HANG"] == 8 * 5.5, "diagnose", str(found))
    check(abs(found["detect", "HANG"] - 8 * 10.0277) < 0.1, "detect", str(found))
    check(abs(found["back_off", "HANG"] - 8 * 0.901) < 0.1, "back-off until the launch", str(found))


def clock_is_set_back() -> None:
    s = Story()
    s.run()
    s.restart(-4000, EndReason.NONZERO_EXIT, -5000)
    s.launch(-3900)
    s.start(-3899)
    s.restart(100, EndReason.SIGNALED, 1e6)
    s.launch(101)
    s.start(102)
    s.end(202)
    found = s.sums()
    check(found["ran", "WORK"] == 8 * (85 + 100), "ran", str(found))
    check(all(s > 0 for s in found.values()), "no negative sums", str(found))


def days_are_cut_at_midnight() -> None:
    s = Story(start_s=86_400 - 60)
    s.run()
    s.end(115)
    days = {key.split("|")[0] for key in s.oracle.statements["a"].ledger.sums}
    first = int(EPOCH_S) // 86_400
    check(days == {str(first), str(first + 1)}, "days", str(days))
    before = sum(ms for key, ms in s.oracle.statements["a"].ledger.sums.items() if key.startswith(str(first)))
    check(before == 8 * 50_000, "before midnight", str(before))


def ranks_without_gpus() -> None:
    s = Story(gpus=0, processes=3)
    s.run()
    s.end(115)
    found = s.sums()
    check(found["ran", "WORK"] == 6 * 100, "rank-seconds", str(found))
    check(s.oracle.statements["a"].ranks, "said to be ranks", "")


def restored_from_a_backup() -> None:
    s = Story()
    s.run()
    s.take(300, ev.ClusterRestored, sequence=10_000, taken_at=s.wall(100))
    s.of_job(310, ev.JobCleared, reason="")
    s.end(410)
    found = s.sums()
    check(found["unseen", "CONTROLLER_RESTORED"] == 8 * 210, "unseen", str(found))
    check(found["ran", "WORK"] == 8 * (85 + 100), "ran", str(found))


def many_restarts_stay_bounded() -> None:
    s = Story(snapshot_every=100)
    s.run()
    at = 20
    for _ in range(300):
        s.progress(at + 5, at - 5, first=(at, 1.0), last=(at + 5, 5.0), saved=[(at + 2, 3.0)])
        s.restart(at + 5, EndReason.SIGNALED)
        s.launch(at + 6)
        s.start(at + 7)
        at += 10
        ledger = s.oracle.cluster.jobs["a"].ledger
        assert ledger is not None
        check(sum(len(tape.spans) for tape in ledger.live) < 40, "bounded", f"{len(ledger.live[0].spans)} spans")
    s.end(at)


def wrong_progress_moves_no_sums() -> None:
    s = Story()
    s.run()
    wild = [(1e7, 2e7, Category.SAVE), (-5e6, 16, Category.EVALUATE), (90, 80, Category.PAUSE)]
    s.progress(115, -1e6, first=(1e6, 50.0), last=(-1e6, 3.0), saved=[(1e8, 99.0)], apart=wild)
    s.restart(115, EndReason.SIGNALED, 1e9)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, first=(-50, 7.0), last=(300, 1e300), resumed=1e200)
    s.end(217)


def late_failure_times_do_not_reach_behind_progress() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(105, 90.0), saved=[(105, 90.0)])
    s.restart(115, EndReason.SIGNALED, -7000)
    s.launch(116)
    s.start(117)
    s.end(217)
    found = s.sums()
    check(found["detect", "SIGNALED"] == 8 * 10, "only since its last step", str(found))


def upgrade_begins_the_ledger() -> None:
    """A job that was running when the ledger began has an incomplete one, from its newest event on."""
    from holdfast_controller.core.fold.allocation import recount

    s = Story()
    s.run()
    job = s.oracle.cluster.jobs["a"]
    job.ledger = None
    recount(s.oracle.cluster)
    check(job.ledger is not None, "begun", "")
    assert job.ledger is not None
    check(not job.ledger.complete and job.ledger.since == s.ms(15), "since", str(job.ledger))
    check(job.ledger.live[0].spans[0].category is Category.RAN, "ran", str(job.ledger.live))


STORIES: dict[str, Callable[[], None]] = {
    story.__name__: story
    for story in (
        success_with_saves,
        nothing_reported_is_not_productive,
        crash_and_resume,
        resume_from_an_older_save,
        steps_without_saves_count_from_the_resumed_step,
        unknown_when_the_next_generation_reports_no_step,
        hang_is_noticed_diagnosed_and_relaunched,
        hang_that_ends_by_itself_is_a_stall,
        cause_is_renamed,
        failure_loses_what_was_not_saved,
        cancelled_without_saves_is_unknown,
        moved_with_one_share_kept,
        pause_and_resume,
        fenced_share_is_its_hosts,
        fenced_share_is_taken_again_by_its_worker,
        one_worker_alone,
        restart_in_fractions_of_seconds,
        clock_is_set_back,
        days_are_cut_at_midnight,
        ranks_without_gpus,
        restored_from_a_backup,
        many_restarts_stay_bounded,
        wrong_progress_moves_no_sums,
        late_failure_times_do_not_reach_behind_progress,
        upgrade_begins_the_ledger,
    )
}
