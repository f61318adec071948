"""Events and actions as the stories tell them: one short line each."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.access import access_message
from holdfast_controller.core.messages.reservations import reservation_message
from holdfast_controller.core.messages.schedules import schedule_message
from holdfast_controller.core.messages.shares import share_message
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.recovery import related_in_words
from holdfast_controller.core.step import actions as act


def line(event: ev.Event, cluster: Cluster) -> str:
    """One event in short. Workers are shown as w0, w1, … in gang order."""
    match event:
        case ev.HostPlaceFreed():
            return f"{event.host} freed {event.place}"
        case ev.GpuCondemned():
            return f"{event.host} {event.gpu} condemned: {event.fault.cause}"
        case ev.HostMeasured():
            return f"{event.host} {event.result.outcome.name.lower()}"
        case ev.HostCheckFailed():
            return f"{event.host} {event.check} fails ({event.status.name})"
        case ev.HostCheckPassed():
            return f"{event.host} {event.check} passes"
        case ev.ControllerCheckFailed():
            return f"{event.check} fails ({event.status.name})"
        case ev.ControllerCheckPassed():
            return f"{event.check} passes"
        case ev.GpuCleared():
            return f"{event.host} {event.gpu} cleared by {event.by}: {event.why}"
        case (
            ev.HostJoined()
            | ev.HostRefused()
            | ev.HostThrottled()
            | ev.HostLost()
            | ev.HostReturned()
            | ev.HostCordoned()
            | ev.HostUncordoned()
            | ev.HostDraining()
            | ev.HostDrained()
            | ev.HostFenced()
            | ev.HostRemoved()
            | ev.HostShutdownBegan()
            | ev.AgentStopped()
            | ev.MaintenancePlanned()
            | ev.MaintenanceBegan()
            | ev.MaintenanceEnded()
            | ev.HostMeasurementDue()
            | ev.HostMeasurementBegan()
        ):
            return f"{event.host} {type(event).__name__.removeprefix('Host').lower()}"
        case (
            ev.RoleGranted()
            | ev.RoleTaken()
            | ev.AccountsMapped()
            | ev.UserRemoved()
            | ev.TokenMade()
            | ev.TokenUsed()
            | ev.UserSignedIn()
            | ev.SignInEnded()
            | ev.SignInAllowed()
        ):
            return access_message(event)
        case ev.SecretSet() | ev.SecretRemoved() | ev.MotdSet():
            return access_message(event)
        case (
            ev.ScheduleCreated()
            | ev.ScheduleFired()
            | ev.ScheduleLeftOut()
            | ev.SchedulePaused()
            | ev.ScheduleResumed()
            | ev.ScheduleRemoved()
            | ev.TemplateCreated()
            | ev.TemplateRemoved()
        ):
            return schedule_message(event)
        case ev.ShareSet() | ev.GuaranteeSet() | ev.QuotaSet() | ev.HalfLifeSet():
            return share_message(event)
        case ev.ReservationMade() | ev.ReservationBegan() | ev.ReservationEnded():
            return reservation_message(event)
        case ev.JobSubmitted():
            return f"{event.job_id} submitted"
        case ev.JobQueued():
            return f"{event.job_id} queued: {event.reason}"
        case ev.TurnCame():
            return f"{event.job_id} has its turn"
        case ev.DependencyEnded():
            return f"{event.job_id} {'waited' if event.met else 'waited in vain'} for {event.on} {event.state.name}"
        case ev.PlacementTried():
            return f"{event.job_id} no room at try {event.number}: {event.reason}"
        case ev.JobPlaced():
            spares = f", spares on {' '.join(p.host for p in event.spares)}" if event.spares else ""
            return f"{event.job_id} placed g{event.generation} on {' '.join(p.host for p in event.places)}{spares}"
        case ev.JobSparesChanged():
            return f"{event.job_id} has spares on {' '.join(p.host for p in event.spares) or 'no host'}"
        case ev.GangLaunched():
            return f"{event.job_id} launched g{event.generation}"
        case ev.GangStarted():
            return f"{event.job_id} started g{event.generation}"
        case ev.RankExited() | ev.LateExitFound():
            late = "late " if isinstance(event, ev.LateExitFound) else ""
            what = f"signal {event.exit.signal}" if event.exit.signal else event.exit.exit_code
            known = "" if what is None else f" {what}"
            which = f"g{event.exit.generation} r{event.exit.rank}"
            return f"{event.job_id} {late}exit {which} {event.exit.reason.name}{known}"
        case ev.RestartDecided():
            paid = "port" if event.port_retry else "free" if event.charged is None else f"w{event.charged} pays"
            alone = "" if event.worker is None else f" w{event.worker}"
            cause = f"{event.end_reason.value} of {related_in_words(event.related, event.end_reason)}"
            return f"{event.job_id} restarts{alone} as g{event.generation}: {cause}, {paid}"
        case ev.AttemptEnded():
            kept = f", keeps {' '.join(f'w{i}' for i in event.keep)}" if event.keep else ""
            away = f", not on {' '.join(event.avoid)}" if event.avoid else ""
            paid = f", {event.budget.value} pays" if event.budget.value else ""
            about = related_in_words(event.related, event.end_reason)
            what = f"{event.end_reason.value} of {about}" if about else event.end_reason.value
            return f"{event.job_id} leaves to {event.leaving.name}: {what}{kept}{away}{paid}"
        case ev.PauseRequested() | ev.JobPaused() | ev.JobResumed():
            return f"{event.job_id} {_WORDS[type(event)]}"
        case ev.JobDeleted():
            return f"{event.job_id} deleted by {event.by}"
        case ev.OutputDeleted():
            return f"{event.job_id} output gone from {event.host}"
        case ev.JobPurged():
            return f"{event.job_id} purged"
        case ev.WorkerLaunched() | ev.WorkerStarted():
            what = "launched" if isinstance(event, ev.WorkerLaunched) else "started"
            index = cluster.jobs[event.job_id].gang.index_by_name[event.worker]
            return f"{event.job_id} {what} w{index} g{event.generation}"
        case ev.JobWarned():
            return f"{event.job_id} warned g{event.generation} of {event.why}"
        case ev.WorkerFenced():
            return f"{event.job_id} fenced w{cluster.jobs[event.job_id].gang.index_by_name[event.worker]}"
        case ev.CauseFound():
            cause = f"{event.end_reason.value} of {related_in_words(event.related, event.end_reason)}"
            paid = "free" if event.charged is None else f"w{event.charged} pays"
            return f"{event.job_id} cause g{event.generation}: {cause}, {paid}"
        case ev.HangNoticed():
            whom = f" of {', '.join(map(str, event.suspects))}" if event.suspects else ""
            since_s = event.at - event.since
            return f"{event.job_id} hangs g{event.generation} since {since_s:.0f} s: {event.rule.value}{whom}"
        case ev.HangDiagnosed():
            return f"{event.job_id} stacks: {event.stacks or 'none'}"
        case ev.HangJudged():
            return f"{event.job_id} hang {event.outcome.value}" + (f": {event.note}" if event.note else "")
        case ev.HangStuck():
            return f"{event.job_id} stuck on {event.host}: {event.why}"
        case ev.HangOver():
            return f"{event.job_id} moves again"
        case ev.JobHeld():
            return f"{event.job_id} " + ("hold ended" if event.until is None else "held") + f" by {event.by}"
        case ev.FaultInjected():
            return f"{event.job_id} {event.fault.value} of {event.worker} rank {event.rank} by {event.by}"
        case ev.FaultNotInjected():
            return f"{event.job_id} no fault in {event.worker} rank {event.rank}: {event.why}"
        case ev.WorldApart():
            return f"{event.job_id} has a world apart: {event.processes} of {event.worker}"
        case ev.CaughtUp():
            return f"{event.job_id} back at step {event.step:g}"
        case ev.PrimaryCompleted():
            return f"{event.job_id} primary completed"
        case ev.CancelRequested():
            return f"{event.job_id} cancelled by {event.by}"
        case ev.JobEnding():
            return f"{event.job_id} ending {event.outcome.name}"
        case ev.WorkerEmptied():
            job = cluster.jobs.get(event.job_id)
            return f"{event.job_id} emptied {f'w{job.gang.index_by_name[event.worker]}' if job else event.worker}"
        case ev.ClusterRestored() | ev.ReconciliationEnded():
            return {ev.ClusterRestored: "restored", ev.ReconciliationEnded: "reconciliation ended"}[type(event)]
        case ev.OrphanFound() | ev.OrphanExited() | ev.OrphanStopRequested() | ev.OrphanGone():
            what = {ev.OrphanFound: "found", ev.OrphanExited: "exited", ev.OrphanGone: "gone"}.get(
                type(event), "stop requested"
            )
            who = f" {event.worker[-1]}" if isinstance(event, ev.OrphanFound | ev.OrphanGone) else ""
            return f"{event.host} orphan {event.job}{who} {what}"
        case ev.MaintenanceAhead():
            return f"{event.job_id} hears of the maintenance of {event.host}"
        case ev.UnderuseNoticed():
            then = f", {event.action.name}" if event.action is not None else ""
            return f"{event.job_id} leaves {event.idle} of {event.gpus} GPUs unused{then}"
        case ev.UnderuseOver():
            return f"{event.job_id} uses its GPUs again"
        case ev.SlowdownNoticed():
            who = " ".join(f"r{each.rank}@{each.host}" for each in event.named) or "nobody"
            return f"{event.job_id} is slow, {who} named"
        case ev.SlowdownOver():
            return f"{event.job_id} is fast again"
        case ev.JobFound():
            where = " ".join(place.host for place in event.places)
            return f"{event.job_id} found g{','.join(map(str, sorted(set(event.generations))))} on {where}"
        case ev.JobUnsure():
            return f"{event.job_id} unsure, beyond g{event.generation}"
        case ev.JobCleared():
            return f"{event.job_id} cleared"
        case ev.CommonCauseNoticed():
            where = f" at {event.mount}" if event.mount else f" on {' '.join(event.hosts)}" if event.hosts else ""
            what = f" of {' '.join(event.jobs)}" if event.jobs else ""
            return f"common cause{what}{where}: {event.sentence}"
        case ev.CertificateEnding():
            return f"certificate {event.certificate} ends"
        case ev.MostHostsSilent():
            return f"{event.silent} of {event.hosts} hosts silent"
        case ev.ClockLeapt():
            return f"clock leapt by {event.by_s:.0f} s"
        case ev.PreparationNoted():
            index = cluster.jobs[event.job_id].gang.index_by_name[event.worker]
            return f"{event.job_id} prepares w{index} on {event.host}: {event.doing}"
        case ev.OutputArchived():
            index = cluster.jobs[event.job_id].gang.index_by_name[event.worker]
            return f"{event.job_id} archives w{index}: {event.problem or 'done'}"
        case ev.ProgressRecorded():
            return f"{event.job_id} progress of g{event.generation}"
        case ev.NotificationGivenUp():
            return f"{event.job_id} gave up telling {event.to}: {event.reason}"
        case ev.JobEnded():
            return f"{event.job_id} ended {event.state.name}"
        case _:
            assert_never(event)


_WORDS = {ev.PauseRequested: "to pause", ev.JobPaused: "paused", ev.JobResumed: "resumed"}


def action_line(action: act.Action, cluster: Cluster) -> str:
    """One action in short."""
    match action:
        case act.Reply():
            return f"> reply {action.subject}"
        case act.Refuse():
            return f"> refuse {action.error.reason}"
        case act.Welcome():
            return f"> {action.host} welcome {action.assignments}"
        case act.Assign():
            order = action.assignment
            warned = f" warned by {order.warn_signal}" if order.warn_signal else ""
            job = cluster.jobs.get(order.key.job)
            worker = f"w{job.gang.index_by_name[order.key.worker]}" if job is not None else order.key.worker
            which = f"{order.key.job} {worker} g{order.generation}"
            return f"> {action.host} {order.phase.name} {which}{warned}"
        case act.StopOrphan():
            return f"> {action.host} dismiss {action.job_id} {action.worker} g{action.generation}"
        case act.DeleteOutput():
            return f"> {action.host} delete output of {' '.join(action.job_ids)}"
        case act.ForgetJob():
            return f"> forget {action.job_id}{' for good' * action.purged}"
        case act.AckExits():
            return " ".join((f"> {action.host}", *["ack"] * len(action.sequences)))
        case act.CloseSession():
            return f"> {action.host} close"
        case act.TakeEvidence():
            closer = f" closer {list(action.suspects)}" if action.suspects else ""
            whom = f"{action.job_id} {action.worker} g{action.generation}"
            return f"> {action.host} dump {action.dump} of {whom}{closer}"
        case act.KeepEvidence():
            return f"> keep {action.job_id} hang {action.hang} {action.worker}"
        case act.KeepSecret(holder, name, sealed):
            return f"> {'keep' if sealed else 'forget'} {holder}/{name}"
        case act.KeepAnswer():
            return f"> keep the answer to {action.by}'s {action.request_id}"
        case act.KeepWatch():
            return f"> keep the watch of {action.job_id}"
        case act.KeepProgress():
            return f"> keep the progress of {action.job_id}"
        case act.AccessChanged():
            return f"> {action.party} may do otherwise"
        case act.CallFence():
            return f"> fence {action.host}, silent for {action.silent_s:.0f} s"
        case act.Note():
            return f"> note {action.event} {' '.join(value for _, value in action.fields)}"
