"""Why a job isn't running, in words. The same words go into lists, pages and events."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property

from holdfast._base.dataclass import replace
from holdfast_controller.core.lifecycle.arrays import wait_for_turn
from holdfast_controller.core.lifecycle.dependencies import wait_for_ends
from holdfast_controller.core.model.accounts.quota import Quotas, Waiting, is_beyond, lack, limited
from holdfast_controller.core.model.accounts.shares import ShareState
from holdfast_controller.core.model.clock import Now, time_of_day
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Host, Liveness, job_of
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import Recover
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.fair_share.guarantees import claims
from holdfast_controller.core.scheduling.fair_share.shares import project_shares
from holdfast_controller.core.scheduling.fair_share.turns import ahead_of, in_turn
from holdfast_controller.core.scheduling.open_hosts import OpenHosts
from holdfast_controller.core.scheduling.placement import Wait, may_have, plan_job
from holdfast_controller.core.scheduling.projections.projected_start import Start, forecast, most_forecast
from holdfast_controller.core.scheduling.projections.start_words import (
    expected_start,
    is_given_up_before,
    shorter_run,
)
from holdfast_controller.core.scheduling.wait_reasons.host_waits import (
    Pending,
    lost_before,
    out_of_sight,
    silence,
    unreconciled,
)
from holdfast_controller.core.scheduling.wait_reasons.never_fits import outgrown, waits_for_others
from holdfast_controller.core.scheduling.wait_reasons.turn_words import (
    what_it_claims,
    when_it_claims,
    when_lent,
    why_later,
)


class QueueView:
    """The queue at one moment: what the pending reasons of all its jobs share, computed once and on demand."""

    def __init__(
        self,
        cluster: Cluster,
        schedulable_hosts: list[Host],
        quotas: Quotas,
        now: Now | None = None,
        loan_s: float = 3600.0,
        backfill: Backfill = Backfill.STRICT,
        at: Now | None = None,
    ) -> None:
        self.cluster, self.schedulable_hosts, self.quotas = cluster, schedulable_hosts, quotas
        self.now, self.loan_s, self.backfill = now, loan_s, backfill
        """Without a time no start is projected."""
        self.open_hosts = OpenHosts(cluster, schedulable_hosts, now or at)
        self.holders: dict[str, tuple[str, ...]] = {}
        """By shape, or by GPU models: the jobs that hold what such a job lacks, as far as it was asked."""
        self._quota_lacks: dict[str, str] = {}
        """By job, as far as it was asked."""
        self._is_limited = limited(quotas)
        self._reasons: dict[str, Pending] = {}
        self._firsts: dict[str, str] = {}

    @cached_property
    def starts(self) -> dict[str, Start]:
        """The projected starts of the first jobs that wait for free capacity."""
        if self.now is None:
            return {}
        first = [self.cluster.jobs.whole[name] for name in self._projected]
        return forecast(self.cluster, first, self.open_hosts, self.now, self.loan_s)

    @cached_property
    def _projected(self) -> dict[str, None]:
        """The jobs whose starts are projected, in their order. Who asks about others has nothing projected."""
        first = itertools.islice(self._waiting(), most_forecast(self.open_hosts.open_to_all))
        return dict.fromkeys(job.id for job in first)

    def _start(self, job: Job) -> Start | None:
        return self.starts.get(job.id) if job.id in self._projected else None

    def start_in_words(self, job: Job) -> str:
        """When a waiting job is expected to start, and what would start it now, after semicolons; else empty."""
        if self.now is None:
            return ""
        start = self._start(job)
        words = [expected_start(start, job, self.now) if start is not None else ""]
        is_long = self.open_hosts.shape(job) in self.cluster.too_long
        if is_long and self._is_first_alike(job) and not self.lack_of_room(job):
            words.append(shorter_run(self.cluster, job, self.now))
        return "".join(f"; {each}" for each in words if each)

    def is_given_up_first(self, job: Job) -> bool:
        """Whether a waiting job is given up before it is expected to start."""
        start = self._start(job)
        return start is not None and is_given_up_before(start, job)

    def _is_first_alike(self, job: Job) -> bool:
        if (shape := (shape_of := self.open_hosts.shape)(job)) not in self._firsts:
            self._firsts[shape] = next((each.id for each in self._waiting() if shape_of(each) == shape), "")
        return self._firsts[shape] == job.id

    def ahead_of(self, job: Job) -> int:
        """How many jobs that wait are to be served before a job that waits too."""
        found = self._positions.get(job.id)
        return ahead_of(self.cluster, job) if found is None else found

    @cached_property
    def _positions(self) -> dict[str, int]:
        """With fair share a place in the queue is a comparison of all projects: a list asks for each of its jobs."""
        ordered = in_turn(self.cluster) if self.cluster.shares.weights else ()
        return {name: place for place, name in enumerate(ordered)}

    @cached_property
    def _share_states(self) -> dict[str, ShareState]:
        return {each.project: each.state for each in project_shares(self.cluster, self.cluster.shares.at)}

    def factors_in_words(self, job: Job, first: Job) -> str:
        """Why a job comes after another one that was submitted later, or by shares; with a semicolon, else empty.

        The other project goes unnamed: not all who read this may see it.
        """
        mine, other = job.gang.project, first.gang.project
        if job.turn[:3] != first.turn[:3]:
            return why_later(job, first)
        if not self.cluster.shares.weights or mine == other:
            return ""
        factor, better = self._share_states[mine].factor, self._share_states[other].factor
        return f"; the share factor of {mine} is {factor:.2f}, that of the project of {first.id} {better:.2f}"

    @cached_property
    def head(self) -> Job | None:
        """The first job that waits for free capacity, and not for its quota, its own workers or its next try."""
        return next(self._waiting(), None)

    @cached_property
    def has_revocable_work(self) -> bool:
        """Whether a revocable job holds any host, so that some could be stopped."""
        names = (job_of(key) for host in self.schedulable_hosts for key in host.allocations)
        return any(self.cluster.jobs[name].revocable for name in names)

    @cached_property
    def claims(self) -> frozenset[str]:
        """Jobs that wait within the guarantee of their project."""
        at = self.now.wall if self.now is not None else self.cluster.shares.at
        return frozenset(job.id for job in claims(self.cluster, self.quotas, at))

    def _waiting(self) -> Iterator[Job]:
        """The jobs that wait for free capacity, and not for something of their own, from the first on."""
        jobs = (self.cluster.jobs.whole[name] for name in in_turn(self.cluster))
        return (job for job in jobs if not self._is_held_up(job))

    def _is_held_up(self, job: Job) -> bool:
        if job.awaited or job.placement_attempts or job.unreconciled is not None or self.quota_lack(job):
            return True
        return waits_for_others(self.cluster, job.gang)

    @cached_property
    def head_lacks(self) -> str:
        """The resources that the head of the queue lacks, in words; empty where it lacks none or there is no head."""
        return self.lack_of_room(self.head) if self.head is not None else ""

    def outgrown(self, job: Job) -> str:
        """Why the hosts that it may have could not hold a job even when empty, after a semicolon; else empty."""
        if not waits_for_others(self.cluster, job.gang) or not may_have(job.gang, self.cluster.hosts.values()):
            return ""
        words = outgrown(job.gang, self.cluster.hosts.values())
        if words:
            return f"; no host could hold it even when empty: {words}"
        return "; the hosts that have joined could not hold it, so it keeps none from others"

    @cached_property
    def _limited(self) -> Iterator[tuple[str, str]]:
        """The queued jobs that a quota limits, in turn: why it keeps each from starting, empty when it doesn't."""
        waiting, holdings = Waiting(), self.cluster.holdings
        # A view is kept while calls are answered, and jobs come and go meanwhile.
        jobs = map(self.cluster.jobs.whole.get, list(in_turn(self.cluster)))
        for job in filter(None, jobs):
            if not self._is_limited(*job.whose) or job.awaited or job.unreconciled is not None:
                continue
            yield job.id, lack(self.quotas, holdings, job.id, job.owner, job.gang, waiting)
            waits_no_time = job.not_before is None or self.cluster.elapsed_backoffs.get(job.id) == job.not_before
            beyond = is_beyond(self.quotas, job.owner, job.gang)
            if waits_no_time and not beyond and not waits_for_others(self.cluster, job.gang):
                waiting.charge(job.owner, job.gang, holdings.gpus_by_job.get(job.id))

    def quota_lack(self, job: Job) -> str:
        """Why a quota keeps the job from starting, of its own or for what it leaves after jobs ahead; else empty."""
        if not self.quotas or job.id not in self.cluster.queue or not self._is_limited(*job.whose):
            return ""
        if job.id in self.claims:
            return ""  # it is served before all that wait for the quota
        while job.id not in self._quota_lacks and (found := next(self._limited, None)) is not None:
            self._quota_lacks[found[0]] = found[1]
        return self._quota_lacks.get(job.id, "")

    def reason_of(self, job: Job) -> Pending:
        """Why a queued job isn't running."""
        found = self._reasons.get(job.id)
        if found is None:
            found = self._reasons[job.id] = lost_before(self.cluster, job, _queued(job, self))
        return found

    def lack_of_room(self, job: Job) -> str:
        """The resources that hosts lack for a job, even with no other job ahead of it; empty when none."""
        if not self.cluster.hosts:
            return "no host has joined yet"
        found = plan_job(job, self.open_hosts.of(job), self.cluster.free_capacity.without)
        if not isinstance(found, Wait):
            return ""
        return found.reason + self.open_hosts.why_closed(job) + self._out_of_service(job)

    def _out_of_service(self, job: Job) -> str:
        """The faulty GPUs and hosts that keep capacity from a job that waits for some; empty where there are none."""
        hosts = may_have(job.gang, self.cluster.hosts.values())
        faulty = [
            f"{host.name} GPU {gpu.index}: {gpu.in_words}"
            for host in hosts
            for gpu in host.condemned.values()
            if job.gang.gpus or host.to_reboot is not None
        ]
        faulty += [f"{host.name} {host.unfit.check}: {host.unfit.saw}" for host in hosts if host.unfit is not None]
        faulty += [f"{host.name}: {host.cordon_reason}" for host in hosts if host.cordoned_by == "holdfast"]
        more = f" and {len(faulty) - 2} more" if len(faulty) > 2 else ""
        return f"; out of service: {', '.join(faulty[:2])}{more}" if faulty else ""


