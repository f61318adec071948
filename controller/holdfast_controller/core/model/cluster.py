"""The controller's whole state: jobs and hosts, which are the fold of the event log, and what is gone after a restart.

Reports that agents send again (``Runtime``, ``Presence``) are kept apart from the fold: they are not in the log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from holdfast._base.dataclass import dataclass
from holdfast.hang.judge.common_cause import SuspectJob
from holdfast.hang.judge.watch import JobWatch
from holdfast_controller.core.model.accounts.quota import Holdings
from holdfast_controller.core.model.accounts.shares import Shares
from holdfast_controller.core.model.accounts.users import People
from holdfast_controller.core.model.arrays import Arrays
from holdfast_controller.core.model.clock import BOOT, NEVER, ClockTrust, Mono, Wall
from holdfast_controller.core.model.dependencies import Dependents
from holdfast_controller.core.model.goodput import Bookings
from holdfast_controller.core.model.hang import KeptWatch, SharedCause
from holdfast_controller.core.model.hosts.free_capacity import FreeCapacity
from holdfast_controller.core.model.hosts.host import FailedCheck, Host, Liveness, Presence
from holdfast_controller.core.model.hosts.machine_types import MachineType
from holdfast_controller.core.model.hosts.reservations import Choice, HostReservations
from holdfast_controller.core.model.jobs import Jobs, PurgedJobs
from holdfast_controller.core.model.queue import Queue
from holdfast_controller.core.model.run_times import RunTimes
from holdfast_controller.core.model.runtime import Runtime
from holdfast_controller.core.model.schedules import Schedule, Template

if TYPE_CHECKING:
    from holdfast._session.reports import WorkerReport
    from holdfast_controller.core.model.exits import ExitsReported


@dataclass(frozen=True, slots=True)
class Answer:
    """``digest`` is of the call's content; ``subject`` the job's id or the host's name."""

    digest: str
    subject: str


