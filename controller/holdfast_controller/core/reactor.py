"""The controller's core: one input in, events and actions out.

Same inputs and times, same results: there is no I/O. No action is performed before the commit that holds its cause.
"""

from __future__ import annotations

from typing import assert_never

from holdfast._base.dataclass import replace
from holdfast._base.job_file.choices import NotificationEvent
from holdfast_controller.core import events as ev
from holdfast_controller.core.access import accounts, motd, secrets, sign_in, users
from holdfast_controller.core.hangs import hangs
from holdfast_controller.core.hangs.progress import keep_all
from holdfast_controller.core.hangs.watch_cache import forget_ended
from holdfast_controller.core.hosts import (
    checks,
    fence_command,
    maintenance,
    measuring,
    resumption,
    sessions,
    worker_reports,
)
from holdfast_controller.core.hosts.removal import on_host_removal
from holdfast_controller.core.hosts.shutdown import on_going_down
from holdfast_controller.core.lifecycle import (
    attempts,
    deletion,
    drain,
    exits,
    injection,
    output_archive,
    slowness,
    underuse,
    warning_signal,
)
from holdfast_controller.core.lifecycle.arrays import let_in
from holdfast_controller.core.lifecycle.launch import launch
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.lifecycle.restart_request import on_restart_asked
from holdfast_controller.core.lifecycle.stop import on_cancel, on_timeout
from holdfast_controller.core.model.accounts.quota import merged
from holdfast_controller.core.model.clock import BOOT, Mono, Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.restore import reconcile
from holdfast_controller.core.scheduling import host_reservations
from holdfast_controller.core.scheduling.expiry import on_expired
from holdfast_controller.core.scheduling.fair_share.set_quotas import on_quota
from holdfast_controller.core.scheduling.fair_share.shares import note_half_life, on_share_command
from holdfast_controller.core.scheduling.own_spares import give_back_unsound
from holdfast_controller.core.scheduling.place import on_waited
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.scheduling.recurring import on_due, on_schedule
from holdfast_controller.core.scheduling.submit import on_submission
from holdfast_controller.core.scheduling.templates import on_template
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.scheduling.wait_reasons.shared_queue_view import SharedQueueView
from holdfast_controller.core.step import commands
from holdfast_controller.core.step import schedule_commands as recurring
from holdfast_controller.core.step.commands import Input
from holdfast_controller.core.step.host_commands import ControllerChecked, HostCheckAsked, HostsJudged
from holdfast_controller.core.step.idempotency import on_once
from holdfast_controller.core.step.reservation_commands import ReservationAsked, ReservationDeletionAsked
from holdfast_controller.core.step.share_commands import GuaranteeAsked, QuotaAsked, ShareAsked
from holdfast_controller.core.step.step import Decision, Policies, Step
from holdfast_controller.core.step.timers import ClusterTimer, HostTimer, JobTimer, Timers, UserTimer

REORDERED_S = 60.0
"""With fair share the order of the queue changes with time alone, which is looked at so often."""


CLOCK_LEAP_S = 10.0
"""The wall clock has leapt if it went on by so much more, or less, than the monotonic one: sums of less are small."""


