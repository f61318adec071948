"""Each event in words: one sentence that users find in the job's history and operators in the log."""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from holdfast._base.job_file.choices import UnderuseAction
from holdfast._base.plural import count
from holdfast._session.reports import Exit
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.access import access_message
from holdfast_controller.core.messages.cluster import cluster_news_message
from holdfast_controller.core.messages.hang import hang_message
from holdfast_controller.core.messages.host import host_message
from holdfast_controller.core.messages.injection import injection_message
from holdfast_controller.core.messages.maintenance import maintenance_ahead, span
from holdfast_controller.core.messages.reservations import reservation_message
from holdfast_controller.core.messages.restore import (
    cluster_reconciliation_message,
    job_reconciliation_message,
    orphan_message,
)
from holdfast_controller.core.messages.schedules import schedule_message
from holdfast_controller.core.messages.shares import share_message
from holdfast_controller.core.model.exits import JobError, shown_raised
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.queue import PLACEMENT_TRIES
from holdfast_controller.core.model.recovery import Budget, EndReason, Related, related_in_words
from holdfast_controller.core.model.slowness import Slowdown
from holdfast_controller.core.model.underuse import Underuse

PLANNED = ev.ScheduleEvent | ev.TemplateEvent


def message_of(event: ev.Event, job: Job | None) -> str:
    """The sentence for ``event``; ``job`` is in the state right after it."""
    if isinstance(event, PLANNED):
        return schedule_message(event)
    match event:
        case (
            ev.RoleGranted()
            | ev.RoleTaken()
            | ev.AccountsMapped()
            | ev.UserRemoved()
            | ev.TokenMade()
            | ev.TokenUsed()
            | ev.SecretSet()
            | ev.SecretRemoved()
            | ev.MotdSet()
            | ev.UserSignedIn()
            | ev.SignInEnded()
            | ev.SignInAllowed()
        ):
            return access_message(event)
        case (
            ev.HostJoined()
            | ev.HostRefused()
            | ev.HostThrottled()
            | ev.HostCordoned()
            | ev.HostUncordoned()
            | ev.HostDraining()
            | ev.HostDrained()
            | ev.HostFenced()
            | ev.HostPlaceFreed()
            | ev.HostLost()
            | ev.HostReturned()
            | ev.HostRemoved()
            | ev.HostShutdownBegan()
            | ev.AgentStopped()
            | ev.HostCheckFailed()
            | ev.HostCheckPassed()
            | ev.MaintenancePlanned()
            | ev.MaintenanceBegan()
            | ev.MaintenanceEnded()
            | ev.HostMeasurementDue()
            | ev.HostMeasurementBegan()
            | ev.HostMeasured()
            | ev.GpuCondemned()
            | ev.GpuCleared()
        ):
            return host_message(event)
        case ev.ClusterRestored() | ev.ReconciliationEnded():
            return cluster_reconciliation_message(event)
        case ev.OrphanFound() | ev.OrphanExited() | ev.OrphanStopRequested() | ev.OrphanGone():
            return orphan_message(event)
        case ev.ShareSet() | ev.GuaranteeSet() | ev.QuotaSet() | ev.HalfLifeSet():
            return share_message(event)
        case ev.ReservationMade() | ev.ReservationBegan() | ev.ReservationEnded():
            return reservation_message(event)
        case ev.CommonCauseNoticed():
            where = f" (shared hosts: {_listing(list(event.hosts))})" if event.hosts and not event.mount else ""
            return f"common cause of {_listing(list(event.jobs))}{where}: {event.sentence}"
        case (
            ev.CertificateEnding()
            | ev.MostHostsSilent()
            | ev.ControllerCheckFailed()
            | ev.ControllerCheckPassed()
            | ev.ClockLeapt()
        ):
            return cluster_news_message(event)
        case _:
            return _job_sentence(event, job)


