"""One job, the fold of its events, mutated in place by ``fold`` alone.

The part of its life that it is in is ``phase``; the rest is grouped by what changes together.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.model.arrays import Element
from holdfast_controller.core.model.budgets import Budgets, Recovery
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.goodput import JobLedger
from holdfast_controller.core.model.hang import Hang
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.injection import AFTERMATH_S, Injection
from holdfast_controller.core.model.job_state import TERMINAL, JobState
from holdfast_controller.core.model.phase import DECIDED, Ended, Held, JobPhase, Leave, Loan, Paused, Placed, Queued
from holdfast_controller.core.model.placement import Attempt, GangLaunch, Placement
from holdfast_controller.core.model.queue import Turn
from holdfast_controller.core.model.recovery import EndReason, Recover
from holdfast_controller.core.model.runtime import Started
from holdfast_controller.core.model.slowness import Slowdown
from holdfast_controller.core.model.underuse import Underuse

if TYPE_CHECKING:
    pass


class WorkerState(enum.Enum):
    """The state of one worker; ENDED means that it is proven gone."""

    ASSIGNED = "ASSIGNED"
    PREPARED = "PREPARED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    ENDED = "ENDED"


class Leaving(enum.Enum):
    """Why an attempt is being ended while the job is not: to place it again, or to pause it."""

    RETRY = "RETRY"
    PAUSE = "PAUSE"


class Unreconciled(enum.Enum):
    """After a restore: OPEN, its hosts have yet to report it; CLEARING, what is left of it is being stopped."""

    OPEN = "OPEN"
    CLEARING = "CLEARING"


@dataclass
class Job:
    """A job: the fold of its events."""

    id: str
    owner: str
    request_id: str
    display_name: str
    labels: dict[str, str]
    gang: Gang
    spec_json: str
    created_at: Wall
    annotations: dict[str, str] = field(default_factory=dict)
    kms_key: str = ""
    """Kept, and never used."""
    deleted: bool = False
    """Whether users see it no more; it has ended then."""
    output_on: set[str] = field(default_factory=set)
    """Hosts that have yet to delete the output of this deleted job."""
    number: int = 0
    """Sequence of its submission in the log: the order of creation."""
    cursor: int = 0
    """Sequence of its newest event."""
    updated_at: Wall = NEVER
    started_at: Wall | None = None
    """When it first ran."""
    ran_s: float = 0.0
    """Run time of earlier attempts."""
    state: JobState = JobState.QUEUED
    phase: JobPhase = field(default_factory=lambda: Queued(since=NEVER))
    vacating: Leaving | None = None
    """Set while the attempt's workers are stopped for good, though the job goes on."""
    unreconciled: Unreconciled | None = None
    generation: int = 0
    """The newest of any worker."""
    placement: Placement = field(default_factory=Placement)
    launch: GangLaunch = field(default_factory=GangLaunch)
    stop_reason: ExitReason = ExitReason.STOPPED
    """Why whatever is older than the current generation, or all of an ending job, is stopped."""
    last_end: EndReason | None = None
    warned: int = 0
    """Ranks of generations up to this one get the warning signal."""
    budgets: Budgets = field(default_factory=Budgets)
    recoveries: list[Recovery] = field(default_factory=list)
    hangs: list[Hang] = field(default_factory=list)
    underuse: Underuse | None = None
    """GPUs that it doesn't use; None while all may be in use."""
    unused_gpu_s: float = 0.0
    """GPU seconds for which GPUs were found unused, before ``underuse``."""
    slowdown: Slowdown | None = None
    """It is slower than at its best; None while it isn't."""
    slowed_gpu_s: float = 0.0
    """GPU seconds that slowness has cost, before ``slowdown``."""
    paused_by: str = ""
    """Who asked for its newest pause; empty where that isn't recorded."""
    held_until: Wall | None = None
    """Until then no hang is acted on."""
    injections: list[Injection] = field(default_factory=list)
    """The newest faults that were injected."""
    attempts: list[Attempt] = field(default_factory=list)
    """Every placement so far, the current one included."""
    single_launches: dict[int, int] = field(default_factory=dict)
    """By generation that launched one worker and not the gang: that worker."""
    unlaunched: set[int] = field(default_factory=set)
    """Generations that were given up before their launch."""
    skipped: list[tuple[int, int]] = field(default_factory=list)
    """First and last of generations of which the restored log doesn't know whether they were launched."""
    unsure_below: int = 0
    """Records of generations below this may have been lost with the log."""
    exits: dict[int, dict[int, Exit]] = field(default_factory=dict)
    """Terminal records by generation and rank."""
    ledger: JobLedger | None = None
    """Use of its GPUs' time; None before its first share, and after its end."""
    late_exits: list[Exit] = field(default_factory=list)
    unarchived: dict[str, str] = field(default_factory=dict)
    """By worker: why its output is not in the base output directory."""

    @cached_property
    def tallies(self) -> dict[int, object]:
        """By generation: see ``tally``, which alone uses it. It can be made again from the records."""
        return {}

    @cached_property
    def worded(self) -> list[tuple[tuple[Place, ...], str]]:
        """The words of its newest places: see ``words_of``, which alone uses it."""
        return []

    @property
    def terminal(self) -> bool:
        """Nothing more happens to it."""
        return self.state in TERMINAL

    @property
    def project(self) -> str:
        """The project that it is of."""
        return self.gang.project

    @property
    def whose(self) -> tuple[str, str]:
        """Its project and its owner."""
        return self.gang.project, self.owner

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.gang.gpus

    @property
    def element(self) -> Element | None:
        """Its place in its array, if it is of one."""
        return self.gang.array

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its workers, in gang order; empty before the first placement."""
        return tuple(place.host for place in self.placement.places)

    @property
    def unmet(self) -> tuple[Dependency, ...]:
        """Jobs whose ends it waits for, before it waits for hosts."""
        return self.phase.unmet if isinstance(self.phase, Held | Paused) else ()

    @property
    def waits_for_turn(self) -> bool:
        """Whether it waits for its turn in its array, and for nothing else."""
        return isinstance(self.phase, Held) and not self.phase.unmet and not self.phase.missed

    @property
    def has_turn(self) -> bool:
        """Whether it has its turn in its array: it was let into the queue, and has not ended or been paused since."""
        return not isinstance(self.phase, Held | Paused | Ended)

    @property
    def missed(self) -> str:
        """Why it was paused: the dependency that can't be met any more, in words; else empty."""
        return self.phase.missed if isinstance(self.phase, Held | Paused) else ""

    @property
    def queued_since(self) -> Wall | None:
        """Since when it waits for hosts; None unless it does."""
        return self.phase.since if isinstance(self.phase, Queued) else None

    @property
    def over_quota(self) -> bool:
        """Its project's quota keeps it from starting."""
        return isinstance(self.phase, Queued) and self.phase.over_quota

    @property
    def lacks_hosts_since(self) -> Wall | None:
        """Since when it waits for hosts alone, as ``maxWaitDuration`` counts; None while its quota keeps it."""
        if not isinstance(self.phase, Queued) or self.phase.over_quota:
            return None
        return self.phase.since if self.phase.quota_since is None else self.phase.quota_since

    @property
    def given_up_at(self) -> Wall | None:
        """When its longest wait for hosts is over; None where it has none, or its quota keeps it."""
        since = self.lacks_hosts_since
        return Wall(since + self.gang.max_wait_s) if since is not None and self.gang.max_wait_s else None

    @property
    def placement_attempts(self) -> int:
        """Placements that failed so far, of a job that doesn't wait for capacity."""
        return self.phase.placement_attempts if isinstance(self.phase, Queued) else 0

    @property
    def reserved(self) -> frozenset[int]:
        """Workers of the last attempt whose allocation is kept for the next one."""
        return self.phase.reserved if isinstance(self.phase, Queued) else frozenset()

    @property
    def excluded(self) -> frozenset[str]:
        """Hosts that the next placement avoids if it can."""
        return self.phase.excluded if isinstance(self.phase, Queued) else frozenset()

    @property
    def not_before(self) -> Wall | None:
        """The earliest time of the next placement or launch, after a back-off."""
        phase = self.phase
        if isinstance(phase, Queued):
            return phase.not_before
        return self.launch.not_before if isinstance(phase, Placed) else None

    @property
    def outcome(self) -> JobState | None:
        """The decided end; the job has it once every worker is proven gone."""
        return self.phase.outcome if isinstance(self.phase, DECIDED) else None

    @property
    def error(self) -> JobError | None:
        """Why it fails, or has failed."""
        return self.phase.error if isinstance(self.phase, DECIDED) else None

    @property
    def ended_at(self) -> Wall | None:
        """When it reached its final state."""
        return self.phase.at if isinstance(self.phase, Ended) else None

    @property
    def pause_due(self) -> Wall | None:
        """When its ranks, which were warned of a pause, are stopped."""
        return self.phase.pause_due if isinstance(self.phase, Placed) else None

    @property
    def leave(self) -> Leave | None:
        """The stop of which its ranks were warned: a preemption, or a host's shutdown."""
        return self.phase.leave if isinstance(self.phase, Placed) else None

    @property
    def loan(self) -> Loan | None:
        """The loan of its GPUs, where it started out of turn."""
        return self.phase.loan if isinstance(self.phase, Placed) else None

    @property
    def revocable(self) -> bool:
        """Whether a job ahead of it may have its GPUs: it is SPOT, or they are on loan."""
        return self.gang.strategy is Strategy.SPOT or self.loan is not None

    @property
    def no_claim_before(self) -> Wall | None:
        """Until then it starts only in turn and on free hosts, after it gave way or crashed soon after its start."""
        return self.phase.no_claim_before if isinstance(self.phase, Queued) else None

    @property
    def attempt(self) -> int:
        """Number of the newest placement; 0 before the first."""
        return self.placement.attempt

    @property
    def places(self) -> tuple[Place, ...]:
        """The workers' placements, in gang order; empty before the first."""
        return self.placement.places

    @property
    def spares(self) -> tuple[Place, ...]:
        """Its own spares, of the index of its workers on."""
        return self.placement.spares

    def is_spare(self, index: int) -> bool:
        """Whether a share with this index is none of a worker's."""
        return index >= len(self.gang.members)

    @property
    def started(self) -> dict[int, Started]:
        """Workers of the current launch that were seen running."""
        return self.launch.started

    @property
    def stopping(self) -> bool:
        """Its workers are, or were, stopped for good: the job ends, or this attempt of it."""
        waits = self.state in (JobState.QUEUED, JobState.PAUSED)
        return self.outcome is not None or self.vacating is not None or waits

    @property
    def turn(self) -> Turn:
        """Its place among those that wait: first whose attempt failed, then by priority, SPOT last, by submission.

        Who was preempted didn't fail: it is served when it would have been had it never run.
        """
        failed = self.vacating is Leaving.RETRY and self.last_end is not EndReason.PREEMPTED
        return (not failed, -self.gang.priority, self.gang.strategy is Strategy.SPOT, self.number)

    @property
    def line(self) -> str:
        """Its line in the queue, as ``Queue`` has it: only a job that was never placed waits like others.

        One that a quota keeps waits like those of its project and its owner.
        """
        if self.places:
            return ""
        return f"{self.gang.kind} of {self.owner} in {self.project}" if self.over_quota else self.gang.kind

    @property
    def awaited(self) -> list[int]:
        """Workers whose place is not proven empty."""
        return [index for index in range(len(self.places)) if index not in self.placement.emptied]

    @property
    def launched(self) -> bool:
        """The current generation was launched."""
        return self.launch.rendezvous is not None

    @property
    def restarts_in_place(self) -> int:
        """Launches that needed no scheduling, over the job's life, without those upon hangs."""
        in_place = (recovery for recovery in self.recoveries if recovery.recover is Recover.PROC_RESTART)
        return sum(recovery.end_reason is not EndReason.HANG for recovery in in_place)

    def place_at(self, generation: int, index: int) -> Place | None:
        """A worker's placement in a generation; None for a generation that was never placed."""
        found = [attempt for attempt in self.attempts if attempt.generation <= generation]
        return found[-1].places[index] if found and index < len(found[-1].places) else None

    def generation_of(self, index: int) -> int:
        """The generation that a worker is in."""
        return self.launch.relaunched.get(index, self.launch.generation)

    def starts_of(self, index: int) -> int:
        """Launches of a worker since its placement, the one that it is in included."""
        first = self.attempts[-1].generation if self.attempts else 1
        launches = range(first, self.generation_of(index) + 1)
        return sum(self.single_launches.get(generation, index) == index for generation in launches)

    def was_launched(self, generation: int, index: int) -> bool:
        """Whether a worker was ever ordered to start in a generation."""
        newest = self.generation if self.launched else self.generation - 1
        if not 1 <= generation <= newest or generation in self.unlaunched:
            return False
        if self.single_launches.get(generation, index) != index or self.is_skipped(generation):
            return False
        return not (index in self.launch.deferred and generation == self.launch.relaunched.get(index))

    def is_skipped(self, generation: int) -> bool:
        """Whether a restored log can't say if the generation was launched."""
        return any(first <= generation <= last for first, last in self.skipped)

    def exits_now(self) -> dict[int, Exit]:
        """Exits of every worker's current generation, by rank."""
        if not self.launch.relaunched:
            return self.exits.get(self.generation, {})
        found: dict[int, Exit] = {}
        for member in self.gang.members:
            ended = self.exits.get(self.generation_of(member.index), {})
            found.update((rank, ended[rank]) for rank in member.ranks if rank in ended)
        return found

    def is_rehearsed(self, generation: int, at: float) -> bool:
        """Whether what a generation suffers at that time may be the work of a fault that was injected into it."""
        return any(each.generation == generation and at <= each.until + AFTERMATH_S for each in self.injections)

    def exit_of(self, generation: int, rank: int) -> Exit | None:
        """The terminal record of a rank of a generation."""
        return self.exits.get(generation, {}).get(rank)