def wait_reason(
    cluster: Cluster, job: Job, schedulable_hosts: list[Host], queue_view: QueueView | None = None
) -> str:
    """Why ``job`` isn't running at present, in one line; empty when it is, or has ended. See ``pending``."""
    return str(pending(cluster, job, queue_view or QueueView(cluster, schedulable_hosts, {})) or "")


def pending(cluster: Cluster, job: Job, queue_view: QueueView) -> Pending | None:
    """Why ``job`` isn't running at present; None when it is, or has ended.

    A caller that asks for many jobs passes the same ``queue_view`` each time.
    """
    if job.terminal:
        return None
    if job.unreconciled is not None:
        return unreconciled(cluster, job)
    if job.state is JobState.PAUSED:
        since = f"paused, since {job.missed}; go on all the same with" if job.missed else "paused; go on with"
        return Pending(since, f"holdfast job resume {job.id}", by_itself=False)
    if job.outcome is not None:
        return _unfinished(cluster, job, "waits for its workers to be gone from", set(job.placement.emptied))
    if job.vacating is not None and job.awaited:
        verb = "being paused" if job.vacating is Leaving.PAUSE else "being placed again"
        return _unfinished(
            cluster, job, f"{verb}; waits for its workers to be gone from", set(job.placement.emptied)
        )
    if job.unmet:
        return Pending(wait_for_ends(cluster, job.unmet))
    if job.waits_for_turn:
        return Pending(wait_for_turn(job))
    if job.state is JobState.QUEUED:
        return queue_view.reason_of(job)
    if not job.launched:
        if job.not_before is not None and len(cluster.runtime_of(job.id).prepared) == len(job.places):
            return _backs_off(job)
        again = job.recoveries and job.recoveries[-1].recover is Recover.PROC_RESTART
        verb = "restarting in place on" if again else "being prepared on"
        runtime = cluster.runtime_of(job.id)
        busy = {index: doing for index, doing in runtime.preparing.items() if index not in runtime.prepared}
        if busy and not runtime.stuck:
            return Pending(_busy(job, busy))
        return _unfinished(cluster, job, verb, set(cluster.runtime_of(job.id).prepared))
    if not job.started:
        return _unfinished(cluster, job, "starting on", set(cluster.runtime_of(job.id).started))
    return out_of_sight(cluster, job) or _leaving(job) or _worker_alone(job)


