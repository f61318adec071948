"""What the durable log says, kept by the oracles for themselves: nothing of it is taken from the cores' models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.sim.cluster.database import Record

from holdfast._base.job_file.choices import DependencyEnd
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.arrays import Element
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import EndReason

FAILED_PRECONDITION = 9
_WANTED: dict[DependencyEnd, Callable[[str], bool]] = {
    DependencyEnd.OK: lambda ended: ended == "SUCCEEDED",
    DependencyEnd.ANY: bool,
    DependencyEnd.FAILED: lambda ended: ended in ("FAILED", "CANCELLED", "EXPIRED"),
}
Check = Callable[[bool, str, str], None]
"""(whether it holds, the oracle's name, what is wrong)."""


@dataclass
class JobAccount:
    """Of one job."""

    gang: Gang
    number: int = 0
    """Of its submission."""
    generation: int = 0
    placements: list[tuple[int, tuple[Place, ...]]] = field(default_factory=list)
    """(first generation, places)."""
    launched: dict[int, Rendezvous] = field(default_factory=dict)
    """By generation of the whole gang."""
    alone: dict[int, int] = field(default_factory=dict)
    """Generations of one worker: which."""
    waits: set[int] = field(default_factory=set)
    """Of those, which may not be launched yet."""
    stopped: int = 0
    """Every generation up to this one was to be stopped."""
    stopped_of: dict[int, int] = field(default_factory=dict)
    """The same by worker."""
    warned: int = 0
    on_loan: bool = False
    """Its newest placement was out of turn."""
    failed: bool = False
    """Its last attempt ended by a failure: it is served before all others."""
    exits: set[tuple[int, int]] = field(default_factory=set)
    outcome: str = ""
    ended: str = ""
    told: set[str] = field(default_factory=set)
    """Jobs of whose ends it was told."""
    has_turn: bool = False
    """In its array."""
    missed: bool = False
    """One of them has ended otherwise than it waited for."""
    let_go: bool = False
    """A user has resumed it since, as it is to be paused for that, or was while a restore had yet to find it."""
    gives_way_to: str = ""
    """The job of which its ranks were told."""

    def place(self, generation: int, worker: int) -> Place | None:
        """Where a worker was to be in a generation."""
        found = [places for first, places in self.placements if first <= generation]
        return found[-1][worker] if found else None

    def stop_due(self, worker: int, generation: int) -> bool:
        """Whether something durable says that this generation of a worker is to end."""
        return max(self.stopped, self.stopped_of.get(worker, 0)) >= generation

    def rendezvous(self, generation: int) -> Rendezvous | None:
        """By which a generation finds its peers: that of the gang's last launch."""
        return max(((g, found) for g, found in self.launched.items() if g <= generation), default=(0, None))[1]

    def may_run(self, worker: int, generation: int) -> bool:
        """Whether a worker was ordered to start in a generation."""
        if generation in self.alone:
            return self.alone[generation] == worker and generation not in self.waits
        return generation in self.launched


@dataclass
class Ledger:
    """Of the whole log."""

    jobs: dict[str, JobAccount] = field(default_factory=dict)
    requests: dict[tuple[str, str], str] = field(default_factory=dict)
    arrays: list[list[Element]] = field(default_factory=list)
    """Elements of each array, as they were made."""
    secrets: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    fenced: set[str] = field(default_factory=set)
    guaranteed: set[str] = field(default_factory=set)
    """Projects that have a guarantee."""
    reclaimed: list[tuple[str, str]] = field(default_factory=list)
    """(job, the one that it gives way to), where only a guarantee allows that: see ``shares``."""
    restored: bool = False
    """Whether the log was ever taken for one that may lack its end: then generations may be left out."""

    def take(self, record: Record, check: Check) -> None:
        """One event; what the log may not say by itself is checked here."""
        event = record.event
        match event:
            case ev.ClusterRestored():
                self.restored = True
            case ev.HostLost(host=host):
                self.lost.add(host)
            case ev.HostReturned(host=host):
                self.lost.discard(host)
            case ev.HostFenced(host=host):
                self.fenced.add(host)
            case ev.GuaranteeSet(project=project, gpus=gpus):
                (self.guaranteed.add if gpus else self.guaranteed.discard)(project)
            case ev.JobSubmitted():
                request = event.owner, event.request_id
                check(request not in self.requests, "13 idempotent", f"{request} made a second job")
                check(event.job_id not in self.jobs, "13 idempotent", f"{event.job_id} was made twice")
                if event.request_id:
                    self.requests[request] = event.job_id
                self.jobs[event.job_id] = JobAccount(event.gang, len(self.jobs))
                self._element(event, check)
            case _ if (job_id := getattr(event, "job_id", None)) is not None:
                self._of_job(job_id, self.jobs[job_id], event, check)

    def _of_job(self, name: str, job: JobAccount, event: ev.JobEvent, check: Check) -> None:
        late = isinstance(event, ev.LateExitFound | ev.WorkerEmptied | ev.WorkerFenced | ev.JobDeleted)
        check(not job.ended or late, "7 terminal absorbs", f"{name} has ended, and then {type(event).__name__}")
        match event:
            case ev.DependencyEnded():
                self._told(name, job, event, check)
            case ev.TurnCame():
                self._turn(name, job, check)
            case ev.JobPaused():
                job.has_turn = False
            case ev.JobResumed():
                job.let_go = job.missed and (job.gang.pause_if_unmet or self.restored)
            case ev.JobPlaced(generation=generation, places=places):
                self._after(name, job, check)
                turn = job.has_turn or job.gang.array is None or not job.gang.array.at_once
                check(turn, "21 arrays", f"{name} starts before its turn")
                self._next(name, job, generation, check)
                job.placements.append((generation, places))
                self._lent(name, job, event.loan_of, check)
            case ev.RestartDecided(generation=generation, worker=worker):
                before = job.generation
                self._next(name, job, generation, check)
                if worker is None:
                    job.stopped = max(job.stopped, before)
                else:
                    job.stopped_of[worker] = before
                    job.alone[generation] = worker
                    if event.not_before is not None:
                        job.waits.add(generation)
            case ev.WorkerLaunched(generation=generation):
                job.waits.discard(generation)
            case ev.GangLaunched(generation=generation, rendezvous=rendezvous):
                check(generation == job.generation, "3 no overlap", f"{name} launches generation {generation} late")
                check(generation not in job.launched, "2 one launch", f"{name} launches {generation} twice")
                fresh = rendezvous.secret not in self.secrets
                check(fresh, "4 gang", f"{name} generation {generation} has the secret of another one")
                self.secrets.add(rendezvous.secret)
                job.launched[generation] = rendezvous
            case ev.AttemptEnded():
                job.stopped = job.generation
                job.failed = event.end_reason not in (EndReason.PREEMPTED, EndReason.PAUSED)
                if event.end_reason is EndReason.PREEMPTED and not job.gives_way_to:
                    self._gives_way(name, job, event.related.job, check)
                job.gives_way_to = ""
            case ev.JobWarned(generation=generation):
                job.warned = generation
                if event.leaving is EndReason.PREEMPTED:
                    job.gives_way_to = event.related.job
                    self._gives_way(name, job, event.related.job, check)
            case ev.JobEnding(outcome=outcome):
                gives_up = event.error is not None and event.error.code == FAILED_PRECONDITION
                check(gives_up <= job.missed, "20 dependencies", f"{name} gives up though it may still run")
                check(not job.outcome, "7 terminal absorbs", f"{name} was to end as {job.outcome}, then {outcome}")
                job.stopped, job.outcome = job.generation, outcome.name
            case ev.JobEnded(state=state):
                check(job.outcome == state.name, "7 terminal absorbs", f"{name} ends as {state.name}")
                job.ended, job.has_turn = state.name, False
            case ev.RankExited(exit=exit_):
                once = (exit_.generation, exit_.rank) not in job.exits
                what = f"{name} generation {exit_.generation} rank {exit_.rank}"
                check(once, "5 one record", f"{what} has a second terminal record")
                job.exits.add((exit_.generation, exit_.rank))

    def _element(self, event: ev.JobSubmitted, check: Check) -> None:
        """Each index of an array is made once, and all of them together."""
        element = event.gang.array
        before = self.arrays[-1] if self.arrays else None
        if before is not None and len(before) < before[0].count:
            follows = element is not None and element.array == before[0].array
            check(follows, "21 arrays", f"{event.job_id} comes before all of {before[0].array} are made")
        if element is None:
            return
        if before is None or before[0].array != element.array:
            self.arrays.append([])
        known = [each.index for each in self.arrays[-1]]
        check(element.index not in known, "21 arrays", f"index {element.index} of {element.array} is made twice")
        self.arrays[-1].append(element)

    def _turn(self, name: str, job: JobAccount, check: Check) -> None:
        """No more of an array have their turn than may."""
        element = job.gang.array
        assert element is not None
        have = [other for other in self.jobs.values() if other.has_turn and other.gang.array is not None]
        count = sum(other.gang.array.array == element.array for other in have if other.gang.array is not None)
        check(count < element.at_once, "21 arrays", f"{name} has its turn beside {count} of {element.at_once}")
        job.has_turn = True

    def _told(self, name: str, job: JobAccount, event: ev.DependencyEnded, check: Check) -> None:
        """Of an end that has come, as it has come, and once."""
        on = event.on
        check(on not in job.told, "20 dependencies", f"{name} is told twice that {on} has ended")
        ended = self.jobs[on].ended
        check(ended == event.state.name, "20 dependencies", f"{name} is told that {on} {event.state.name}: {ended}")
        as_wanted = _WANTED[self._end(job, on)](ended)
        check(event.met == as_wanted, "20 dependencies", f"{name} takes the end of {on} as {ended} for another one")
        job.told.add(on)
        job.missed |= not as_wanted

    def _after(self, name: str, job: JobAccount, check: Check) -> None:
        """It starts once all jobs have ended that it waits for, as they were to, unless a user lets it go on."""
        for each in job.gang.after:
            ended = self.jobs[each.job].ended
            check(bool(ended), "20 dependencies", f"{name} starts before {each.job} has ended")
            as_wanted = _WANTED[each.end](ended)
            what = f"{name} starts though {each.job} ended as {ended}"
            check(as_wanted or job.let_go, "20 dependencies", what)

    def _end(self, job: JobAccount, on: str) -> DependencyEnd:
        return next(each.end for each in job.gang.after if each.job == on)

    def _lent(self, name: str, job: JobAccount, of: str, check: Check) -> None:
        """What a job gets out of turn is kept for another job that waits."""
        job.on_loan = bool(of)
        if of:
            waits = of in self.jobs and of != name and not self.jobs[of].ended
            check(waits, "17 loans", f"{name} starts ahead of {of}, which does not wait")

    def _gives_way(self, name: str, job: JobAccount, to: str, check: Check) -> None:
        """Jobs on loan give way to jobs ahead of them, and SPOT jobs that started in turn to those that aren't SPOT."""
        other = self.jobs[to]
        own, spot = (each.gang.strategy is Strategy.SPOT for each in (job, other))
        behind = (-other.gang.priority, spot, other.number) < (-job.gang.priority, own, job.number)
        in_turn = (behind or other.failed) and (job.on_loan or (own and not spot))
        if other.gang.project in self.guaranteed and not in_turn:
            self.reclaimed.append((name, to))
            return
        check(job.on_loan or own, "17 loans", f"{name} started in turn and is no SPOT job, and gives way to {to}")
        check(job.on_loan or not spot, "17 loans", f"{name} started in turn, and gives way to the SPOT job {to}")
        check(behind or other.failed, "17 loans", f"{name} gives way to {to}, which is behind it")

    def _next(self, name: str, job: JobAccount, generation: int, check: Check) -> None:
        follows = generation == job.generation + 1 or (self.restored and generation > job.generation)
        check(follows, "3 no overlap", f"{name} goes from generation {job.generation} to {generation}")
        job.generation = generation