@dataclass
class Cluster:
    """Everything. ``sequence`` numbers the log; ``epoch`` is this controller's term."""

    epoch: int = 0
    sequence: int = 0
    jobs: Jobs = field(default_factory=Jobs)
    hosts: dict[str, Host] = field(default_factory=dict)
    measuring: set[str] = field(default_factory=set)
    """Jobs that measure hosts and have not ended."""
    sparing: set[str] = field(default_factory=set)
    """Jobs that ask for spares of their own and have not ended."""
    draining: set[str] = field(default_factory=set)
    """Hosts that are being drained, or have been and take no work yet."""
    queue: Queue = field(default_factory=Queue)
    dependents: Dependents = field(default_factory=Dependents)
    arrays: Arrays = field(default_factory=Arrays)
    holdings: Holdings = field(default_factory=Holdings)
    unplaceable: set[str] = field(default_factory=set)
    """Shapes of waiting gangs that did not fit at the last pass over the queue; freed capacity brings a new pass."""
    too_long: dict[str, Wall] = field(default_factory=dict)
    """By shape of gangs that fit ahead of their turn but for the time that they take: when they have to end."""
    promised: dict[str, Wall] = field(default_factory=dict)
    """By waiting job: its first projected start. Not in the log: a controller that starts projects again."""
    unprojected: dict[str, Mono] = field(default_factory=dict)
    """By waiting job whose start can't be projected: since when. Not in the log either."""
    spares: dict[str, str] = field(default_factory=dict)
    """By host that is kept back for jobs that lose one: the rule that says so, as of the last pass over the queue."""
    machine_types: tuple[MachineType, ...] = ()
    """Of the settings."""
    run_times: RunTimes = field(default_factory=RunTimes)
    shares: Shares = field(default_factory=Shares)
    reservations: HostReservations = field(default_factory=HostReservations)
    chosen: Choice | None = None
    """The hosts that reservations had at the last look. Not in the log: a controller that starts chooses again."""
    schedules: dict[str, Schedule] = field(default_factory=dict)
    """By PROJECT/NAME."""
    templates: dict[str, Template] = field(default_factory=dict)
    """By PROJECT/NAME."""
    next_runs: dict[str, Wall | None] = field(default_factory=dict)
    """By schedule that is active: when it is due next, once that was looked up; None: never again."""
    runs_made_at: int = 0
    """Number of the newest event of the step that last submitted jobs of schedules."""
    full: frozenset[str] = frozenset()
    """Users and projects, such as ``user/ann``, whose jobs take all of the controller's disk that they may."""
    dirty_jobs: set[str] = field(default_factory=set)
    """Jobs that have changed since the last snapshot by what is about none of them."""
    dirty_hosts: set[str] = field(default_factory=set)
    """Hosts that have changed since the last snapshot; see ``host_changed``."""
    host_changes: Counter[str] = field(default_factory=Counter, compare=False)
    """By host: how many changes of its fields were noted."""
    dirty_plans: set[str] = field(default_factory=set)
    """Schedules and templates that have changed since the last snapshot, as ``schedule/KEY`` and ``template/KEY``."""
    free_capacity: FreeCapacity = field(default_factory=FreeCapacity)
    can_fit: set[str] = field(default_factory=set)
    """Kinds of gangs that all hosts that are open to them can hold together when they are empty."""
    cannot_fit: set[str] = field(default_factory=set)
    """Kinds of waiting gangs that all hosts that have joined can't: they keep no host from others."""
    purged: PurgedJobs = field(default_factory=PurgedJobs)
    """Ids of jobs of which nothing else is left: none is given to another job."""
    output_on: dict[str, set[str]] = field(default_factory=dict)
    """By host: deleted jobs whose output it has yet to delete, as the jobs have it."""
    requests: dict[tuple[str, str], str] = field(default_factory=dict)
    """Job by (owner, request id)."""
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    """By (caller, request id), oldest first: what was answered."""
    presence: dict[str, Presence] = field(default_factory=dict)
    """By host; what decides whether it is connected is changed by the methods below alone."""
    schedulable: list[Host] | None = field(default=None, compare=False)
    """The hosts that take work, as last found; None once a host, or its presence, has changed since."""
    in_maintenance: list[Host] = field(default_factory=list, compare=False)
    """Those of them that have a maintenance window, now or to come."""
    coming_back: list[Host] = field(default_factory=list, compare=False)
    """The hosts that take no work, as last found, until their maintenance is over, whose end is planned."""
    awaited_hosts: set[str] = field(default_factory=set)
    """Hosts that have not connected since this controller started, and still have time to."""
    listening_since: Mono = BOOT
    """When the controller started, or ran again after it stood still: no silence of a host from before counts."""
    stopped_at: Wall = NEVER
    """When the controller before this one last ran, as far as that is known."""
    spared_until: Mono = BOOT
    """No host is declared lost before this time, since most were silent just now."""
    mass_silence: bool = False
    """Most hosts are silent, and that was recorded."""
    failed_checks: dict[str, FailedCheck] = field(default_factory=dict)
    """Of the controller's own machine, by name."""
    clock_trust: ClockTrust = field(default_factory=ClockTrust)
    unlendable: set[str] = field(default_factory=set)
    """Kinds of gangs that loans are for and for which not enough was free at the last pass, in turn or out of it."""
    elapsed_loans: dict[str, int] = field(default_factory=dict)
    """By job: the attempt whose loan, or after which its ``no_claim_before``, has lasted long enough."""
    elapsed_backoffs: dict[str, Wall] = field(default_factory=dict)
    """By job: the ``not_before`` that has passed on the monotonic clock, whatever the wall clock says."""
    runtime: dict[str, Runtime] = field(default_factory=dict)
    watches: dict[str, tuple[int, JobWatch]] = field(default_factory=dict)
    """By job: the generation that is watched for hangs, and what is remembered of it."""
    kept_watches: dict[str, tuple[Mono, KeptWatch]] = field(default_factory=dict)
    """By job: what was last written down of its watch, and when on our monotonic clock."""
    suspects: dict[str, SuspectJob] = field(default_factory=dict)
    shared_causes: list[SharedCause] = field(default_factory=list)
    people: People = field(default_factory=People)
    bookings: Bookings = field(default_factory=Bookings)
    """Entries of the goodput ledger that the next commit keeps."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """For each restore from a backup: the last event that is left of what was before, and the first after it."""
    found: dict[str, dict[int, dict[str, WorkerReport]]] = field(default_factory=dict)
    """By unreconciled job, worker and host: the newest report since this controller started."""
    reported_hosts: set[str] = field(default_factory=set)
    """Hosts that have reported their workers since this controller started."""
    reconcile_until: Mono = BOOT
    """Jobs that no host has reported are not decided on before this time."""
    deferred_exits: dict[str, list[ExitsReported]] = field(default_factory=dict)
    """By unreconciled job: exits that were reported meanwhile."""

    @property
    def last_ran(self) -> Wall:
        """When the controller before this one last ran, by what it has left."""
        return max(self.shares.at, self.stopped_at)

    def runtime_of(self, job_id: str) -> Runtime:
        """The job's runtime, made when first asked for; nothing is kept of a job that has ended."""
        found = self.runtime.get(job_id)
        if found is None:
            found = Runtime()
            job = self.jobs.head(job_id)
            if job is not None and not job.terminal:
                self.runtime[job_id] = found
        return found

    def goes_on(self, name: str) -> bool:
        """Whether there is a job, or an array, of that id that has not ended."""
        if (array := self.arrays.get(name)) is not None:
            return array.outcome is None
        job = self.jobs.head(name)
        return job is not None and not job.terminal

    def host_changed(self, name: str) -> None:
        """Note that fields of a host change in this step."""
        self.dirty_hosts.add(name)
        self.host_changes[name] += 1

    def forget_fits(self) -> None:
        """Hosts have joined, changed or gone: what all of them can hold is found again."""
        self.can_fit.clear()
        self.cannot_fit.clear()

    def let_go(self, upto: int, keep: int | None = None) -> bool:
        """Keep but heads of some ended jobs that nothing needs and that the snapshots contain; see ``Jobs``."""
        return self.jobs.let_go(upto, self.holdings.gpus_by_job, keep)

    def presence_of(self, host: str) -> Presence:
        """The host's presence, made when first asked for."""
        found = self.presence.get(host)
        if found is None:
            found = self.presence[host] = Presence()
        return found

    def begin_session(self, host: str, session: int) -> None:
        """Note that an agent has connected."""
        self.presence_of(host).session, self.schedulable = session, None

    def end_session(self, host: str) -> None:
        """Note that a host has no session any more."""
        presence = self.presence_of(host)
        presence.session, self.schedulable = None, None
        presence.silent_peers.clear()

    def judge_presence(self, host: str, liveness: Liveness) -> None:
        """Note whether a host is heard from."""
        self.presence_of(host).liveness, self.schedulable = liveness, None
