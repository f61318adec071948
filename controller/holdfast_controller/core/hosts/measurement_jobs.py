"""Jobs that measure hosts: made and placed in one step, and read when they end.

They are ordinary jobs, of no user's: launched, logged and stopped as any, and the same log keeps them from doubling or
being lost. What is special: the plan has chosen their hosts, so they never wait in the queue; one that would is
cancelled. And they have no claim on what they hold: they end as soon as a job waits that might have their host, or
shares it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from holdfast._base.health import FIGURES
from holdfast._base.job_file.choices import HangAction, SuccessPolicy
from holdfast.hang.thresholds import HangSettings
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.host import SELF
from holdfast_controller.core.lifecycle.stop import CANCELLED, end
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Retries, Strategy, Task
from holdfast_controller.core.model.hosts.host import Host, Place, job_of
from holdfast_controller.core.model.hosts.measurements import HostChecks, Kind, Measurement, Outcome, Why
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.scheduling.place import place
from holdfast_controller.core.scheduling.placement import Plan
from holdfast_controller.core.step.step import Step

PROJECT = "host-checks"
LONGEST_S = 900.0
GRACE_S = 1.0
_MARK = '{"holdfast_check":'
"""With this the line of a rank's stderr begins that holds its result."""
_MOST_CHARS = 300
_MOST = 1e9
"""Of a figure: no machine is that fast."""


def begin(step: Step, hosts: Sequence[Host], kind: Kind, why: Why) -> None:
    """Measure these hosts now: one, or two that are a pair."""
    places = tuple(Place(host.name, _gpus(host)) for host in hosts)
    gang = gang_of(places, kind, step.policies.host_checks)
    job_id = _new_id(step.cluster)
    step.emit(
        ev.JobSubmitted(
            job_id=job_id,
            at=step.now.wall,
            owner=SELF,
            request_id="",
            display_name=f"check of {' and '.join(host.name for host in hosts)}",
            labels={},
            gang=gang,
            spec_json=_spec(gang),
        )
    )
    for host in hosts:
        partner = next((other.name for other in hosts if other is not host), "")
        step.emit(
            ev.HostMeasurementBegan(
                host=host.name, at=step.now.wall, job=job_id, kind=kind, why=why, partner=partner
            )
        )
    place(step, step.cluster.jobs[job_id], Plan(places), why="chosen for a check of the host")


def _gpus(host: Host) -> tuple[str, ...]:
    faulty = host.faulty
    return tuple(gpu.uuid for gpu in host.inventory.gpus if gpu.uuid not in faulty)


def gang_of(places: Sequence[Place], kind: Kind, settings: HostChecks) -> Gang:
    """The gang that measures hosts: of a pair each GPU has a rank."""
    argv = (settings.python, "-c", settings.program, kind.value.lower())
    task = Task(argv, image=settings.image)
    pools = tuple(
        Pool(1, task, gpus=len(each.gpus), processes=max(1, len(each.gpus)) if kind is Kind.PAIR else 1)
        for each in places
    )
    return Gang(
        pools,
        timeout_s=LONGEST_S,
        expected_s=LONGEST_S,
        grace_s=GRACE_S,
        max_worker_restarts=0,
        success=SuccessPolicy.ALL,
        hang=HangSettings(action=HangAction.OFF),
        max_hang_restarts=0,
        retries=Retries(job_retries=0, disabled=True),
        strategy=Strategy.SPOT,
        project=PROJECT,
        selector=HostSelector(hosts=frozenset(each.host for each in places)),
        measures=True,
    )


def _spec(gang: Gang) -> str:
    """The same as the contract's JSON has it, to be shown."""
    pools: list[dict[str, Any]] = []
    for pool in gang.pools:
        command = list(pool.task.command)
        shown: dict[str, Any] = {"replicaCount": 1, "processesPerWorker": pool.processes}
        if pool.gpus:
            shown["machineSpec"] = {"acceleratorCount": pool.gpus}
        if pool.task.image:
            shown["containerSpec"] = {"imageUri": pool.task.image, "command": command}
        else:
            shown["processSpec"] = {"command": command}
        pools.append(shown)
    scheduling = {
        "timeout": f"{gang.timeout_s:.12g}s",
        "strategy": "SCHEDULING_STRATEGY_SPOT",
        "disableRetries": True,
        "gracePeriod": f"{gang.grace_s:.12g}s",
        "hostSelector": {"hosts": sorted(gang.selector.hosts)},
    }
    tolerance = {"hangDetection": {"action": "HANG_ACTION_OFF"}, "maxWorkerRestarts": 0, "maxJobRetries": 0}
    spec = {
        "workerPoolSpecs": pools,
        "scheduling": scheduling,
        "faultTolerance": tolerance,
        "successPolicy": "SUCCESS_POLICY_ALL",
    }
    return json.dumps(spec)


def _new_id(cluster: Cluster) -> str:
    wanted = f"host-check-{cluster.sequence + 1}"
    for number in itertools.count(1):
        found = wanted if number == 1 else f"{wanted}x{number}"
        if not (found in cluster.jobs or found in cluster.purged or found in cluster.arrays):
            return found
    raise AssertionError("unreachable")