def _job_sentence(event: ev.JobEvent, job: Job | None) -> str:
    if isinstance(event, ev.JobPurged):
        return "nothing is left of it"
    assert job is not None
    match event:  # the most frequent first: the types are tried in turn
        case ev.RankExited():
            return exit_message(event)
        case ev.JobSubmitted():
            ranks, workers = count(job.gang.rank_count, "rank"), count(len(job.gang.members), "worker")
            return f"submitted by {event.owner}: {ranks} on {workers}"
        case ev.JobQueued():
            return f"queued: {event.reason}"
        case ev.DependencyEnded():
            ended = f"{event.on} ended as {event.state.name}"
            return ended if event.met else job.missed
        case ev.TurnCame():
            return "its turn has come"
        case ev.PlacementTried():
            return f"placement failed, try {event.number} of {PLACEMENT_TRIES}: {event.reason}"
        case ev.JobPlaced():
            counts = Counter(place.host for place in event.places)
            where = "placed on " + _listing([f"{h} ({n} workers)" if n > 1 else h for h, n in counts.items()])
            why = f", {event.why}" if event.why else ""
            spares = f", with spares of its own on {_spares(event.spares)}" if event.spares else ""
            return f"{where}{spares}{why}{_loan(event.loan_of)}{_ahead(event.ahead_of)}"
        case ev.JobSparesChanged():
            return f"its own spares are on {_spares(event.spares)} now" if event.spares else "it has no spare left"
        case ev.PreparationNoted():
            return f"{event.doing} on {event.host}"
        case ev.GangLaunched():
            where = f"{event.rendezvous.master_address}:{event.rendezvous.master_port}"
            return f"generation {event.generation} launched, rank 0 at {where}"
        case ev.GangStarted():
            return f"generation {event.generation} is running"
        case ev.LateExitFound():
            return f"late exit report for {_rank(event.worker, event.exit.rank)}: {event.exit.message}"
        case ev.RestartDecided():
            whom = "" if event.worker is None else f" {job.gang.members[event.worker].name} alone"
            when = f"{event.generation}{_pause(event)}"
            now = f"; at once by: holdfast job restart {job.id}" if _pause(event) else ""
            return f"restarting{whom} in place as generation {when}: {_restart_cause(event, job)}{now}"
        case ev.WorkerLaunched():
            return f"{event.worker} launched as generation {event.generation}"
        case ev.WorkerStarted():
            return f"{event.worker} is running as generation {event.generation}"
        case ev.AttemptEnded():
            return _attempt_ended(event, job)
        case ev.PauseRequested():
            left = f"; its ranks have {event.due - event.at:.0f} s to end" if event.due is not None else ""
            return f"paused by {event.by}{left}"
        case ev.JobWarned():
            which = _SIGNALS.get(event.signal, f"signal {event.signal}")
            return f"the ranks get {which}, {event.until - event.at:.0f} s ahead of {event.why}"
        case ev.JobPaused():
            return f"paused: it holds no hosts; resume it with: holdfast job resume {job.id}"
        case ev.JobDeleted():
            return f"deleted by {event.by}" if not event.why else f"deleted: {event.why}"
        case ev.OutputDeleted():
            return f"{event.host} has nothing of it any more"
        case ev.JobResumed():
            return f"resumed by {event.by}"
        case ev.WorkerFenced():
            why = "an admin vouches that its host is off" if event.vouched else "host unreachable past its lease"
            return f"{event.worker} fenced: {why}"
        case ev.CauseFound():
            return f"first to fail was {_cause(event.related, event.end_reason)}{_restarts(event.charged, job)}"
        case (
            ev.HangNoticed() | ev.HangDiagnosed() | ev.HangJudged() | ev.HangStuck() | ev.HangOver() | ev.JobHeld()
        ):
            return hang_message(event, job)
        case ev.FaultInjected() | ev.FaultNotInjected():
            return injection_message(event)
        case ev.WorldApart():
            apart, why = "stays", "what starts its processes keeps to its own host"
            if event.processes > 1:
                apart, why = "trains", f"{event.processes} processes there are a whole world of their own"
            return (
                f"{event.worker} {apart} apart from the rest of the job: {why}; torchrun without --standalone, "
                f"--nnodes and --rdzv-* options spans the job, and mpirun by mpi_gang.py"
            )
        case ev.CaughtUp():
            return f"generation {event.generation} is back at step {event.step:.12g}"
        case ev.ProgressRecorded():
            last = event.progress.last
            reached = f"had reached {last.in_words}" if last is not None else "reported no step"
            return f"generation {event.generation} {reached}"
        case ev.PrimaryCompleted():
            grace_s = job.gang.end_grace_s
            what = f"have {grace_s:.12g} s to finish" if grace_s else "are stopped"
            return f"primary completed; the others {what}"
        case ev.CancelRequested():
            return f"cancelled by {event.by}"
        case ev.JobEnding():
            error = event.error
            why = " ".join(filter(None, (error.message, error.raised))) if error else ""
            return f"ending as {event.outcome.name}" + (f": {why}" if why else "")
        case ev.OutputArchived():
            if event.problem:
                return f"output of {event.worker} not archived: {event.problem}"
            return f"output of {event.worker} archived"
        case ev.WorkerEmptied():
            return f"every process of {event.worker} is gone"
        case ev.JobEnded():
            return _why_ended(event.error or job.error) or event.state.name
        case ev.JobFound() | ev.JobUnsure() | ev.JobCleared():
            return job_reconciliation_message(event)
        case ev.MaintenanceAhead():
            return maintenance_ahead(event)
        case ev.UnderuseNoticed():
            found = Underuse(event.idle, event.gpus, event.since, event.unknown)
            then = _UNDERUSE.get(event.action, "") if event.action is not None else ""
            return f"the job {found.in_words}, for {span(event.at - event.since)} by now{then}"
        case ev.UnderuseOver():
            return "the job's GPUs are used again, or can't be read"
        case ev.SlowdownNoticed():
            slow = Slowdown(event.since, event.best_ms, event.recent_ms, event.named, event.waited_for)
            lasts = f"for {span(event.at - event.since)} by now"
            return f"the job is {slow.slower_pct} % slower than at its best, {lasts}; {slow.who}"
        case ev.SlowdownOver():
            return "the job is as fast as before again"
        case ev.NotificationGivenUp():
            return f"notification {event.notice.name} to {event.to} failed: {event.reason}"
        case _:
            assert_never(event)


