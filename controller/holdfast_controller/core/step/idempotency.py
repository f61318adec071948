"""Idempotency: a call that carries its caller's request id is acted on once, however often it arrives.

An answer is kept in the commit that holds what the call led to: after a crash either both are there or neither is.
A refusal changed nothing and is not kept; the same call may do better later. A job remembers the id that it was
made by for as long as it is known, so that no later call makes a second one when the answer itself is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import InvalidInput, Violation
from holdfast_controller.core.model.cluster import Answer
from holdfast_controller.core.step.actions import KeepAnswer, Refuse, Reply
from holdfast_controller.core.step.commands import Command, JobSubmission, Once
from holdfast_controller.core.step.step import Step

KEPT_ANSWERS = 10_000
"""The newest ones; a call that is repeated comes seconds after the first, not that many calls later."""


def on_once(step: Step, once: Once, act: Callable[[Command], None]) -> None:
    """Repeat the earlier answer to a request id; without one, ``act`` on the command and remember its answer."""
    answers, key = step.cluster.answers, (once.by, once.request_id)
    known = answers.get(key)
    token = once.command.token
    if known is None and isinstance(once.command, JobSubmission) and key in step.cluster.requests:
        step.do(Reply(token, step.cluster.requests[key]))
        return
    if known is not None and known.digest != once.digest:
        problem = f"{once.request_id!r} was the id of another request"
        step.do(Refuse(token, InvalidInput([Violation("requestId", problem, "draw a fresh one for each request")])))
        return
    if known is not None:
        step.do(Reply(token, known.subject))
        return
    act(once.command)
    subject = next((a.subject for a in step.actions if isinstance(a, Reply) and a.token == token), None)
    if subject is None:
        return
    answers[key] = Answer(once.digest, subject)
    step.do(KeepAnswer(*key, answers[key]))
    while len(answers) > KEPT_ANSWERS:
        del answers[next(iter(answers))]