def _busy(job: Job, busy: dict[int, str]) -> str:
    """The slowest preparation and its hosts, such as "installing requirements on host-1, host-2 and 6 more"."""
    first = busy[min(busy)]
    names = list(dict.fromkeys(job.places[index].host for index in sorted(busy) if busy[index] == first))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{first} on {', '.join(names[:3])}{more}"


def _leaving(job: Job) -> Pending | None:
    """The stop that the ranks were warned of; None where there is none."""
    if job.leave is None or job.stopping:
        return None
    of = f"gives way to {job.leave.related.job}" if job.leave.related.job else f"{job.leave.related} shuts down"
    why = f"{of}: its ranks were warned, and it is placed again once they have ended or their notice is over"
    return Pending(why)


def _worker_alone(job: Job) -> Pending | None:
    """The workers that are relaunched alone while the others run; None where there are none."""
    back = [index for index in sorted(job.launch.relaunched) if index not in job.started]
    names = ", ".join(job.gang.members[index].name for index in back[:3])
    more = f" and {len(back) - 3} more" if len(back) > 3 else ""
    if not back:
        return None
    doing = _backs_off(job) if job.launch.deferred.issuperset(back) else Pending("restarting in place")
    return replace(doing, why=f"{names}{more} alone: {doing.why}")


