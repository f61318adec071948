"""The dry run of a submission: the checks that one goes through, without a change to the state.

Jobs ahead in the queue wait because they don't fit now, or they would not be there: so it is enough to keep from
the new job what they wait for, as a scheduling pass does.
"""

from __future__ import annotations

from itertools import islice

from holdfast._base.dataclass import dataclass, replace
from holdfast_controller.core.access.accounts import account_for
from holdfast_controller.core.fold.job import made_of
from holdfast_controller.core.lifecycle.dependencies import outcome_of, wait_for_ends
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.accounts.quota import Waiting, is_beyond, lack
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.hosts.host import Host, Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.phase import Queued
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.fair_share.guarantees import has_claim
from holdfast_controller.core.scheduling.fair_share.reclaim import room_for, waits_of
from holdfast_controller.core.scheduling.fair_share.turns import ahead_of, in_turn
from holdfast_controller.core.scheduling.open_hosts import OpenHosts
from holdfast_controller.core.scheduling.pass_state import LOOKS_A_PLAN, PLANS_IN_VAIN
from holdfast_controller.core.scheduling.place import may_be_placed
from holdfast_controller.core.scheduling.placement import Plan, plan_job
from holdfast_controller.core.scheduling.preempt import Preemption
from holdfast_controller.core.scheduling.submit import refusal, submitted
from holdfast_controller.core.scheduling.wait_reasons.never_fits import waits_for_others
from holdfast_controller.core.step.commands import JobSubmission
from holdfast_controller.core.step.step import Policies


@dataclass(frozen=True)
class DryRun:
    """``places``, one for each worker, are empty where the job would wait; ``wait_reason`` says why, or is empty.

    ``gives_way`` names jobs that would be stopped for it. ``account`` is empty where hosts choose it.
    """

    account: str
    places: tuple[Place, ...] = ()
    wait_reason: str = ""
    gives_way: tuple[str, ...] = ()
    ahead: int = 0
    """Jobs that would be ahead of it in the queue."""


def dry_run(cluster: Cluster, asked: JobSubmission, policies: Policies, now: Now) -> DryRun:
    """The fate of a submission. Raises the ``HoldfastError`` with which it would be refused."""
    account = account_for(asked.owner, asked.plan.gang.account, cluster.people, policies)
    asked = replace(asked, plan=asked.plan.running_as(account))
    if (problem := refusal(cluster, asked, policies)) is not None:
        raise problem
    unmet = tuple(each for each in asked.plan.gang.after if outcome_of(cluster, each.job) is None)
    if unmet:
        return DryRun(account, wait_reason=wait_for_ends(cluster, unmet))
    job = _job_of(asked, cluster, now)
    open_hosts = OpenHosts(cluster, schedulable_hosts(cluster), now)
    hosts = open_hosts.of(job)
    before = [cluster.jobs.whole[name] for name in islice(in_turn(cluster), ahead_of(cluster, job))]
    reservations, waiting, quotas = open_hosts.reservations(), Waiting(), policies.quotas
    reserved, looks = set[str](), PLANS_IN_VAIN * LOOKS_A_PLAN * len(hosts)
    for other in before:
        if not may_be_placed(cluster, other, now.wall):
            continue
        over = lack(quotas, cluster.holdings, other.id, other.owner, other.gang, waiting)
        if waits_for_others(cluster, other.gang) or is_beyond(quotas, other.owner, other.gang):
            continue
        waiting.charge(other.owner, other.gang, cluster.holdings.gpus_by_job.get(other.id))
        if not over and open_hosts.shape(other) not in reserved and looks >= 0:
            reserved.add(open_hosts.shape(other))
            looks -= 0 if other.gang.anywhere else len(open_hosts.admitted(other.gang))
            reservations.reserve(other.gang, hosts, open_hosts.reserved_before(other))
    made = DryRun(account, ahead=len(before))
    claims = has_claim(cluster, job, quotas, now.wall)
    ahead = Waiting() if claims else waiting
    if over := lack(quotas, cluster.holdings, job.id, job.owner, job.gang, ahead):
        return replace(made, wait_reason=over)
    if not cluster.hosts:
        return replace(made, wait_reason="no host has joined yet")

    if claims:
        reservations, reserved = open_hosts.reservations(), set()

    def left(host: Host, without: frozenset[str]) -> HostCapacity:
        return reservations.limit(capacity_of(host, without), host)

    found = plan_job(job, hosts, left)
    if isinstance(found, Plan):
        return replace(made, places=found.of_workers(job.gang))
    if claims:
        preemption = Preemption(cluster, now)
        waits = waits_of(preemption, policies.loan_s)
        claimed = room_for(job, preemption, hosts, waits, limit=lambda free, _: free)
        made = replace(made, gives_way=claimed.victims if claimed is not None else ())
    elif job.gang.strategy is not Strategy.SPOT:
        room = Preemption(cluster, now).find_room(job, hosts, reservations.limit)
        made = replace(made, gives_way=room.victims if room is not None else ())
    behind = plan_job(job, hosts) if reserved else found
    if isinstance(behind, Plan) and policies.lends_to(job.gang):
        return replace(made, places=behind.of_workers(job.gang))
    if isinstance(behind, Plan):
        first = next(other.id for other in before if open_hosts.shape(other) in reserved)
        unless = ", and it starts ahead of that if it isn't expected to delay it"
        passes = unless if policies.backfill is Backfill.PROJECTED else ""
        kept = f"what it needs is kept for {first}, which is ahead of it in the queue{passes}"
        return replace(made, wait_reason=kept)
    return replace(made, wait_reason=found.reason)


def _job_of(asked: JobSubmission, cluster: Cluster, now: Now) -> Job:
    """The job that would be submitted, as the last one so far."""
    job = made_of(submitted(asked, asked.job_id, asked.plan.gang, now.wall), cluster.sequence + 1)
    job.phase = Queued(since=now.wall)
    return job
