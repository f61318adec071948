"""One example of every event of jobs."""

from __future__ import annotations

from dataclasses import replace

from holdfast._base.job_file.choices import NotificationEvent
from holdfast._base.job_file.label_match import read_match
from holdfast._session.reports import Exit, ExitReason
from holdfast.hang.judge.finding import Rule
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Task
from holdfast_controller.core.model.goodput import Category, Interval, Progress, Reached
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.hosts.host import (
    Gpu,
    Inventory,
    Place,
)
from holdfast_controller.core.model.injection import Fault
from holdfast_controller.core.model.job import Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import Budget, EndReason, RankName, Recover, of_rank
from holdfast_controller.core.model.runtime import Started

GIB = 1 << 30
TASK = Task(("python", "train.py"), ("--lr", "3"), (("A", "1"), ("B", "$(A)")), "/data")
SELECTOR = HostSelector(frozenset({"h1", "h2"}), match=read_match("gpu in (a,b),!old"))
GANG = Gang((Pool(1, TASK, processes=2, gpus=2), Pool(2, TASK, cpus=4, memory_mb=100, selector=SELECTOR)))
EXIT = Exit(1, 1, 0, ExitReason.SIGNALED, None, 11, True, "killed by signal 11", 5.5, ("Segmentation fault",))
INVENTORY = Inventory(8, 64 * GIB, (Gpu("GPU-1", 0, "NVIDIA H100 80GB HBM3", 80 * GIB, "fell off the bus"),))
JOB_EVENTS: list[ev.JobEvent] = [
    ev.JobSubmitted(
        job_id="a",
        at=Wall(1.0),
        owner="ann",
        request_id="r-1",
        display_name="train",
        labels={"team": "vision"},
        gang=replace(GANG, after=(Dependency("b"),)),
        spec_json="{}",
        annotations={"note": "x"},
    ),
    ev.DependencyEnded(job_id="a", at=Wall(1.9), on="b", state=JobState.SUCCEEDED, met=True),
    ev.TurnCame(job_id="a", at=Wall(1.95)),
    ev.JobQueued(job_id="a", at=Wall(2.0), reason="needs 2 GPUs on one host"),
    ev.PlacementTried(
        job_id="a",
        at=Wall(2.5),
        number=1,
        reason="needs 2 GPUs on one host (0 free on the best)",
        not_before=Wall(12.5),
    ),
    ev.JobPlaced(
        job_id="a",
        at=Wall(3.0),
        attempt=1,
        generation=1,
        places=(Place("h1", ("GPU-1", "GPU-2")), Place("h1"), Place("h2")),
    ),
    ev.PreparationNoted(
        job_id="a", at=Wall(3.5), worker="workerpool0-0", host="h1", doing="installing requirements"
    ),
    ev.GangLaunched(
        job_id="a",
        at=Wall(4.0),
        generation=1,
        rendezvous=Rendezvous("10.0.0.1", 20001, "s", ("10.0.0.1",) * 3, (1, 2, 3)),
    ),
    ev.GangStarted(
        job_id="a",
        at=Wall(5.0),
        generation=1,
        started={0: Started(7, (8, 9)), 1: Started(10, (11,)), 2: Started(0, ())},
    ),
    ev.RankExited(job_id="a", at=Wall(6.0), worker="workerpool0-0", exit=EXIT),
    ev.ProgressRecorded(
        job_id="a",
        at=Wall(6.5),
        generation=1,
        progress=Progress(
            since=5000,
            until=6500,
            began=5200,
            moved=6400,
            first=Reached(5200, 1.0),
            last=Reached(6400, 7.0),
            resumed=0.0,
            saved=(Reached(6000, 5.0),),
            apart=(Interval(5900, 6000, Category.SAVE),),
        ),
    ),
    ev.LateExitFound(job_id="a", at=Wall(7.0), worker="workerpool0-0", exit=EXIT),
    ev.RestartDecided(
        job_id="a",
        at=Wall(8.0),
        generation=2,
        end_reason=EndReason.SIGNALED,
        related=of_rank("workerpool0-0", 0),
        stop_reason=ExitReason.STOPPED,
        failed_at=Wall(5.5),
        charged=0,
        port_retry=False,
    ),
    ev.CauseFound(
        job_id="a",
        at=Wall(8.5),
        generation=2,
        end_reason=EndReason.NONZERO_EXIT,
        related=of_rank("workerpool1-0", 2),
        failed_at=Wall(5.4),
        charged=1,
    ),
    ev.JobHeld(job_id="a", at=Wall(8.6), by="bob", until=Wall(9000.0)),
    ev.JobHeld(job_id="a", at=Wall(8.7), by="ann", until=None),
    ev.FaultInjected(
        job_id="a",
        at=Wall(8.71),
        by="ann",
        generation=2,
        worker="workerpool0-0",
        rank=0,
        fault=Fault.SLOW,
        until=Wall(38.71),
        speed=20,
    ),
    ev.FaultNotInjected(
        job_id="a", at=Wall(8.72), generation=2, worker="workerpool0-0", rank=0, why="nothing of the job runs there"
    ),
    ev.HangNoticed(
        job_id="a",
        at=Wall(8.75),
        generation=2,
        since=Wall(8.6),
        rule=Rule.GPUS_IDLE,
        sentence="no rank has moved for 31 s",
        suspects=(),
        hosts=(),
        step=700.0,
        acts_at=Wall(38.75),
    ),
    ev.HangDiagnosed(
        job_id="a",
        at=Wall(8.76),
        stacks="workerpool1-0 rank 2 is in x.py:1 `get`",
        suspects=(RankName("workerpool1-0", 2),),
        hosts=("h1",),
    ),
    ev.HangJudged(
        job_id="a",
        at=Wall(8.77),
        outcome=HangOutcome.SUPPRESSED,
        note="the job is held for 12 s more",
        suspects=(RankName("workerpool1-0", 2),),
        hosts=("h1",),
    ),
    ev.HangJudged(
        job_id="a",
        at=Wall(8.78),
        outcome=HangOutcome.WOULD_RESTART,
        rule=Rule.EXTERNAL_WAIT,
        sentence="no rank of 4 has moved for 600 s; workerpool1-0 rank 2 waits for a file (/data/x)",
        since=Wall(8.65),
    ),
    ev.HangOver(job_id="a", at=Wall(8.8), note="last progress 0 s ago"),
    ev.HangNoticed(
        job_id="a",
        at=Wall(8.81),
        generation=2,
        since=Wall(8.6),
        rule=Rule.GPUS_SPIN,
        sentence="3 GPUs spin",
        suspects=(RankName("workerpool1-0", 2),),
        hosts=("h1",),
    ),
    ev.HangDiagnosed(job_id="a", at=Wall(8.82), stacks=""),
    ev.HangJudged(job_id="a", at=Wall(8.83), outcome=HangOutcome.RESTARTED, note="h1 was suspect in hang 1 too"),
    ev.RestartDecided(
        job_id="a",
        at=Wall(8.84),
        generation=3,
        end_reason=EndReason.HANG,
        related=of_rank("workerpool1-0", 2),
        stop_reason=ExitReason.HANG_KILLED,
        failed_at=Wall(8.6),
        hang_restarts=1,
        hang_step=700.0,
        detect_s=0.21,
        diagnose_s=0.03,
    ),
    ev.HangStuck(job_id="a", at=Wall(8.85), worker="workerpool0-0", host="h1", why="pid 8 outlives KILL (state D)"),
    ev.HangNoticed(
        job_id="a",
        at=Wall(8.9),
        generation=3,
        since=Wall(8.85),
        rule=Rule.SILENCE,
        sentence="nothing new was printed for 31 min",
        suspects=(),
        hosts=(),
    ),
    ev.HangJudged(job_id="a", at=Wall(8.91), outcome=HangOutcome.BUDGET_SPENT),
    ev.RestartDecided(
        job_id="a",
        at=Wall(8.95),
        generation=4,
        end_reason=EndReason.NONZERO_EXIT,
        related=of_rank("workerpool1-0", 2),
        stop_reason=ExitReason.STOPPED,
        failed_at=Wall(8.9),
        charged=1,
        worker=1,
    ),
    ev.WorkerLaunched(job_id="a", at=Wall(8.96), worker="workerpool1-0", generation=4),
    ev.WorkerStarted(job_id="a", at=Wall(8.97), worker="workerpool1-0", generation=4, started=Started(7, (8,))),
    ev.WorldApart(job_id="a", at=Wall(8.97), generation=4, worker="workerpool0-0", processes=8),
    ev.CaughtUp(job_id="a", at=Wall(8.98), generation=4, step=701.0),
    ev.PrimaryCompleted(job_id="a", at=Wall(9.0)),
    ev.AttemptEnded(
        job_id="a",
        at=Wall(9.1),
        leaving=Leaving.RETRY,
        end_reason=EndReason.SIGNALED,
        related=of_rank("workerpool1-0", 2),
        failed_at=Wall(9.0),
        recover=Recover.WORKER_RESCHEDULE,
        budget=Budget.TRANSIENT,
        keep=(0, 1),
        avoid=("h2",),
        failure=ev.Failure(key="TRANSIENT 139", budget=Budget.TRANSIENT, host="h2", progressed=True, step=7.0),
        not_before=Wall(9.3),
    ),
    ev.WorkerEmptied(job_id="a", at=Wall(9.2), worker="workerpool0-0"),
    ev.WorkerEmptied(job_id="a", at=Wall(9.2), worker="workerpool1-0"),
    ev.WorkerFenced(job_id="a", at=Wall(9.2), worker="workerpool1-1"),
    ev.JobWarned(job_id="a", at=Wall(9.35), generation=3, signal=10, until=Wall(39.35), why="the drain of h1"),
    ev.PauseRequested(job_id="a", at=Wall(9.4), by="bob", due=Wall(12.4)),
    ev.JobPaused(job_id="a", at=Wall(9.5)),
    ev.JobResumed(job_id="a", at=Wall(9.6), by="ann"),
    ev.JobPlaced(
        job_id="a",
        at=Wall(9.7),
        attempt=2,
        generation=5,
        places=(Place("h1", ("GPU-1", "GPU-2")), Place("h1"), Place("h1")),
    ),
    ev.JobSparesChanged(job_id="a", at=Wall(9.8), spares=(Place("h2", ("GPU-3",)),)),
    ev.CancelRequested(job_id="a", at=Wall(10.0), by="bob"),
    ev.JobEnding(
        job_id="a", at=Wall(11.0), outcome=JobState.CANCELLED, error=JobError(1, "cancelled", ("x",), 139)
    ),
    ev.WorkerEmptied(job_id="a", at=Wall(12.0), worker="workerpool0-0"),
    ev.OutputArchived(
        job_id="a", at=Wall(12.5), worker="workerpool0-0", problem="/out: Permission denied; tried again"
    ),
    ev.OutputArchived(job_id="a", at=Wall(12.6), worker="workerpool0-0", problem=""),
    ev.OutputArchived(
        job_id="a", at=Wall(12.7), worker="workerpool1-0", problem="/out: Read-only file system; given up"
    ),
    ev.JobEnded(job_id="a", at=Wall(13.0), state=JobState.CANCELLED, error=JobError(3, "rank 1")),
    ev.NotificationGivenUp(
        job_id="a",
        at=Wall(14.0),
        notice=NotificationEvent.CANCELLED,
        to="ops",
        reason="it answered with HTTP status 500",
    ),
    ev.JobDeleted(job_id="a", at=Wall(15.0), by="ann", with_output=True),
    ev.OutputDeleted(job_id="a", at=Wall(16.0), host="h1"),
]
