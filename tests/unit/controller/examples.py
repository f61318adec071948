"""One of each: a job, and every event that can happen."""

from __future__ import annotations

from tests.unit.controller.job_examples import GANG, GIB, INVENTORY, JOB_EVENTS

from holdfast._base.health import Health
from holdfast._base.identity import Kind
from holdfast._base.job_file.choices import UnderuseAction
from holdfast._base.job_file.label_match import Condition
from holdfast._base.xids import Repair
from holdfast._session.reports import Exit, ExitReason, RankBinding
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Task
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
from holdfast_controller.core.model.hosts.measurements import Kind as MeasuredKind
from holdfast_controller.core.model.hosts.measurements import Measurement, Outcome, Why
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.runtime import Started
from holdfast_controller.core.model.schedules import JobPlan, Overlap
from holdfast_controller.core.model.slowness import Sign, Suspect
from holdfast_controller.core.scheduling.wait_reasons.never_fits import fit_when_empty

XID_79 = GpuFault("Xid 79 (fallen off the bus)", Repair.REBOOT, Wall(0.4))
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
    ev.HostMeasurementDue(host="h2", at=Wall(0.66), kind=MeasuredKind.ALONE, why=Why.ASKED, by="ann"),
    ev.HostMeasurementBegan(
        host="h2", at=Wall(0.67), job="host-check-9", kind=MeasuredKind.PAIR, why=Why.REPEAT, partner="h3"
    ),
    ev.HostMeasured(
        host="h2",
        at=Wall(0.68),
        result=Measurement(
            at=Wall(0.68),
            job="host-check-9",
            kind=MeasuredKind.PAIR,
            why=Why.REPEAT,
            outcome=Outcome.MEASURED,
            partner="h3",
            hardware="8 × H100, driver 570, 96 cores",
            software="check 1, Python 3.11",
            figures={"net.tcp": 9.5},
            problem="GPUs: ImportError",
        ),
    ),
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
    ev.ReservationMade(
        at=Wall(0.991),
        reservation=Reservation(
            name="conference",
            project="vision",
            start=Wall(1.0),
            end=Wall(2.0),
            selector=HostSelector(labels=(("rack", "a"),), match=(Condition("gpu", ("h100", "h200")),)),
            gpus=8,
            gpu_type="H200",
            reason="deadline",
            by="ann",
            made_at=Wall(0.991),
            user="bob",
        ),
    ),
    ev.ReservationBegan(at=Wall(0.9911), name="conference"),
    ev.ReservationEnded(at=Wall(0.992), name="conference", by="bob"),
    ev.QuotaSet(at=Wall(0.9921), holder="user/ann", quota=Quota(gpus=32, max_priority=-1), by="root"),
    ev.QuotaSet(at=Wall(0.9922), holder="*", quota=Quota(running_jobs=-1, waiting_jobs=5), by="root"),
    ev.QuotaSet(at=Wall(0.9923), holder="user/ann", quota=None, by="root"),
    ev.ShareSet(at=Wall(0.993), project="vision", weight=2.0, by="ann"),
    ev.ShareSet(at=Wall(0.994), project="speech", weight=0.5, by="ann"),
    ev.ShareSet(at=Wall(0.995), project="speech", weight=None, by="ann"),
    ev.HalfLifeSet(at=Wall(0.996), half_life_s=86_400.0),
    ev.GuaranteeSet(at=Wall(0.997), project="vision", gpus=64, by="ann"),
    ev.GuaranteeSet(at=Wall(0.998), project="speech", gpus=1, by="ann"),
    ev.GuaranteeSet(at=Wall(0.999), project="speech", gpus=0, by="ann"),
]
_NIGHTLY = {"project": "vision", "name": "nightly"}
PLAN_EVENTS: list[ev.Event] = [
    ev.TemplateCreated(**_NIGHTLY, at=Wall(0.9991), version=1, job_json="{}", by="ann"),
    ev.TemplateCreated(**_NIGHTLY, at=Wall(0.9992), version=2, job_json='{"a": 1}', by="bob"),
    ev.ScheduleCreated(
        **_NIGHTLY,
        at=Wall(0.9993),
        owner="ann",
        cron="0 3 * * *",
        time_zone="Europe/Berlin",
        overlap=Overlap.REPLACE,
        deadline_s=60.0,
        plan=JobPlan(display_name="n", gang=Gang((Pool(1, Task(("true",))),)), spec_json="{}", labels={"a": "b"}),
    ),
    ev.SchedulePaused(**_NIGHTLY, at=Wall(0.9994), by="ann"),
    ev.ScheduleResumed(**_NIGHTLY, at=Wall(0.9995), by="ann"),
    ev.ScheduleFired(**_NIGHTLY, at=Wall(0.9996), due=Wall(0.99955), job_id="n-1", first_due=Wall(0.99955)),
    ev.ScheduleLeftOut(**_NIGHTLY, at=Wall(0.9997), due=Wall(0.9997), first_due=Wall(0.9996), why="full"),
    ev.ScheduleCreated(
        project="vision",
        name="gone",
        at=Wall(0.99971),
        owner="ann",
        cron="@daily",
        time_zone="UTC",
        overlap=Overlap.FORBID,
        deadline_s=0.0,
        plan=JobPlan(display_name="n", gang=Gang((Pool(1, Task(("true",))),)), spec_json="{}"),
    ),
    ev.ScheduleRemoved(project="vision", name="gone", at=Wall(0.99972), by="ann"),
    ev.TemplateCreated(project="vision", name="gone", at=Wall(0.99973), version=1, job_json="{}", by="ann"),
    ev.TemplateRemoved(project="vision", name="gone", at=Wall(0.99974), by="ann"),
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
        started=(Started(900, (1001,), bindings=((0, RankBinding("0-3", True, "0", ("mlx5_0",), "n")),)),),
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
    ev.SlowdownNoticed(
        job_id="r",
        at=Wall(48.0),
        generation=1,
        since=Wall(30.0),
        best_ms=500.0,
        recent_ms=625.0,
        named=(Suspect(3, "h1", (Sign.WAITED_FOR, Sign.NO_CORE)),),
        waited_for=2,
    ),
    ev.SlowdownOver(job_id="r", at=Wall(48.0), generation=1),
    ev.ReconciliationEnded(at=Wall(48.0)),
    ev.CertificateEnding(at=Wall(49.0), certificate="ca", ends_at=Wall(86_449.0)),
    ev.MostHostsSilent(at=Wall(50.0), silent=7, hosts=8),
    ev.ControllerCheckFailed(
        at=Wall(51.0), check="disk.state_dir", status=CheckStatus.WARNING, saw="/var/lib/holdfast has 2 GiB free"
    ),
    ev.ControllerCheckPassed(at=Wall(52.0), check="disk.state_dir"),
    ev.ClockLeapt(at=Wall(53.0), by_s=86_400.0),
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
    *PLAN_EVENTS,
]


def host(
    name: str, *, gpus: int = 0, model: str = "NVIDIA H100", cpus: int = 16, memory: int = 64, slots: int = 64
) -> Host:
    found = tuple(Gpu(f"{name}-{i}", i, model, 80 * GIB) for i in range(gpus))
    return Host(name, name, "boot", "1", Inventory(cpus, memory * GIB, found, slots))


def job(gang: Gang = GANG) -> Job:
    return Job("a", "ann", "", "a", {}, gang, "{}", Wall(0.0), generation=1)


def never_fits(gang: Gang, hosts: list[Host]) -> tuple[str, str]:
    """Why all hosts together, empty, could not hold the gang, and the fix; both empty when they could."""
    found = fit_when_empty(gang, hosts)
    return found.reason, found.fix
