"""Scheduling pass over the queue, from head to end: places each job that fits now.

Jobs are served in the order of the queue, claims on guarantees first (see ``reclaim``). One that lacks room doesn't
stop those behind it from starting, as long as they leave it all that it could use (see ``backfill``) and what its
quota has left. One that waits for its quota, its last attempt's end, its next try or hosts that have not joined leaves
all hosts to others.

With ``Backfill.PROJECTED`` a job may also start on what is kept for those ahead of it where none of them is expected to
start later for it: the first of them for each part of the hosts has a projected start (see ``projection``), and a job
that is expected to end before, or leaves what that start needs, delays nothing.

A job that can't start in turn, if it is SPOT or with ``Backfill.LOAN``, may take what is kept for those ahead of it, on
loan: it gives way when one of them can start with that (see ``preempt``). Where room is being made nothing is lent.

Many jobs ask for the same and stand in one line: where one waits for good, a pass looks at none behind it. Spares are
open to SPOT jobs, and before all others to jobs that had to leave a host (see ``replacements``).
"""

from __future__ import annotations

import math

from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.expiry import note_wait, on_no_room
from holdfast_controller.core.scheduling.fair_share.reclaim import serve_claims
from holdfast_controller.core.scheduling.fair_share.turns import in_turn
from holdfast_controller.core.scheduling.open_hosts import ends_at
from holdfast_controller.core.scheduling.own_spares import make_up, serve_own_spares
from holdfast_controller.core.scheduling.pass_state import PLANS_IN_VAIN, PassState
from holdfast_controller.core.scheduling.place import may_be_placed, place
from holdfast_controller.core.scheduling.placement import Plan, Wait
from holdfast_controller.core.scheduling.preempt import may_claim
from holdfast_controller.core.scheduling.replacements import choose_spares, serve_replacements
from holdfast_controller.core.scheduling.wait_reasons.never_fits import waits_for_others
from holdfast_controller.core.step.step import Step

TRIALS_IN_VAIN = 20
"""SPOT jobs for which no room could be made in one pass, after which those of other shapes wait for the next."""
BACKFILLS_IN_VAIN = 32
"""Jobs that fit but would delay a projected start, in one pass, after which others wait for the next."""


def place_queue(step: Step) -> None:
    """Place all queued jobs that fit now."""
    look = _Look(step)
    if step.policies.spares or step.cluster.spares:
        choose_spares(step, look.hosts, reserved=look.open_hosts.reserved)
    if step.cluster.sparing:
        for hosts in serve_own_spares(step, look.hosts):
            look.preemption.placed(frozenset(hosts))
    if not len(step.cluster.queue):
        look.make_up()
        step.cluster.unplaceable, step.cluster.unlendable, step.cluster.too_long = set(), set(), {}
        return
    booked = serve_replacements(step, look.open_hosts, look.preemption)
    if step.cluster.shares.guarantees:
        serve_claims(step, look.open_hosts, look.preemption, booked)
    if booked.jobs:
        look.leave_to(booked)
    jobs, lines, passed = step.cluster.jobs.whole, step.cluster.queue.lines, look.passed
    apart = look.open_hosts.lines_apart()
    for name in in_turn(step.cluster, None if look.has_limits else passed, apart):
        line = apart.get(name) or lines.get(name, "")
        if (line in passed and not look.is_limited(jobs[name])) or name in look.booked.jobs:
            continue
        job = jobs[name]
        if not look.passes_over(job, line) and may_be_placed(step.cluster, job, step.now.wall):
            look.serve(job, line)
    step.cluster.unplaceable = look.unplaceable & look.reserved
    step.cluster.unlendable, step.cluster.too_long = look.unlendable, look.too_long
    look.make_up()
    look.note_unprojected()
    queue = step.cluster.queue
    step.cluster.promised = {name: at for name, at in step.cluster.promised.items() if name in queue}
    step.cluster.unprojected = {name: at for name, at in step.cluster.unprojected.items() if name in queue}