def give_way(step: Step) -> None:
    """End each check whose host a waiting job might have, or shares by now, and each that would wait itself."""
    cluster = step.cluster
    waiting = WaitingJobs(cluster)
    for job_id in sorted(cluster.measuring):
        job = cluster.jobs[job_id]
        if job.outcome is not None or job.unreconciled is not None:
            continue
        if why := _why_it_ends(cluster, job, waiting):
            step.emit(ev.CancelRequested(job_id=job.id, at=step.now.wall, by=SELF))
            end(step, job, JobState.CANCELLED, JobError(CANCELLED, why))
            step.capacity_freed = True


def _why_it_ends(cluster: Cluster, job: Job, waiting: WaitingJobs) -> str:
    """Why a check is to end, as a sentence; empty where it may go on."""
    for each in job.places:
        host = cluster.hosts[each.host]
        others = {job_of(key) for key in host.allocations} - {job.id}
        if others:
            return f"It gave way to {min(others)}."
        if host.takes_work and (name := waiting.for_host(host)):
            return f"It gave way to {name}."
    return "It had to leave its host." if job.id in cluster.queue or job.vacating is not None else ""


class WaitingJobs:
    """The jobs in the queue, of which one of each shape is looked at; the queue is read once, and as far as needed."""

    def __init__(self, cluster: Cluster) -> None:
        self._known: dict[str, Job] = {}
        self._rest = map(cluster.jobs.whole.__getitem__, list(cluster.queue))

    def for_host(self, host: Host) -> str:
        """The first job that might have this host; empty without one. What its quota keeps back has none."""
        for job in self._known.values():
            if _might_have(job, host):
                return job.id
        for job in self._rest:
            if not job.gang.measures and not job.over_quota and job.gang.shape not in self._known:
                self._known[job.gang.shape] = job
                if _might_have(job, host):
                    return job.id
        return ""


def _might_have(job: Job, host: Host) -> bool:
    gpus, name, labels = len(host.inventory.gpus), host.name, host.labels
    wanting = (pool for pool in job.gang.pools if pool.replicas and pool.gpus <= gpus)
    return job.gang.admits(name, labels) and any(pool.admits(name, labels) for pool in wanting)


def ended(step: Step) -> list[Job]:
    """The jobs that measured hosts and have ended in this step."""
    found = [step.cluster.jobs.whole.get(e.event.job_id) for e in step.entries if isinstance(e.event, ev.JobEnded)]
    return [job for job in found if job is not None and job.gang.measures]


def result_of(cluster: Cluster, job: Job, index: int, at: Wall) -> Measurement:
    """The result of a job that has ended, for the host of one of its workers."""
    host = cluster.hosts[job.places[index].host]
    others = [each.host for each in job.places if each.host != host.name]
    kind = Kind.PAIR if others else Kind.ALONE
    outcome, figures, software, problem = _read(job, index)
    return Measurement(
        at=at,
        job=job.id,
        kind=kind,
        why=host.measured.running_why,
        outcome=outcome,
        partner=others[0] if others else "",
        hardware=hardware_of(host),
        software=software,
        figures=figures,
        problem=problem,
    )


def _read(job: Job, index: int) -> tuple[Outcome, dict[str, float], str, str]:
    if job.outcome is JobState.CANCELLED:
        return Outcome.STOPPED, {}, "", job.error.message if job.error is not None else ""
    if job.outcome is not JobState.SUCCEEDED:
        return Outcome.ERROR, {}, "", job.error.message[:_MOST_CHARS] if job.error is not None else "it failed"
    figures: dict[str, float] = {}
    problems: dict[str, None] = {}
    software = ""
    ends = job.exits_now()
    for rank in job.gang.members[index].ranks:
        said = _said(ends[rank].stderr_tail) if rank in ends else {}
        for name, value in _figures(said).items():
            figures[name] = min(value, figures.get(name, value))
        software = software or str(said.get("software", ""))[:_MOST_CHARS]
        problems |= dict.fromkeys(map(str, _items(said.get("problems"))))
    problem = "; ".join(problems)[:_MOST_CHARS]
    if not figures:
        return Outcome.ERROR, {}, software, problem or "the program said nothing"
    return Outcome.MEASURED, figures, software, problem


def _said(lines: Sequence[str]) -> dict[str, Any]:
    line = next((each for each in reversed(lines) if each.startswith(_MARK)), "{}")
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _figures(said: dict[str, Any]) -> dict[str, float]:
    told = said.get("figures")
    found = told if isinstance(told, dict) else {}
    return {
        name: float(found[name])
        for name in FIGURES
        if isinstance(found.get(name), int | float) and 0 < found[name] < _MOST
    }


def _items(value: object) -> list[object]:
    return value[:8] if isinstance(value, list) else []


def hardware_of(host: Host) -> str:
    """Equal for hosts whose figures compare: the same GPUs, driver and number of cores."""
    models = sorted(gpu.model for gpu in host.inventory.gpus)
    gpus = ", ".join(f"{models.count(model)} × {model}" for model in dict.fromkeys(models))
    driver = host.inventory.traits.get("NVIDIA driver", "")
    parts = [gpus, f"driver {driver}" if driver else "", f"{host.inventory.cpus} cores"]
    return ", ".join(filter(None, parts))
