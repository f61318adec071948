"""One step of the reactor in progress: the state, the time, and the events and actions decided so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._session.assignment import Phase
from holdfast._session.reports import Exit
from holdfast_controller.core.events import Event
from holdfast_controller.core.events.end import JobEnding
from holdfast_controller.core.events.generation import ProgressRecorded
from holdfast_controller.core.events.recovery import AttemptEnded, RankExited, RestartDecided
from holdfast_controller.core.fold.job import fold, fold_exits
from holdfast_controller.core.goodput.progress import recorded
from holdfast_controller.core.messages.job import exit_message, message_of
from holdfast_controller.core.model.accounts.quota import Quotas
from holdfast_controller.core.model.accounts.shares import HALF_LIFE_S
from holdfast_controller.core.model.accounts.users import RunAs, SignInPolicy
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.goodput import Bookings
from holdfast_controller.core.model.hosts.host import place_key
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.model.hosts.machine_types import MachineType
from holdfast_controller.core.model.hosts.measurements import HostChecks
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.step.actions import Action, Assign
from holdfast_controller.core.step.assignment import desired
from holdfast_controller.core.step.timers import Timers

ENDS_OF_GENERATIONS = (RestartDecided, AttemptEnded, JobEnding)
STATE_NAMES = {state: state.name for state in JobState}
"""``name`` of an enum is a property, and each event asks for it."""


@dataclass(frozen=True)
class Policies:
    """Settings of the core, fixed at its start. ``secret_key`` seeds each generation's rendezvous secret."""

    leases: LeasePolicy = field(default_factory=LeasePolicy)
    secret_key: bytes = b""
    max_jobs: int = 100_000
    """Jobs that may be waiting or running at once."""
    waiting_jobs_per_user: int = 10_000
    """Jobs of one user that may be in the queue at once."""
    waiting_jobs_per_project: int = 50_000
    """The same for a project whose quota doesn't say."""
    cluster_name: str = "holdfast"
    quotas: Quotas = field(default_factory=dict)
    """By project; a project without one has no limit."""
    admins: frozenset[str] = frozenset()
    """Users who are admins by configuration."""
    injection_projects: frozenset[str] = frozenset()
    """Projects into whose jobs faults may be injected; ``*``: all."""
    run_as: RunAs = RunAs.SERVICE
    spares: tuple[SpareRule, ...] = ()
    """Hosts that are kept back for jobs that lose one."""
    machine_types: tuple[MachineType, ...] = ()
    """Classes of hosts that jobs may ask for by name."""
    backfill: Backfill = Backfill.STRICT
    """Of a core by itself; the settings of a controller have another default."""
    usage_half_life_s: float = HALF_LIFE_S
    """Seconds after which what a project has used of GPUs counts half."""
    loan_s: float = 3600.0
    """Seconds that a job on loan runs before one takes its GPUs back that can't at once, as STANDARD can from SPOT."""
    keep_jobs_s: float = 0.0
    """Seconds that a job is kept after its end; 0: for ever."""
    keep_jobs: int = 0
    """Jobs that have ended and are kept, the newest ones; 0: all."""
    health_cordons_pct: int = 10
    """Share of the hosts that findings about hardware may keep from work at a time; 0: none."""
    host_checks: HostChecks = field(default_factory=HostChecks)
    sign_in: SignInPolicy = field(default_factory=SignInPolicy)
    """Rules for users of the site's identity provider."""

    def lends_to(self, gang: Gang) -> bool:
        """Whether a gang that can't start in turn may start on loan."""
        return self.backfill is Backfill.LOAN or gang.strategy is Strategy.SPOT


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the event log: sequence number, event, the job's state after it, and the event in words."""

    sequence: int
    event: Event
    state: str
    message: str


@dataclass(frozen=True)
class Decision:
    """A step's result: entries to make durable, then actions to perform."""

    entries: tuple[Entry, ...]
    actions: tuple[Action, ...]
    bookings: Bookings = field(default_factory=Bookings)
    """Entries of the goodput ledger, kept in the same commit."""


@dataclass
class Step:
    """One step in progress: ``emit`` events, ``do`` actions, ``touch`` workers; then ``send_orders``."""

    cluster: Cluster
    policies: Policies
    timers: Timers
    now: Now
    entries: list[Entry] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    touched: dict[tuple[str, int], None] = field(default_factory=dict)
    capacity_freed: bool = False

    def emit(self, event: Event) -> None:
        """Fold an event into the state and append it to the log, after the progress of a generation that it ends."""
        if isinstance(event, ENDS_OF_GENERATIONS):
            self._record_progress(event)
        self._append(event)

    def emit_exits(self, job: Job, worker: str, exits: Sequence[Exit]) -> None:
        """Emit the ends of a worker's ranks, together: most events are such, a gang has thousands of them at once."""
        at = self.now.wall
        events = [RankExited(job_id=job.id, at=at, worker=worker, exit=exit_) for exit_ in exits]
        if events:
            first = self.cluster.sequence + 1
            fold_exits(self.cluster, events)
            state = STATE_NAMES[job.state]
            self.entries += [Entry(n, event, state, exit_message(event)) for n, event in enumerate(events, first)]

    def _append(self, event: Event) -> None:
        fold(self.cluster, event)
        job = self.cluster.jobs.whole.get(getattr(event, "job_id", ""))
        state = STATE_NAMES[job.state] if job is not None else ""
        self.entries.append(Entry(self.cluster.sequence, event, state, message_of(event, job)))

    def _record_progress(self, event: RestartDecided | AttemptEnded | JobEnding) -> None:
        runtime, job = self.cluster.runtime.get(event.job_id), self.cluster.jobs[event.job_id]
        watch = runtime.progress if runtime is not None else None
        ledger = job.ledger
        one_of_many = isinstance(event, RestartDecided) and event.worker is not None
        if runtime is None or watch is None or ledger is None or ledger.ran_since is None or one_of_many:
            return
        runtime.progress = None
        until = max(round(event.at * 1000), ledger.clock)
        progress = recorded(watch, max(ledger.ran_since, watch.since), until)
        if progress is not None:
            generation = watch.generation
            self._append(ProgressRecorded(job_id=job.id, at=event.at, generation=generation, progress=progress))

    def do(self, action: Action) -> None:
        """Perform ``action`` once this step's events are durable."""
        self.actions.append(action)

    def touch(self, job: Job, *indices: int) -> None:
        """The desired state of these workers (all, without any) may have changed; it is sent at the end."""
        for index in indices or range(len(job.places)):
            self.touched[job.id, index] = None

    def send_orders(self) -> None:
        """Send each touched worker's desired state, as it is now, to hosts that have a session."""
        for job_id, index in self.touched:
            job = self.cluster.jobs[job_id]
            host = job.places[index].host
            presence = self.cluster.presence_of(host)
            if presence.session is not None:
                order = desired(self.cluster, job, index, self.policies.leases.fence_s)
                key = place_key(job_id, index)
                if order.phase is Phase.FORGET:
                    presence.forgetting.append(key)
                elif key in presence.forgetting:
                    presence.forgetting.remove(key)
                self.actions.append(Assign(host, presence.session, order))

    def decision(self) -> Decision:
        """The entries and actions that were decided so far."""
        bookings, self.cluster.bookings = self.cluster.bookings, Bookings()
        return Decision(tuple(self.entries), tuple(self.actions), bookings)