class _Look(PassState):
    """Decisions on each job, by what the pass has found so far."""

    def make_up(self) -> None:
        """Make up for jobs' own spares that are gone, with what is left."""
        if self.step.cluster.sparing:
            make_up(self.step, self.open_hosts, self._capacity_of)

    def note_unprojected(self) -> None:
        """Note since when no start can be projected, though no one behind has asked for room yet."""
        is_whole = len(self.hosts) == len(self.step.cluster.hosts)
        if self.first and self.by_time and (self.step.cluster.unprojected or not is_whole):
            self.kept.project()

    def passes_over(self, job: Job, line: str) -> bool:
        """Whether a job needn't be served: it is bound to wait, as one like it ahead of it in its line does."""
        if self.is_limited(job):
            is_over = line in self.over and may_be_placed(self.step.cluster, job, self.step.now.wall)
            if is_over:
                self._charge(job)
            return is_over
        if not self._is_settled(job):
            return False
        if line and self.open_hosts.kind(job) in self.settled and not (self.by_time and self.kept.counts(job)):
            self.passed.add(line)
        return True

    def _is_settled(self, job: Job) -> bool:
        if job.places or job.over_quota or not may_be_placed(self.step.cluster, job, self.step.now.wall):
            return False
        if (kind := self.open_hosts.kind(job)) not in self.settled:
            if kind not in self.settled_if_long:
                return False
            if ends_at(self.step.cluster, job, self.step.now) <= self.too_long[self.open_hosts.shape(job)]:
                return False
        if self.by_time:
            self.kept.waits(job)
        return True

    def serve(self, job: Job, line: str) -> None:
        """Place a job, or let it wait and keep what it waits for from those behind it."""
        over = self._quota_lack(job)
        is_settled = not over and self._is_settled(job)
        may_start = not over and not is_settled
        if may_start and (self._place_if_it_fits(job) or self._backfill(job) or self._lend(job)):
            return
        if bool(over) != job.over_quota:
            note_wait(self.step, job, over, over or "its quota suffices now; waits for hosts")
        elif over and line:
            self.over.add(line)
        if not over and not job.gang.waits:
            on_no_room(self.step, job, self.hosts)
            return
        if self._has_limit is not None:
            self._charge(job)
        if may_start:
            if waits_for_others(self.step.cluster, job.gang):
                self._leave_all(job)
            else:
                self._reserve(job)
            if not job.places:
                self._settle(job)

    def _settle(self, job: Job) -> None:
        """Note what the wait of a job that was never placed means for those of its kind behind it.

        All that is asked here stays as it is until the end of the pass.
        """
        shape, kind = self.open_hosts.shape(job), self.open_hosts.kind(job)
        no_plans = self.plans_spent
        if not (no_plans or (shape in self.unplaceable and shape in self.reserved)):
            return
        if self.step.policies.lends_to(job.gang) and not self._finds_no_loan(kind):
            return
        if job.gang.strategy is Strategy.SPOT:
            older = self.step.cluster.shares.weights and shape in self.no_room and self.preemption.serves_spot
            if not older and self._makes_no_room(job):
                self.settled.add(kind)
            return
        if shape not in self.reserved and not self._makes_no_room(job):
            return
        spent = no_plans or self.backfills_in_vain >= BACKFILLS_IN_VAIN or not self.by_time or self.kept.spent
        if spent or self.too_long.get(shape) == NEVER:
            self.settled.add(kind)
        elif shape in self.too_long:
            self.settled_if_long.add(kind)

    def _place_if_it_fits(self, job: Job) -> bool:
        if self.open_hosts.shape(job) in self.unplaceable or self.plans_spent:
            return False
        before = self.in_vain, self.left.looked
        found = self._plan(job)
        if isinstance(found, Wait):
            # A job that has been placed before may be placed otherwise than others of its shape: see plan_job.
            if not job.places:
                self.unplaceable.add(self.open_hosts.shape(job))
            return False
        self.in_vain, self.left.looked = before
        self._placed(job, found)
        return True

    def _placed(self, job: Job, found: Plan, *, loan_of: str = "", ahead_of: str = "") -> None:
        hosts = {place.host for place in (*job.places, *found.places)}
        if job.places:
            # What it leaves is free now.
            self.with_gpus = None
        place(self.step, job, found, loan_of=loan_of, ahead_of=ahead_of, why=self.open_hosts.why_there(job, hosts))
        self.preemption.placed(frozenset(hosts))
        self.left.shrunk()
        self.over.clear()

    def _reserve(self, job: Job) -> None:
        self._make_room(job)
        if not self.first and self.by_time and not job.places and (end := self.open_hosts.last_end(job)):
            self.too_long[self.open_hosts.shape(job)] = end
        self.first = self.first or job.id
        if self.by_time:
            self.kept.waits(job)
        if self.open_hosts.shape(job) not in self.reserved and not self.plans_spent:
            self.reserved.add(self.open_hosts.shape(job))
            if self.reservations.keeps_enough_everywhere(job.gang):
                return
            if self.reservations.reserve(job.gang, self.hosts, self.open_hosts.reserved_before(job)):
                self.left.shrunk()
                self.open = None

    def _leave_all(self, job: Job) -> None:
        """Keep nothing for a job that waits for hosts which have not joined, nor for those of its shape behind it."""
        self.reserved.add(self.open_hosts.shape(job))
        if self.by_time:
            self.kept.leave_out(job)

    def _backfill(self, job: Job) -> bool:
        """Start a job ahead of its turn where that delays no projected start."""
        if not self.first or not self.by_time or job.gang.strategy is Strategy.SPOT:
            return False
        if self.plans_spent or self.backfills_in_vain >= BACKFILLS_IN_VAIN or self.kept.spent:
            return False
        shape = self.open_hosts.shape(job)
        longest = self.too_long.get(shape, math.inf)
        # Most jobs of a long queue end here; an estimate for each would take longer than all the rest.
        if longest == NEVER or (until := ends_at(self.step.cluster, job, self.step.now)) > longest:
            return False
        late = NEVER
        for beside in (False, True):
            found = self._plan_backfill(job, until, beside=beside)
            if found is None:
                late = max(late, self.kept.passable) if until > self.kept.passable else late
                break
            delayed = self.kept.delayed_by(job, found, until)
            if delayed is None:
                self._placed(job, found, ahead_of=self.first)
                return True
            late = delayed
            self.backfills_in_vain += 1
        late = max(late, self._await_room(job, until), self.open_hosts.last_end(job))
        if not job.places:
            self.too_long[shape] = late
        return False

    def _await_room(self, job: Job, until: Wall) -> Wall:
        """Leave a job the hosts on which it fits once all that are stopping are gone, if it delays none ahead of it.

        The result is when it would have to end for that; ``NEVER`` where it doesn't fit, or has them.
        """
        if not self.preemption.leaving:
            return NEVER
        self.kept.project()
        closed = self.closed | self.kept.claimed
        hosts = [host for host in self.open_hosts.of(job, self._backfillable(job)) if host.name not in closed]
        coming = self.preemption.coming(job, hosts, self.kept.limit(until))
        late = NEVER if coming is None else self.kept.delayed_by(job, coming, until)
        if coming is None or late is not None:
            self.backfills_in_vain += 1
            return late or NEVER
        self.closed |= {place.host for place in coming.places}
        return NEVER

    def _lend(self, job: Job) -> bool:
        """Start a job on what is kept for those ahead of it, as a loan."""
        may_be_lent = self.step.policies.lends_to(job.gang) and may_claim(self.step.cluster, job)
        if not self.first or not may_be_lent or self._finds_no_loan(self.open_hosts.kind(job)):
            return False
        if self.step.policies.backfill is Backfill.LOAN:
            self.kept.project()
        found = self._plan_loan(job, self._not_lent)
        if isinstance(found, Wait):
            if not job.places:
                self.unlendable.add(self.open_hosts.kind(job))
            return False
        self._placed(job, found, loan_of=self.first)
        return True

    def _finds_no_loan(self, kind: str) -> bool:
        return kind in self.unlendable or self.loans_in_vain >= PLANS_IN_VAIN

    def _make_room(self, job: Job) -> None:
        """Preempt for a waiting job if it then fits, and lend nothing of the hosts on which it will."""
        spot = job.gang.strategy is Strategy.SPOT
        if self._makes_no_room(job) or not may_claim(self.step.cluster, job):
            return
        if spot:
            not_lent = self._not_lent
            hosts = [host for host in self.hosts if host.name not in not_lent]
            hosts = hosts if self.preemption.may_find_any_on(job.gang, hosts) else []
            room = self.preemption.find_room(job, hosts) if hosts else None
        else:
            # What those of its shape ahead of it could use is closed to it.
            own = [] if self.open_hosts.shape(job) in self.reserved else self.open_hosts.of(job, self._left_to(job))
            hosts = [host for host in own if host.name not in self.booked.places]
            hosts = hosts if self.preemption.may_find_any_on(job.gang, hosts) else []
            room = self.preemption.find_room(job, hosts, self.reservations.limit) if hosts else None
        if room is None:
            self.trials_in_vain += bool(hosts)
            if spot and not job.places:
                self.no_room[self.open_hosts.shape(job)] = job.turn
            return
        self.closed |= room.hosts
        self.with_gpus = None
        self.preemption.stop(self.step, job, room)

    def _makes_no_room(self, job: Job) -> bool:
        """Whether no other job is stopped any more in this pass for one of this kind."""
        spot = job.gang.strategy is Strategy.SPOT
        if not self.preemption.may_find_any or self.trials_in_vain >= (TRIALS_IN_VAIN if spot else PLANS_IN_VAIN):
            return True
        since = self.no_room.get(self.open_hosts.shape(job))
        return spot and (not self.preemption.serves_spot or (since is not None and job.turn >= since))