_UNDERUSE = {
    UnderuseAction.PAUSE: "; it is paused, as its underuse policy says",
    UnderuseAction.STOP: "; it is stopped, as its underuse policy says",
}
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 10: "SIGUSR1", 12: "SIGUSR2", 15: "SIGTERM"}


def _why_ended(error: JobError | None) -> str:
    """The exception that a job ended with, or the first sentence of its error; empty where it has none."""
    if error is None:
        return ""
    if error.raised:
        return error.raised if error.rank is None else f"rank {error.rank}: {error.raised}"
    return error.message.partition(". ")[0].removesuffix(".")


def _loan(of: str) -> str:
    """The words for a start out of turn; empty for one in turn."""
    if not of:
        return ""
    return f", on loan: {of} waits ahead of it, and it gives way when that job or another ahead can start there"


def _ahead(of: str) -> str:
    """The words for a start ahead of one's turn that delays no other; empty for one in turn."""
    return f", ahead of {of}, which is not expected to start later for it" if of else ""


def _attempt_ended(event: ev.AttemptEnded, job: Job) -> str:
    if event.leaving is Leaving.PAUSE:
        return "stopping all workers to pause"
    if event.end_reason is EndReason.DRAINED:
        return f"moving away from {_listing(list(event.avoid))}, which is drained; workers elsewhere stay there"
    if event.end_reason is EndReason.HOST_SHUTDOWN:
        return f"moving away from {_listing(list(event.avoid))}, which shuts down; workers elsewhere stay there"
    if event.end_reason is EndReason.PREEMPTED:
        return f"preempted by {event.related}; it waits for hosts again"
    cause = _cause(event.related, event.end_reason)
    away = f" away from {_listing(list(event.avoid))}" if event.avoid else ""
    if event.keep:
        return f"moving{_pause(event)}{away}; workers elsewhere stay there: {cause}"
    retries = f", job retry {job.budgets.spent.job_retries} of {job.gang.retries.job_retries}"
    count = retries if event.budget is Budget.JOB else ""
    return f"retrying the whole job{_pause(event)}{away}: {cause}{count}"


def _cause(related: Related, reason: EndReason) -> str:
    return f"{related_in_words(related, reason)} ({reason.value})"


def _pause(event: ev.RestartDecided | ev.AttemptEnded) -> str:
    """The back-off before the next launch, where there is one."""
    left = 0.0 if event.not_before is None else event.not_before - event.at
    return f" after a pause of {left:.0f} s" if left >= 1 else ""


def _restart_cause(event: ev.RestartDecided, job: Job) -> str:
    cause = _cause(event.related, event.end_reason)
    if event.hang_restarts is not None:
        return f"{cause}, hang restart {event.hang_restarts} of {job.gang.max_hang_restarts} in a row"
    return cause + _restarts(event.charged, job)


def _restarts(charged: int | None, job: Job) -> str:
    """How many of its restarts the worker has spent that pays, this one included; empty where none pays."""
    if charged is None:
        return ""
    used = job.budgets.spent.worker_restarts.get(charged, 0)
    return f", restart {used} of {job.gang.max_worker_restarts}"


def exit_message(event: ev.RankExited) -> str:
    """The sentence for the end of a rank."""
    return f"{_rank(event.worker, event.exit.rank)} {exit_in_words(event.exit)}"


def exit_in_words(exit_: Exit) -> str:
    """How a rank ended, and what it raised, unless the message says that already."""
    text, raised = exit_.message or exit_.reason.name, shown_raised(exit_)
    return text if not raised or raised in text else f"{text}; it raised {raised}"


def _rank(worker: str, rank: int) -> str:
    return f"{worker} rank {rank}"


def _spares(places: tuple[Place, ...]) -> str:
    return _listing(list(dict.fromkeys(place.host for place in places)))


def _listing(names: list[str]) -> str:
    shown = ", ".join(names[:6])
    return f"{shown} and {len(names) - 6} more" if len(names) > 6 else shown
