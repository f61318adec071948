"""Timers after a start of the controller: what was armed before is gone with the process that had armed it."""

from __future__ import annotations

from holdfast_controller.core.hangs.watch_cache import wake
from holdfast_controller.core.lifecycle import deletion, exits, warning_signal
from holdfast_controller.core.lifecycle.attempts import CLAIM_BACKOFF_MOST_S
from holdfast_controller.core.lifecycle.root_cause import SETTLE_S
from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.queue import PLACEMENT_TRIES
from holdfast_controller.core.model.warning import NOTICE_MOST_S
from holdfast_controller.core.scheduling.expiry import TRY_AGAIN_S
from holdfast_controller.core.step.step import Policies
from holdfast_controller.core.step.timers import ClusterTimer, HostTimer, JobTimer, Timers, UserTimer


def resume(cluster: Cluster, policies: Policies, timers: Timers, now: Now, kept: dict[str, KeptWatch]) -> None:
    """Arm all timers: leases get a full term again, running timeouts what is left of them."""
    wake(cluster, kept, now)
    cluster.listening_since = now.mono
    look_s = deletion.first_look_s(policies)
    if look_s is not None:
        timers.set((ClusterTimer.RETENTION, ""), now.mono_in(look_s))
    if cluster.reservations.by_name:
        timers.set((ClusterTimer.RESERVATIONS, ""), now.mono)
    # Not before hosts have called. Where nothing is due the look disarms it.
    timers.set((ClusterTimer.MEASUREMENTS, ""), now.mono_in(policies.leases.suspect_s))
    if cluster.schedules:
        timers.set((ClusterTimer.SCHEDULES, ""), now.mono)
    if (
        any(host.unreconciled for host in cluster.hosts.values())
        or any(job.unreconciled is not None for job in cluster.jobs.whole.values())
        or (cluster.gaps and not cluster.hosts)
    ):
        # Hosts that joined after the backup are unknown, and may still call.
        cluster.reconcile_until = now.mono_in(policies.leases.suspect_s)
        timers.set((ClusterTimer.RECONCILE, ""), cluster.reconcile_until)
    for user, sign_in in cluster.people.signed_in.items():
        timers.set((UserTimer.SIGN_IN, user), now.mono_due(sign_in.until, at_most_s=policies.sign_in.lifetime_s))
    cluster.awaited_hosts = {name for name, host in cluster.hosts.items() if not host.lost}
    for name in cluster.hosts:
        presence = cluster.presence_of(name)
        presence.last_seen = now.mono
        presence.lost_at = now.wall_in(policies.leases.lost_s)
        timers.set((HostTimer.LEASE, name), now.mono_in(policies.leases.suspect_s))
        if cluster.hosts[name].maintenance is not None:
            # Not at once: whether the host is well isn't known before it has called.
            timers.set((HostTimer.MAINTENANCE, name), now.mono_in(policies.leases.suspect_s))
        deadline = cluster.hosts[name].drain_deadline
        if deadline is not None:
            timers.set((HostTimer.DRAIN, name), now.mono_due(deadline))
            timers.set((HostTimer.DRAIN_WARNING, name), now.mono)
    now = Now(now.mono, max(now.wall, cluster.last_ran))  # else what a job had left would be more than it was
    for job in cluster.jobs.whole.values():
        if job.terminal:
            continue
        if job.placement.running_since is not None:
            left_s = job.gang.timeout_s - job.ran_s
            due = now.mono_due(Wall(job.placement.running_since + left_s), at_most_s=left_s)
            timers.set((JobTimer.TIMEOUT, job.id), due)
        if job.launch.primary_done_at is not None:
            grace_s = job.gang.end_grace_s
            due = now.mono_due(Wall(job.launch.primary_done_at + grace_s), at_most_s=grace_s)
            timers.set((JobTimer.END_GRACE, job.id), due)
        if job.not_before is not None and (job.not_before > now.wall or job.launch.deferred):
            # What was held back alone waits for this only: it may have become due while no controller ran.
            kind = JobTimer.RETRY if job.state is JobState.QUEUED else JobTimer.LAUNCH
            timers.set((kind, job.id), now.mono_due(job.not_before, at_most_s=_longest_wait_s(job)))
        if job.id in cluster.queue:
            _resume_waiting(job, policies, timers, now)
        if exits.may_settle(job):
            timers.set((JobTimer.SETTLE, job.id), now.mono_in(SETTLE_S))
        if job.pause_due is not None:
            ahead_s = job.gang.warning.before_s if job.gang.warning else 0.0
            timers.set((JobTimer.PAUSE, job.id), now.mono_due(job.pause_due, at_most_s=ahead_s))
        if job.leave is not None:
            due = now.mono_due(job.leave.due, at_most_s=NOTICE_MOST_S)
            timers.set((JobTimer.LEAVE, job.id), due)
        elif job.launch.warned_off and job.exits_now():
            ahead_s = job.gang.warning.before_s if job.gang.warning else 0.0
            timers.set((JobTimer.LEAVE, job.id), now.mono_due(job.launch.warned_until, at_most_s=ahead_s))
        if job.loan is not None:
            due = now.mono_due(Wall(job.loan.since + policies.loan_s), at_most_s=policies.loan_s)
            timers.set((JobTimer.LOAN, job.id), due)
        elif job.no_claim_before is not None:
            longest_s = max(policies.loan_s, CLAIM_BACKOFF_MOST_S)
            timers.set((JobTimer.LOAN, job.id), now.mono_due(job.no_claim_before, at_most_s=longest_s))
        warning_signal.ahead_of_timeout(timers, job)


def _resume_waiting(job: Job, policies: Policies, timers: Timers, now: Now) -> None:
    if job.lacks_hosts_since is not None and job.gang.max_wait_s:
        longest_s = job.gang.max_wait_s
        due = now.mono_due(Wall(job.lacks_hosts_since + longest_s), at_most_s=longest_s)
        timers.set((JobTimer.EXPIRE, job.id), due)
    if not job.gang.waits:
        # A host that has not connected yet is no lack of capacity.
        left = max((job.not_before or 0.0) - now.wall, policies.leases.suspect_s)
        left = min(left, _longest_wait_s(job))
        timers.set((JobTimer.RETRY, job.id), now.mono_in(left))


def _longest_wait_s(job: Job) -> float:
    """The longest back-off of a job in seconds: a bound for when the wall clock was set back."""
    return max(job.gang.retries.backoff_limit_s, TRY_AGAIN_S * 2.0**PLACEMENT_TRIES)
