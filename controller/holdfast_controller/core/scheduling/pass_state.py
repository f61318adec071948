"""State of one pass over the queue: what it has found so far, and where a job could be placed as things stand.

Nothing is decided here: which jobs start, wait or give way is said in ``queue_pass``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.accounts import quota
from holdfast_controller.core.model.accounts.quota import Waiting
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.hosts.capacity import HostCapacity
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.queue import Turn
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.backfill import Reservations
from holdfast_controller.core.scheduling.fair_share.reclaim import Booked
from holdfast_controller.core.scheduling.left_capacity import LeftCapacity
from holdfast_controller.core.scheduling.open_hosts import OpenHosts
from holdfast_controller.core.scheduling.place import is_alone
from holdfast_controller.core.scheduling.placement import Plan, Wait, plan_job
from holdfast_controller.core.scheduling.preempt import Preemption
from holdfast_controller.core.scheduling.projections.kept_starts import KeptStarts
from holdfast_controller.core.scheduling.wait_reasons.never_fits import waits_for_others
from holdfast_controller.core.step.step import Step

PLANS_IN_VAIN = 100
"""Failed plans in one pass, after which jobs of other shapes wait for the next pass."""
LOOKS_A_PLAN = 20
"""So many looks at what all hosts have left count as a plan in vain, though one takes as long: with 1,000 hosts half a
millisecond. Only thousands of jobs that each choose among most hosts in a way of their own use them up."""
_NO_CAPACITY = Wait("no host has room")


class PassState:
    """Everything that a pass knows of the cluster and has learned of the jobs that it has looked at."""

    def __init__(self, step: Step) -> None:
        self.step, self.free = step, step.cluster.free_capacity
        self.booked = Booked()
        self.unplaceable, self.reserved = set[str](), set[str]()
        """Shapes of jobs that fit nowhere, and of those for which something is kept."""
        self.waiting = Waiting()
        self.first = ""
        """The first job that waits for hosts."""
        self.closed, self.unlendable = set[str](), set[str]()
        """Hosts on which room is being made for a waiting job; kinds of jobs for which not even loans are enough."""
        self.no_room: dict[str, Turn] = {}
        """By shape of SPOT jobs for which no loans can be taken back: from which turn on: one behind may be older."""
        self.with_gpus: list[Host] | None = None
        """Hosts with free GPUs, or with jobs that are being stopped."""
        self.open: list[Host] | None = None
        """Hosts of which nothing is reserved."""
        self.left, self.lendable = LeftCapacity(), LeftCapacity()
        """What is left to the job being served; what was free at the beginning, of which less may be by now."""
        self.preemption = Preemption(step.cluster, step.now)
        self.in_vain = self.loans_in_vain = 0.0
        """Plans that found no room; one that looked at a part of the hosts counts as such a part."""
        self.trials_in_vain = self.backfills_in_vain = 0
        self.too_long: dict[str, Wall] = {}
        self.passed: set[str] = set()
        """Lines of which no job further back has to be looked at, but for those that a quota limits."""
        self.over: set[str] = set()
        """Lines of which all further back are kept by a quota, as they were before."""
        self._has_limit = quota.limited(step.policies.quotas) if step.policies.quotas else None
        self.settled: set[str] = set()
        """Kinds of jobs of which none further back can start in this pass, or changes anything if it is served."""
        self.settled_if_long: set[str] = set()
        """The same for those whose end would be later than ``too_long`` has it for their shape."""
        self.by_time = step.policies.backfill is not Backfill.STRICT

    def leave_to(self, booked: Booked) -> None:
        """Leave what is booked to those that it is for: they are served, and go on waiting."""
        self.booked, self.closed, self.first = booked, set(booked.places), next(iter(booked.jobs), "")
        for job in map(self.step.cluster.jobs.whole.__getitem__, booked.jobs):
            self._charge(job)

    @cached_property
    def kept(self) -> KeptStarts:
        """The projected starts of jobs that wait, which those behind them don't delay."""
        return KeptStarts(self.step, self.open_hosts, self.preemption)

    @cached_property
    def reservations(self) -> Reservations:
        return self.open_hosts.reservations()

    @cached_property
    def open_hosts(self) -> OpenHosts:
        return OpenHosts(self.step.cluster, self.hosts, self.step.now)

    @cached_property
    def hosts(self) -> list[Host]:
        """The schedulable hosts at the beginning of the pass; ``open_hosts`` knows which of them each job may have."""
        return schedulable_hosts(self.step.cluster)

    @property
    def has_limits(self) -> bool:
        """Whether any quota is set."""
        return self._has_limit is not None

    def is_limited(self, job: Job) -> bool:
        """Whether a quota limits what a job may hold, of its project or its owner."""
        return self._has_limit is not None and self._has_limit(*job.whose)

    def _charge(self, job: Job) -> None:
        """Keep the part of its quotas that a job waits for from those behind it."""
        beyond = quota.is_beyond(self.step.policies.quotas, job.owner, job.gang)
        if not beyond and not waits_for_others(self.step.cluster, job.gang):
            self.waiting.charge(job.owner, job.gang, self.step.cluster.holdings.gpus_by_job.get(job.id))

    def _quota_lack(self, job: Job) -> str:
        holdings = self.step.cluster.holdings
        return quota.lack(self.step.policies.quotas, holdings, job.id, job.owner, job.gang, self.waiting)

    def _plan(self, job: Job) -> Plan | Wait:
        waits = self.reservations.by_kind or self.reservations.by_host or self.booked.places
        if (own := self._own(job)) and isinstance(found := plan_job(job, own, self._capacity_of), Plan):
            return found
        if not waits and is_alone(job) and (alone := self.open_hosts.first_free(job, set())) is not None:
            return alone
        if job.id in self.step.cluster.holdings.gpus_by_job:
            self.in_vain += 1
            return plan_job(job, self.open_hosts.of(job), self._capacity_of)
        if not self.reservations.leaves_gpus and job.gang.needs_gpus:
            return _NO_CAPACITY
        closed = frozenset(self.open_hosts.closed_to(job))
        if not self.left.may_hold(job.gang, self._not_kept, self._capacity_of, closed):
            return _NO_CAPACITY
        admitted = None if job.gang.anywhere else list(self.open_hosts.admitted(job.gang))
        fitting = self.left.fitting(job.gang, self.open_hosts.of(job, admitted))
        self.in_vain += self._part(fitting)
        return plan_job(job, fitting, self._capacity_of)

    def _own(self, job: Job) -> list[Host]:
        """The hosts that are reserved for such jobs, unless all that they have is kept for those ahead of this one."""
        begun = self.open_hosts.begun_for(job)
        if job.places or not begun.hosts:
            return []
        if job.gang.needs_gpus and not self.reservations.leaves_gpus_on(begun.kinds):
            return []
        return self.open_hosts.own(job)

    def _not_kept(self, gang: Gang) -> Iterable[Host]:
        """The hosts that a gang may have, but for those whose GPUs are all kept if each of its workers needs some."""
        admitted = self.open_hosts.admitted(gang)
        return self.reservations.with_gpus(admitted) if gang.needs_gpus else admitted

    @property
    def plans_spent(self) -> bool:
        """Whether no more plans are made in this pass, since too many hosts have been looked at in vain."""
        looks = self.left.looked / (LOOKS_A_PLAN * max(len(self.hosts), 1))
        return self.in_vain + looks >= PLANS_IN_VAIN

    def _part(self, hosts: list[Host]) -> float:
        """The part of all hosts that these are."""
        return len(hosts) / max(len(self.hosts), 1)

    def _capacity_of(self, host: Host, without: frozenset[str] = frozenset()) -> HostCapacity:
        """The free capacity of a host for the job being served."""
        return self.reservations.limit(self.booked.limit(self.free.without(host, without), host), host)

    def _plan_backfill(self, job: Job, until: Wall, *, beside: bool) -> Plan | None:
        """The placement of a job on free hosts; with ``beside`` on none that a projected start needs."""
        if not self._may_borrow(job):
            return None
        self.kept.project()
        closed = self.closed | self.kept.claimed | (self.kept.hosts if beside else set())
        hosts = [host for host in self.open_hosts.of(job, self._backfillable(job)) if host.name not in closed]
        limit = self.kept.limit(until)
        found = plan_job(job, hosts, lambda host, own: limit(self.free.without(host, own), host))
        return found if isinstance(found, Plan) else None

    def _may_borrow(self, job: Job) -> bool:
        if job.id in self.step.cluster.holdings.gpus_by_job:
            return True
        return self.lendable.may_hold(job.gang, self.open_hosts.admitted, self.free.capacity_of)

    def _backfillable(self, job: Job) -> list[Host]:
        """The hosts on which a job may have something now or soon; in a busy cluster few have GPUs for it."""
        if job.reserved or job.spares or not job.gang.needs_gpus:
            return self.hosts
        if self.with_gpus is None:
            stopping = (self.step.cluster.jobs[name] for name in self.preemption.leaving)
            soon = {place.host for other in stopping for place in other.places}
            self.with_gpus = [h for h in self.hosts if h.name in soon or self.free.capacity_of(h).gpus]
        return self.with_gpus

    @property
    def _not_lent(self) -> set[str]:
        """Hosts on which a waiting job starts soon."""
        return self.closed | self.kept.awaited if self.by_time else self.closed

    def _plan_loan(self, job: Job, closed: set[str]) -> Plan | Wait:
        if is_alone(job):
            alone = self.open_hosts.first_free(job, closed)
            self.loans_in_vain += alone is None
            return alone or _NO_CAPACITY
        if not self._may_borrow(job):
            return _NO_CAPACITY
        hosts = [host for host in self.open_hosts.of(job, self._backfillable(job)) if host.name not in closed]
        planned = plan_job(job, hosts, self.free.without)
        self.loans_in_vain += self._part(hosts) if isinstance(planned, Wait) else 0
        return planned

    def _left_to(self, job: Job) -> list[Host]:
        """The hosts that those ahead may leave something of to a job."""
        if not all(pool.gpus for pool in job.gang.pools):
            return self.hosts
        if self.open is None:
            self.open = self.reservations.without_held(self.hosts)
        return self.open