class Reactor:
    """Decides for one cluster: ``step`` takes an input and returns what to store and to do. Call it from one task."""

    def __init__(self, cluster: Cluster, policies: Policies) -> None:
        self.cluster = cluster
        self.settings = self.policies = policies
        self._merge_quotas()
        cluster.machine_types = policies.machine_types
        self.timers = Timers()
        self._queue_view = SharedQueueView()
        self._reordered_at = BOOT
        self._wall_ahead_s: float | None = None
        """Of the monotonic clock, when the wall clock last leapt."""

    def resume(self, now: Now, kept: dict[str, KeptWatch] | None = None) -> None:
        """Arm all timers after a start: leases begin again. ``kept`` is what was learned of progress."""
        # Where that is yet to come, the clock was set back while no controller ran.
        self._wall_ahead_s = max(now.wall, self.cluster.last_ran) - now.mono
        resumption.resume(self.cluster, self.policies, self.timers, now, kept or {})

    def next_due(self) -> Mono | None:
        """The time at which to feed ``TimePassed``, on the monotonic clock; None if no timer is armed."""
        return self.timers.next_due()

    def queue_view(self, now: Now, *, projected: bool = True) -> QueueView:
        """The queue as it is now, for the reasons that its jobs wait, and when they are expected to start."""
        return self._queue_view.of(self.cluster, self.policies, now, projected=projected)

    def step(self, incoming: Input, now: Now) -> Decision:
        """Apply one input to the state; returns the entries to make durable and the actions to perform after."""
        step = Step(self.cluster, self.policies, self.timers, now)
        self._note_leap(step)
        self._dispatch(step, incoming)
        note_half_life(step)
        give_back_unsound(step)
        self._reorder(step)
        freed = let_in(step)
        if step.capacity_freed:
            self.timers.clear((ClusterTimer.RETURNS, ""))
            place_queue(step)
            drain.note_drained(step)
            freed = let_in(step)
        while freed:
            place_queue(step)
            freed = let_in(step)
        measuring.attend(step)
        forget_ended(step)
        step.send_orders()
        deletion.purge(step)
        return step.decision()

    def _note_leap(self, step: Step) -> None:
        """Have durations go on as they were if the wall clock was set since the last step."""
        ahead_s = step.now.wall - step.now.mono
        by_s = ahead_s - (ahead_s if self._wall_ahead_s is None else self._wall_ahead_s)
        if self._wall_ahead_s is None or abs(by_s) >= CLOCK_LEAP_S:
            self._wall_ahead_s = ahead_s
        if abs(by_s) >= CLOCK_LEAP_S:
            step.emit(ev.ClockLeapt(at=step.now.wall, by_s=by_s))
            keep_all(step)

    def _merge_quotas(self) -> None:
        """Have quotas count that were set by command, over those of the settings."""
        quotas = merged(self.settings.quotas, self.cluster.shares.quotas)
        self.policies = replace(self.settings, quotas=quotas)

    def _reorder(self, step: Step) -> None:
        """Look again at a queue in which another job may be first by now, though nothing has happened."""
        if not self.cluster.shares.weights or not len(self.cluster.queue) or step.now.mono < self._reordered_at:
            return
        self._reordered_at = step.now.mono_in(REORDERED_S)
        self.cluster.shares.at = step.now.wall
        step.capacity_freed = True

    def _dispatch(self, step: Step, incoming: Input) -> None:
        match incoming:  # what comes often comes first: each case before it takes its time
            case (
                commands.HostBeat()
                | commands.ShutdownAnnounced()
                | commands.AgentStopping()
                | commands.ChecksReported()
                | commands.WorkerReported()
                | commands.ExitsReported()
                | commands.FeaturesReported()
            ):
                if self.cluster.presence_of(incoming.host).session == incoming.session:
                    sessions.heard(step, incoming.host)
                    self._on_message(step, incoming)
            case commands.TimePassed():
                self.cluster.full = incoming.full
                self._on_time(step, incoming.durable)
            case commands.JobSubmission():
                on_submission(step, incoming)
            case commands.CancelAsked():
                on_cancel(step, incoming)
            case commands.RestartAsked():
                on_restart_asked(step, incoming)
            case commands.PauseAsked():
                attempts.on_pause(step, incoming)
            case commands.ResumeAsked():
                attempts.on_resume(step, incoming)
            case commands.DeleteAsked():
                deletion.on_delete(step, incoming)
            case commands.CordonAsked():
                sessions.on_cordon(step, incoming)
            case commands.UncordonAsked():
                sessions.on_uncordon(step, incoming)
            case commands.DrainAsked():
                drain.on_drain(step, incoming)
            case commands.FenceAsked():
                sessions.on_fence(step, incoming)
            case commands.MaintenanceAsked():
                maintenance.on_maintenance(step, incoming)
            case commands.MaintenanceCancelled():
                maintenance.on_cancel(step, incoming)
            case commands.StopOrphansAsked():
                reconcile.on_stop_orphans(step, incoming)
            case commands.HostRemovalAsked():
                on_host_removal(step, incoming)
            case commands.RoleAsked():
                users.on_role(step, incoming)
            case commands.AccountsAsked():
                accounts.on_accounts(step, incoming)
            case commands.UserRemovalAsked():
                users.on_user_removal(step, incoming)
            case commands.TokenAsked():
                users.on_token(step, incoming)
            case commands.EnrolAsked():
                users.on_enrol(step, incoming)
            case commands.SecretGiven():
                secrets.on_secret_given(step, incoming)
            case commands.SecretRemovalAsked():
                secrets.on_secret_removal(step, incoming)
            case commands.SignInAsked():
                sign_in.on_sign_in(step, incoming)
            case commands.SignInAllowanceAsked():
                sign_in.on_allowance(step, incoming)
            case commands.MotdAsked():
                motd.on_motd(step, incoming)
            case ShareAsked() | GuaranteeAsked():
                on_share_command(step, incoming)
            case QuotaAsked():
                on_quota(step, incoming)
                self._merge_quotas()
                step.policies = self.policies
            case ReservationAsked() | ReservationDeletionAsked():
                host_reservations.on_reservation(step, incoming)
            case recurring.ScheduleAsked() | recurring.SchedulePauseAsked() | recurring.ScheduleRemovalAsked():
                on_schedule(step, incoming)
            case recurring.TemplateAsked() | recurring.TemplateRemovalAsked():
                on_template(step, incoming)
            case commands.HostConnected():
                sessions.on_connected(step, incoming)
                for report in incoming.places:
                    worker_reports.on_found(step, incoming.host, report)
                deletion.on_host_back(step, incoming.host)
            case commands.HostTurnedAway():
                sessions.on_refused(step, incoming)
            case commands.HostOverRate():
                sessions.on_over_rate(step, incoming)
            case commands.HostDisconnected():
                sessions.on_disconnected(step, incoming)
            case commands.StoodStill():
                sessions.on_stood_still(step)
            case commands.PoliciesChanged(policies):
                self.settings = replace(policies, leases=self.policies.leases)
                self._merge_quotas()
                step.policies = self.policies
                self.cluster.forget_fits()
                if self.cluster.machine_types != policies.machine_types:
                    self.cluster.machine_types = policies.machine_types
                    self.cluster.dirty_hosts.update(self.cluster.hosts)
                measuring.arm(step)
                # A quota that was raised lets jobs start, and one that was lowered is what others wait for now.
                step.capacity_freed = True
            case commands.HoldAsked():
                hangs.on_hold(step, incoming)
            case commands.Once():
                on_once(step, incoming, lambda command: self._dispatch(step, command))
            case commands.NotificationFailed(job_id, notice, to, reason):
                if job_id in self.cluster.jobs:
                    at, kind = step.now.wall, NotificationEvent[notice]
                    step.emit(ev.NotificationGivenUp(job_id=job_id, at=at, notice=kind, to=to, reason=reason))
            case HostCheckAsked():
                measuring.on_asked(step, incoming)
            case ControllerChecked() | HostsJudged():
                checks.on_judged(step, incoming)
            case commands.FenceFailed():
                fence_command.on_failed(step, incoming)
            case commands.CertificateEnds(certificate, ends_at):
                step.emit(ev.CertificateEnding(at=step.now.wall, certificate=certificate, ends_at=ends_at))
            case commands.InjectionAsked() | commands.InjectionFailed():
                injection.on_injection(step, incoming)
            case commands.EvidenceArrived():
                hangs.on_evidence(step, incoming)
            case commands.ArchiveReported():
                if self.cluster.presence_of(incoming.host).session == incoming.session:
                    output_archive.on_archived(step, incoming)
            case commands.OutputGone():
                deletion.on_output_gone(step, incoming)
            case _:
                assert_never(incoming)

    def _on_message(
        self,
        step: Step,
        message: commands.HostBeat
        | commands.ShutdownAnnounced
        | commands.AgentStopping
        | commands.ChecksReported
        | commands.WorkerReported
        | commands.ExitsReported
        | commands.FeaturesReported,
    ) -> None:
        match message:
            case commands.HostBeat():
                sessions.on_beat(step, message)
            case commands.ShutdownAnnounced():
                on_going_down(step, message)
            case commands.AgentStopping():
                step.emit(ev.AgentStopped(host=message.host, at=step.now.wall))
            case commands.ChecksReported():
                checks.on_checks(step, message)
            case commands.WorkerReported():
                worker_reports.on_report(step, message.host, message.report)
            case commands.ExitsReported():
                exits.on_exits(step, message)
            case commands.FeaturesReported():
                hangs.on_features(step, message)
            case _:
                assert_never(message)

    def _on_time(self, step: Step, durable: int | None) -> None:
        first = self.timers.next_due()
        late_s = step.now.mono - first if first is not None else 0.0
        if late_s >= self.policies.leases.heartbeat_s:
            sessions.on_stood_still(step)
        due = self.timers.pop_due(step.now.mono)
        sessions.on_silence(step, [name for kind, name in due if kind is HostTimer.LEASE], late_s)
        for kind, name in due:
            match kind:
                case HostTimer():
                    self._on_host_timer(step, kind, name)
                case UserTimer.SIGN_IN:
                    sign_in.on_time(step, name)
                case JobTimer():
                    if name in self.cluster.jobs.whole:  # nothing happens any more to one that has ended
                        self._on_job_timer(step, kind, self.cluster.jobs.whole[name])
                case ClusterTimer.RECONCILE:
                    reconcile.end_if_all_told(step)
                case ClusterTimer.RETENTION:
                    deletion.on_retention(step)
                case ClusterTimer.SCHEDULES:
                    on_due(step, durable)
                case ClusterTimer.RESERVATIONS:
                    host_reservations.on_time(step)
                case ClusterTimer.MEASUREMENTS:
                    measuring.look(step)
                case ClusterTimer.RETURNS:
                    step.capacity_freed = True
                case _:
                    assert_never(kind)

    def _on_host_timer(self, step: Step, kind: HostTimer, name: str) -> None:
        match kind:
            case HostTimer.LEASE:
                pass  # on_silence has judged all of this moment's together
            case HostTimer.DRAIN:
                drain.on_deadline(step, self.cluster.hosts[name])
            case HostTimer.DRAIN_WARNING:
                warning_signal.of_drain(step, self.cluster.hosts[name])
            case HostTimer.MAINTENANCE:
                maintenance.on_time(step, self.cluster.hosts[name])
            case _:
                assert_never(kind)

    def _on_job_timer(self, step: Step, kind: JobTimer, job: Job) -> None:
        """Handle a job's timer. Each handler checks its own premise, which another timer of the moment may end."""
        if job.unreconciled is not None:
            self.timers.set((kind, job.id), step.now.mono_in(self.policies.leases.suspect_s))
            return
        match kind:
            case JobTimer.TIMEOUT:
                on_timeout(step, job)
            case JobTimer.TIMEOUT_WARNING:
                warning_signal.on_timer(step, job)
            case JobTimer.END_GRACE:
                exits.on_end_grace(step, job)
            case JobTimer.HANG:
                hangs.on_look(step, job)
            case JobTimer.UNDERUSE:
                underuse.on_underuse_look(step, job)
            case JobTimer.SLOWNESS:
                slowness.on_slowness_look(step, job)
            case JobTimer.SETTLE:
                exits.on_settled(step, job)
            case JobTimer.LAUNCH:
                launch(step, job, due=True)
            case JobTimer.PAUSE | JobTimer.LEAVE:
                attempts.on_warned(step, job, pauses=kind is JobTimer.PAUSE)
                drain.on_notice_over(step, job)
            case JobTimer.LOAN | JobTimer.OVERDUE | JobTimer.CLAIM | JobTimer.RETRY:
                on_waited(step, kind, job)
            case JobTimer.EXPIRE:
                on_expired(step, job, schedulable_hosts(self.cluster))
            case _:
                assert_never(kind)
