"""A restart in place that a user asks for."""

from __future__ import annotations

from holdfast_controller.core.lifecycle.exits import restart_gang
from holdfast_controller.core.lifecycle.launch import end_backoff
from holdfast_controller.core.lifecycle.stop import restartable
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.step.actions import Reply
from holdfast_controller.core.step.commands import RestartAsked
from holdfast_controller.core.step.step import Step


def on_restart_asked(step: Step, asked: RestartAsked) -> None:
    """Relaunch the gang, or end the delay before its next launch."""
    job = restartable(step, asked)
    if job is None:
        return
    if not end_backoff(step, job):
        restart_gang(
            step,
            job,
            end_reason=EndReason.RESTART_REQUESTED,
            related=Related(user=asked.by),
            failed_at=step.now.wall,
        )
    step.do(Reply(asked.token, job.id))
