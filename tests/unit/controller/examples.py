"""One of each: a job, and every event that can happen.

Longer than 400 lines because it is one list.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast._base.health import Health
from holdfast._base.identity import Kind
from holdfast._base.xids import Repair
from holdfast._session.reports import Exit, ExitReason
from holdfast.hang.judge.finding import Rule
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.goodput import Category, Interval, Progress, Reached
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.hosts.host import (
    CheckStatus,
    Gpu,
    GpuFault,
    Host,
    Inventory,
    Maintenance,
    Place,
    Waiver,
)
from holdfast_controller.core.model.injection import Fault
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import Budget, EndReason, RankName, Recover, of_rank
from holdfast_controller.core.model.runtime import Started
from holdfast_controller.core.model.subscription import Notice
from holdfast_controller.core.model.underuse import UnderuseAction

GIB = 1 << 30
TASK = Task(("python", "train.py"), ("--lr", "3"), (("A", "1"), ("B", "$(A)")), "/data")
GANG = Gang((Pool(1, TASK, processes=2, gpus=2), Pool(2, TASK, cpus=4, memory_mb=100)))
EXIT = Exit(1, 1, 0, ExitReason.SIGNALED, None, 11, True, "killed by signal 11", 5.5, ("Segmentation fault",))
XID_79 = GpuFault("Xid 79 (fallen off the bus)", Repair.REBOOT, Wall(0.4))
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
        job_id="a", at=Wall(14.0), notice=Notice.CANCELLED, to="ops", reason="it answered with HTTP status 500"
    ),
    ev.JobDeleted(job_id="a", at=Wall(15.0), by="ann", with_output=True),
    ev.OutputDeleted(job_id="a", at=Wall(16.0), host="h1"),
]
HOST_EVENTS: list[ev.HostEvent] = [
    ev.HostJoined(
        host="h1", at=Wall(0.1), address="10.0.0.1", boot_id="boot", agent_version="0.1", inventory=INVENTORY
    ),
    ev.HostJoined(
        host="h2", at=Wall(0.2), address="10.0.0.2", boot_id="boot", agent_version="0.1", inventory=INVENTORY
    ),
    ev.HostCordoned(host="h1", at=Wall(0.3), reason="disk", by="ann"),
    ev.HostUncordoned(host="h1", at=Wall(0.4), by="ann"),
    ev.GpuCondemned(host="h1", at=Wall(0.41), gpu="GPU-1", index=0, fault=XID_79),
    ev.GpuCleared(
        host="h1",
        at=Wall(0.42),
        gpu="GPU-1",
        index=0,
        causes=(XID_79.cause,),
        by="ann",
        why="put back into service",
    ),
    ev.HostLost(host="h2", at=Wall(0.5), silent_s=75.2),
    ev.HostReturned(host="h2", at=Wall(0.6), silent_since=Wall(-74.7)),
    ev.HostShutdownBegan(host="h2", at=Wall(0.6)),
    ev.AgentStopped(host="h2", at=Wall(0.61)),
    ev.HostCheckFailed(
        host="h2",
        at=Wall(0.62),
        check="disk.state_dir",
        status=CheckStatus.ERROR,
        saw="/var/lib/holdfast has 3 MiB free of the 1024 MiB that it must have",
        why="No worker starts here.",
        fix=("du -xh --max-depth=2 /var/lib/holdfast",),
        keeps_work_away=True,
    ),
    ev.HostCheckPassed(host="h2", at=Wall(0.63), check="disk.state_dir"),
    ev.HostCheckFailed(
        host="h2",
        at=Wall(0.64),
        check="gpu.nvlink/GPU-1",
        status=CheckStatus.WARNING,
        saw="GPU 1: 17 of 18 NVLinks are up",
        health=Health.CORDON,
        waived=Waiver.BRAKE,
    ),
    ev.HostCheckPassed(host="h2", at=Wall(0.65), check="gpu.nvlink/GPU-1", health=Health.CORDON),
    ev.HostDraining(host="h2", at=Wall(0.7), reason="upgrade", by="ann", deadline=Wall(600.0), at_checkpoint=True),
    ev.HostDrained(host="h2", at=Wall(0.72)),
    ev.HostUncordoned(host="h2", at=Wall(0.75), by="ann"),
    ev.HostFenced(host="h2", at=Wall(0.8), reason="no power", by="ann"),
    ev.HostPlaceFreed(host="h2", at=Wall(0.9), place="b/0"),
    ev.HostRefused(
        host="h2", at=Wall(0.95), agent_version="0.0", problem="The agent of h2 is too old. Upgrade it."
    ),
    ev.HostThrottled(host="h2", at=Wall(0.96), kind="inventory", per_hour_bytes=4 << 20),
    ev.HostJoined(
        host="h3", at=Wall(0.91), address="10.0.0.3", boot_id="boot", agent_version="0.1", inventory=INVENTORY
    ),
    ev.HostRemoved(host="h3", at=Wall(0.92), by="ann"),
    ev.MaintenancePlanned(
        host="h2", at=Wall(0.93), maintenance=Maintenance(Wall(60.0), Wall(3660.0), "new disk", "ann", True, 600.0)
    ),
    ev.MaintenanceBegan(host="h2", at=Wall(60.0)),
    ev.MaintenanceEnded(host="h2", at=Wall(3660.0), by="holdfast", why="GPU 3: fell off the bus"),
]
PEOPLE_EVENTS: list[ev.PeopleEvent] = [
    ev.RoleGranted(at=Wall(0.93), user="bob", project="*", role=Role.VIEWER, by="ann"),
    ev.RoleGranted(at=Wall(0.94), user="bob", project="vision", role=Role.ADMIN, by="ann"),
    ev.RoleTaken(at=Wall(0.95), user="bob", project="vision", by="ann"),
    ev.AccountsMapped(at=Wall(0.955), user="bob", accounts=("bob", "vision"), by="ann"),
    ev.AccountsMapped(at=Wall(0.956), user="bob", accounts=(), by="ann"),
    ev.AccountsMapped(at=Wall(0.957), user="bob", accounts=("bob",), by="ann"),
    ev.TokenMade(at=Wall(0.96), digest="d1", kind=Kind.HOST, name="", expires_at=Wall(1800.96), by="ann"),
    ev.TokenUsed(at=Wall(0.97), digest="d1", kind=Kind.HOST, name="h4", key="k1"),
    ev.TokenMade(at=Wall(0.98), digest="d2", kind=Kind.USER, name="bob", expires_at=Wall(1800.98), by="ann"),
    ev.SecretSet(at=Wall(0.985), holder="user/bob", name="wandb", by="bob"),
    ev.SecretSet(at=Wall(0.986), holder="project/vision", name="wandb", by="ann"),
    ev.SecretRemoved(at=Wall(0.987), holder="user/bob", name="wandb", by="bob"),
    ev.UserRemoved(at=Wall(0.99), user="bob", by="ann"),
    ev.SignInAllowed(at=Wall(0.9905), user="bob", by="ann"),
    ev.UserSignedIn(
        at=Wall(0.991),
        user="bob",
        issuer="https://id.lab",
        subject="248289761001",
        until=Wall(43_200.0),
        roles={"vision": Role.USER},
    ),
    ev.SignInEnded(at=Wall(0.9915), user="bob"),
    ev.MotdSet(at=Wall(0.992), text="no work on Friday", by="ann"),
]
SHARE_EVENTS: list[ev.ClusterEvent] = [
    ev.ShareSet(at=Wall(0.993), project="vision", weight=2.0, by="ann"),
    ev.ShareSet(at=Wall(0.994), project="speech", weight=0.5, by="ann"),
    ev.ShareSet(at=Wall(0.995), project="speech", weight=None, by="ann"),
    ev.HalfLifeSet(at=Wall(0.996), half_life_s=86_400.0),
]
CLUSTER_EVENT = ev.CommonCauseNoticed(
    at=Wall(30.0), sentence="2 hosts wait for storage at /data", jobs=("a", "b"), mount="/data", hosts=("h1", "h2")
)
RESTORED: list[ev.Event] = [
    ev.JobSubmitted(
        job_id="r",
        at=Wall(40.0),
        owner="ann",
        request_id="",
        display_name="r",
        labels={},
        gang=Gang((Pool(1, Task(("train",))),)),
        spec_json="{}",
    ),
    ev.JobSubmitted(
        job_id="s",
        at=Wall(40.0),
        owner="ann",
        request_id="",
        display_name="s",
        labels={},
        gang=Gang((Pool(1, Task(("train",))),)),
        spec_json="{}",
    ),
    ev.ClusterRestored(
        at=Wall(41.0), sequence=len(HOST_EVENTS) + len(PEOPLE_EVENTS) + len(JOB_EVENTS) + 4, taken_at=Wall(30.0)
    ),
    ev.JobFound(
        job_id="r",
        at=Wall(42.0),
        attempt=1,
        generations=(2,),
        places=(Place("h1"),),
        started=(Started(900, (1001,)),),
    ),
    ev.JobUnsure(job_id="s", at=Wall(43.0), generation=1000, reason="no host knows of it"),
    ev.OrphanFound(host="h1", at=Wall(43.0), job="u", worker="workerpool0-0", generation=1, gpus=("u0",)),
    ev.OrphanExited(
        host="h1", at=Wall(44.0), job="u", worker="workerpool0-0", exit=Exit(1, 1, 0, ExitReason.COMPLETED, 0)
    ),
    ev.OrphanStopRequested(host="h1", at=Wall(45.0), job="u", by="ann"),
    ev.OrphanGone(host="h1", at=Wall(46.0), job="u", worker="workerpool0-0"),
    ev.JobCleared(job_id="s", at=Wall(47.0), reason="nothing is left of what it ran before the restore"),
    ev.MaintenanceAhead(job_id="r", at=Wall(48.0), host="h1", start=Wall(60.0), reason="new disk"),
    ev.UnderuseNoticed(
        job_id="r",
        at=Wall(48.0),
        generation=1,
        idle=5,
        gpus=8,
        since=Wall(20.0),
        action=UnderuseAction.NOTIFY,
        before_s=9.0,
    ),
    ev.UnderuseOver(job_id="r", at=Wall(48.0), generation=1),
    ev.ReconciliationEnded(at=Wall(48.0)),
    ev.CertificateEnding(at=Wall(49.0), certificate="ca", ends_at=Wall(86_449.0)),
    ev.MostHostsSilent(at=Wall(50.0), silent=7, hosts=8),
    ev.ControllerCheckFailed(
        at=Wall(51.0), check="disk.state_dir", status=CheckStatus.WARNING, saw="/var/lib/holdfast has 2 GiB free"
    ),
    ev.ControllerCheckPassed(at=Wall(52.0), check="disk.state_dir"),
]
DELETED: list[ev.JobEvent] = [
    ev.JobSubmitted(
        job_id="z",
        at=Wall(68.0),
        owner="ann",
        request_id="",
        display_name="z",
        labels={},
        gang=Gang((Pool(1, Task(("train",))),)),
        spec_json="{}",
    ),
    ev.JobEnding(job_id="z", at=Wall(68.1), outcome=JobState.CANCELLED, error=None),
    ev.JobEnded(job_id="z", at=Wall(68.2), state=JobState.CANCELLED, error=None),
    ev.JobDeleted(job_id="z", at=Wall(68.3), by="holdfast", with_output=True, why="it ended more than 90 days ago"),
    ev.JobPurged(job_id="z", at=Wall(68.3)),
]
EVENTS: list[ev.Event] = [
    *HOST_EVENTS,
    *PEOPLE_EVENTS,
    *JOB_EVENTS,
    CLUSTER_EVENT,
    *RESTORED,
    *DELETED,
    *SHARE_EVENTS,
]


def host(
    name: str, *, gpus: int = 0, model: str = "NVIDIA H100", cpus: int = 16, memory: int = 64, slots: int = 64
) -> Host:
    found = tuple(Gpu(f"{name}-{i}", i, model, 80 * GIB) for i in range(gpus))
    return Host(name, name, "boot", "1", Inventory(cpus, memory * GIB, found, slots))


def job(gang: Gang = GANG) -> Job:
    return Job("a", "ann", "", "a", {}, gang, "{}", Wall(0.0), generation=1)