def _backs_off(job: Job) -> Pending:
    times = "a failure" if job.budgets.spent.failures == 1 else f"{job.budgets.spent.failures} failures in a row"
    until = f" until {time_of_day(job.not_before)}" if job.not_before is not None else ""
    why = f"backs off after {times}{until}"
    if job.state is not JobState.RUNNING:
        return Pending(why)
    return Pending(f"{why}; at once by", f"holdfast job restart {job.id}")


def _queued(job: Job, queue_view: QueueView) -> str:
    over = queue_view.quota_lack(job)
    if over:
        return over
    if job.placement_attempts:
        again = "no room so far; it doesn't wait for it and is tried again in a moment"
        return f"{again}: {queue_view.lack_of_room(job)}".removesuffix(": ")
    ahead = queue_view.ahead_of(job)
    if (outgrown := queue_view.outgrown(job)) and (lacks := queue_view.lack_of_room(job)):
        return f"{lacks}{outgrown}"
    if queue_view.schedulable_hosts and not may_have(job.gang, queue_view.schedulable_hosts):
        return queue_view.lack_of_room(job)
    if job.id in queue_view.claims:
        return f"{queue_view.lack_of_room(job) or _no_lack(job)}{what_it_claims(job, queue_view)}"
    head = queue_view.head
    if head is None or head is job:
        lacks = queue_view.head_lacks or _no_lack(job)
        return f"{lacks}{queue_view.start_in_words(job)}{when_it_claims(job, queue_view)}"
    behind = (
        f"behind {head.id} in the queue" if ahead == 1 else f"behind {ahead} jobs in the queue, first {head.id}"
    )
    lacks = f", which {queue_view.head_lacks}" if queue_view.head_lacks.startswith("needs") else ""
    lacks += queue_view.factors_in_words(job, head)
    return f"{behind}{lacks}{queue_view.start_in_words(job)}{when_lent(job, queue_view)}"


def _no_lack(job: Job) -> str:
    return str(_backs_off(job)) if job.not_before is not None else "being placed"


def _unfinished(cluster: Cluster, job: Job, doing: str, done: set[int]) -> Pending:
    """The hosts that the job still waits for, and what is known of their silence or trouble."""
    waiting: dict[str, None] = {}
    for index, place in enumerate(job.places):
        if index not in done:
            waiting[place.host] = None
    stuck = sorted(cluster.runtime_of(job.id).stuck.items())
    if stuck:
        index, message = stuck[0]
        fence = f"holdfast host fence {job.places[index].host}"
        return Pending(f"{message}; it goes on once that is over, or by", fence, by_itself=False)
    names = list(waiting)
    silent = [name for name in names if cluster.presence_of(name).session is None]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    unheard = [name for name in silent if cluster.presence_of(name).liveness is not Liveness.READY]
    if unheard:
        return silence(cluster, job, unheard).after(f"{doing} {shown}")
    note = f" ({', '.join(silent[:3])} not connected)" if silent else ""
    return Pending(f"{doing} {shown}{note}")
