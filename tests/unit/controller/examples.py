"""One of each: a job, and every event that can happen."""

from __future__ import annotations

from holdfast._base.identity import Kind
from holdfast_controller.core.events import job as ev
from holdfast_controller.core.model.exits import Exit, ExitReason, JobError
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.host import Gpu, Host, Inventory, Maintenance
from holdfast_controller.core.model.job import Job, Leaving, Place, Rendezvous, Started
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.users import Role

GIB = 1 << 30
TASK = Task(("python", "train.py"), ("--lr", "3"), (("A", "1"), ("B", "$(A)")), "/data")
GANG = Gang((Pool(1, TASK, processes=2, gpus=2), Pool(2, TASK, cpus=4, memory_mb=100)))
EXIT = Exit(1, 1, 0, ExitReason.SIGNALED, None, 11, True, "killed by signal 11", 5.5, ("Segmentation fault",))
INVENTORY = Inventory(8, 64 * GIB, (Gpu("GPU-1", 0, "NVIDIA H100 80GB HBM3", 80 * GIB, "fell off the bus"),))

JOB_EVENTS: list[ev.JobEvent] = [
    ev.JobSubmitted("a", 1.0, "ann", "r-1", "train", {"team": "vision"}, GANG, "{}", {"note": "x"}),
    ev.JobQueued("a", 2.0, "needs 2 GPUs on one host"),
    ev.PlacementTried("a", 2.5, 1, "needs 2 GPUs on one host (0 free on the best)", 12.5),
    ev.JobPlaced("a", 3.0, 1, 1, (Place("h1", ("GPU-1", "GPU-2")), Place("h1"), Place("h2"))),
    ev.PreparationNoted("a", 3.5, "workerpool0-0", "h1", "installing requirements"),
    ev.GangLaunched("a", 4.0, 1, Rendezvous("10.0.0.1", 20001, "s", ("10.0.0.1",) * 3, (1, 2, 3))),
    ev.GangStarted("a", 5.0, 1, {0: Started(7, (8, 9)), 1: Started(10, (11,)), 2: Started(0, ())}),
    ev.RankExited("a", 6.0, "workerpool0-0", EXIT),
    ev.LateExitFound("a", 7.0, "workerpool0-0", EXIT),
    ev.RestartDecided(
        "a", 8.0, 2, "SIGNALED", "workerpool0-0 rank 0", ExitReason.STOPPED, 5.5, charged=0, port_retry=False
    ),
    ev.CauseFound("a", 8.5, 2, "NONZERO_EXIT", "workerpool1-0 rank 2", 5.4, 1),
    ev.JobHeld("a", 8.6, "bob", 9000.0),
    ev.JobHeld("a", 8.7, "ann", None),
    ev.HangNoticed("a", 8.75, 2, 8.6, "R3", "no rank has moved for 31 s", (), (), 700.0),
    ev.HangDiagnosed("a", 8.76, "workerpool1-0 rank 2 is in x.py:1 `get`", ("workerpool1-0 rank 2",), ("h1",)),
    ev.HangJudged("a", 8.77, "WITHHELD", "the job is held for 12 s more", ("workerpool1-0 rank 2",), ("h1",)),
    ev.HangJudged("a", 8.78, "WOULD_RESTART"),
    ev.HangOver("a", 8.8, "last progress 0 s ago"),
    ev.HangNoticed("a", 8.81, 2, 8.6, "R2", "3 GPUs spin", ("workerpool1-0 rank 2",), ("h1",)),
    ev.HangDiagnosed("a", 8.82, ""),
    ev.HangJudged("a", 8.83, "RESTARTED", "h1 was suspect in hang 1 too"),
    ev.RestartDecided(
        "a",
        8.84,
        3,
        "HANG",
        "workerpool1-0 rank 2",
        ExitReason.HANG_KILLED,
        8.6,
        hang_restarts=1,
        hang_step=700.0,
        detect_s=0.21,
        diagnose_s=0.03,
    ),
    ev.HangStuck("a", 8.85, "workerpool0-0", "h1", "pid 8 outlives KILL (state D)"),
    ev.HangNoticed("a", 8.9, 3, 8.85, "R4", "nothing new was printed for 31 min", (), ()),
    ev.HangJudged("a", 8.91, "BUDGET_SPENT"),
    ev.RestartDecided("a", 8.95, 4, "NONZERO_EXIT", "workerpool1-0 rank 2", ExitReason.STOPPED, 8.9, 1, worker=1),
    ev.WorkerLaunched("a", 8.96, "workerpool1-0", 4),
    ev.WorkerStarted("a", 8.97, "workerpool1-0", 4, Started(7, (8,))),
    ev.CaughtUp("a", 8.98, 4, 701.0),
    ev.PrimaryCompleted("a", 9.0),
    ev.AttemptEnded(
        "a",
        9.1,
        Leaving.RETRY,
        "SIGNALED",
        "workerpool1-0 rank 2",
        9.0,
        recover="WORKER_RESCHEDULE",
        budget="TRANSIENT",
        keep=(0, 1),
        avoid=("h2",),
        failure=ev.Failure("TRANSIENT 139", "TRANSIENT", "h2", True, 7.0),
        not_before=9.3,
    ),
    ev.WorkerEmptied("a", 9.2, "workerpool0-0"),
    ev.WorkerEmptied("a", 9.2, "workerpool1-0"),
    ev.WorkerFenced("a", 9.2, "workerpool1-1"),
    ev.JobWarned("a", 9.35, 3, 10, 39.35, "the drain of h1"),
    ev.PauseRequested("a", 9.4, "bob", 12.4),
    ev.JobPaused("a", 9.5),
    ev.JobResumed("a", 9.6, "ann"),
    ev.JobPlaced("a", 9.7, 2, 5, (Place("h1", ("GPU-1", "GPU-2")), Place("h1"), Place("h1"))),
    ev.CancelRequested("a", 10.0, "bob"),
    ev.JobEnding("a", 11.0, JobState.CANCELLED, JobError(1, "cancelled", ("x",), 139)),
    ev.WorkerEmptied("a", 12.0, "workerpool0-0"),
    ev.OutputArchived("a", 12.5, "workerpool0-0", "/out: Permission denied; tried again"),
    ev.OutputArchived("a", 12.6, "workerpool0-0", ""),
    ev.OutputArchived("a", 12.7, "workerpool1-0", "/out: Read-only file system; given up"),
    ev.JobEnded("a", 13.0, JobState.CANCELLED, JobError(3, "rank 1")),
    ev.NotificationGivenUp("a", 14.0, "CANCELLED", "ops", "it answered with HTTP status 500"),
]
HOST_EVENTS: list[ev.HostEvent] = [
    ev.HostJoined("h1", 0.1, "10.0.0.1", "boot", "0.1", INVENTORY),
    ev.HostJoined("h2", 0.2, "10.0.0.2", "boot", "0.1", INVENTORY),
    ev.HostCordoned("h1", 0.3, "disk", "ann"),
    ev.HostUncordoned("h1", 0.4, "ann"),
    ev.HostLost("h2", 0.5, 75.2),
    ev.HostReturned("h2", 0.6),
    ev.HostShutdownBegan("h2", 0.6),
    ev.HostDraining("h2", 0.7, "upgrade", "ann", 600.0, True),
    ev.HostDrained("h2", 0.72),
    ev.HostUncordoned("h2", 0.75, "ann"),
    ev.HostFenced("h2", 0.8, "no power", "ann"),
    ev.HostPlaceFreed("h2", 0.9, "b/0"),
    ev.HostRefused("h2", 0.95, "0.0", "The agent of h2 is too old. Upgrade it."),
    ev.HostJoined("h3", 0.91, "10.0.0.3", "boot", "0.1", INVENTORY),
    ev.HostRemoved("h3", 0.92, "ann"),
    ev.MaintenancePlanned("h2", 0.93, Maintenance(60.0, 3660.0, "new disk", "ann", True, 600.0)),
    ev.MaintenanceBegan("h2", 60.0),
    ev.MaintenanceEnded("h2", 3660.0, "holdfast", "GPU 3: fell off the bus"),
]
PEOPLE_EVENTS: list[ev.PeopleEvent] = [
    ev.RoleGranted(0.93, "bob", "*", Role.VIEWER, "ann"),
    ev.RoleGranted(0.94, "bob", "vision", Role.ADMIN, "ann"),
    ev.RoleTaken(0.95, "bob", "vision", "ann"),
    ev.AccountsMapped(0.955, "bob", ("bob", "vision"), "ann"),
    ev.AccountsMapped(0.956, "bob", (), "ann"),
    ev.AccountsMapped(0.957, "bob", ("bob",), "ann"),
    ev.TokenMade(0.96, "d1", Kind.HOST, "", 1800.96, "ann"),
    ev.TokenUsed(0.97, "d1", Kind.HOST, "h4", "k1"),
    ev.TokenMade(0.98, "d2", Kind.USER, "bob", 1800.98, "ann"),
    ev.SecretSet(0.985, "user/bob", "wandb", "bob"),
    ev.SecretSet(0.986, "project/vision", "wandb", "ann"),
    ev.SecretRemoved(0.987, "user/bob", "wandb", "bob"),
    ev.UserRemoved(0.99, "bob", "ann"),
]
CLUSTER_EVENT = ev.CommonCauseNoticed(30.0, "2 hosts wait for storage at /data", ("a", "b"), "/data", ("h1", "h2"))
RESTORED: list[ev.Event] = [
    ev.JobSubmitted("r", 40.0, "ann", "", "r", {}, Gang((Pool(1, Task(("train",))),)), "{}"),
    ev.JobSubmitted("s", 40.0, "ann", "", "s", {}, Gang((Pool(1, Task(("train",))),)), "{}"),
    ev.ClusterRestored(41.0, len(HOST_EVENTS) + len(PEOPLE_EVENTS) + len(JOB_EVENTS) + 4, 30.0),
    ev.JobFound("r", 42.0, 1, (2,), (Place("h1"),), (Started(900, (1001,)),)),
    ev.JobUnsure("s", 43.0, 1000, "no host knows of it"),
    ev.StrangerFound("h1", 43.0, "u", "workerpool0-0", 1, ("u0",)),
    ev.StrangerEnded("h1", 44.0, "u", "workerpool0-0", Exit(1, 1, 0, ExitReason.COMPLETED, 0)),
    ev.StrangerDismissed("h1", 45.0, "u", "ann"),
    ev.StrangerGone("h1", 46.0, "u", "workerpool0-0"),
    ev.JobCleared("s", 47.0, "nothing is left of what it ran before the restore"),
    ev.MaintenanceAhead("r", 48.0, "h1", 60.0, "new disk"),
    ev.DoubtEnded(48.0),
]
EVENTS: list[ev.Event] = [*HOST_EVENTS, *PEOPLE_EVENTS, *JOB_EVENTS, CLUSTER_EVENT, *RESTORED]


def host(
    name: str, *, gpus: int = 0, model: str = "NVIDIA H100", cpus: int = 16, memory: int = 64, slots: int = 64
) -> Host:
    found = tuple(Gpu(f"{name}-{i}", i, model, 80 * GIB) for i in range(gpus))
    return Host(name, name, "boot", "1", Inventory(cpus, memory * GIB, found, slots))


def job(gang: Gang = GANG) -> Job:
    return Job("a", "ann", "", "a", {}, gang, "{}", 0.0, generation=1)
