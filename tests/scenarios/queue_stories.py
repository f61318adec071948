"""What stories of the queue ask of a world: why a job waits, what was placed, how a job is ended."""

from __future__ import annotations

from tests.scenarios.world import World

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, wait_reason
from holdfast_controller.core.step.step import Policies


def policies(**quotas: Quota) -> Policies:
    """``any`` stands for "*", and ``user_ann`` for the quota of a user."""
    named = {name.replace("user_", "user/").replace("any", "*"): quota for name, quota in quotas.items()}
    return Policies(secret_key=b"k", cluster_name="lab", quotas=named)


def job_of(world: World, name: str) -> Job:
    return world.cluster.jobs[name]


def why(world: World, name: str) -> str:
    """The words that users see."""
    hosts = schedulable_hosts(world.cluster)
    now = Now(Mono(world.mono), Wall(world.wall))
    queue_view = QueueView(world.cluster, hosts, world.policies.quotas, at=now)
    return wait_reason(world.cluster, job_of(world, name), hosts, queue_view)


def states(world: World) -> dict[str, str]:
    return {job.id: job.state.name for job in world.cluster.jobs.values()}


def finish(world: World, name: str) -> list[str]:
    """A job ends, and its places are empty."""
    world.cancel(name)
    told: list[str] = []
    for index in range(len(job_of(world, name).places)):
        told += world.report(name, index, "EMPTY")
    return told


def placed(told: list[str]) -> list[str]:
    return [words for words in told if " placed g" in words]


def cpu(workers: int = 1, cpus: int = 4, **rules: object) -> Gang:
    return Gang((Pool(workers, Task(("x",)), cpus=cpus),), success=SuccessPolicy.ALL, **rules)  # type: ignore[arg-type]
