"""Events of fair share in words; see ``message_of``."""

from __future__ import annotations

from typing import assert_never

from holdfast._base.projects import EVERY_PROJECT
from holdfast_controller.core.events.shares import GuaranteeSet, HalfLifeSet, QuotaSet, ShareEvent, ShareSet
from holdfast_controller.core.model.accounts.quota import UNLIMITED, USER, Quota


def share_message(event: ShareEvent) -> str:
    """The sentence for an event of fair share."""
    match event:
        case ShareSet(weight=None):
            return f"weight of project {event.project} cleared by {event.by}"
        case ShareSet(weight=weight):
            return f"weight of project {event.project} set to {weight:.12g} by {event.by}"
        case GuaranteeSet(gpus=0):
            return f"guarantee of project {event.project} cleared by {event.by}"
        case GuaranteeSet(gpus=gpus):
            return f"project {event.project} is guaranteed {gpus} GPU{'s' * (gpus > 1)} by {event.by}"
        case QuotaSet(quota=None):
            return f"quota of {in_words(event.holder)} is that of the settings again, by {event.by}"
        case QuotaSet(quota=quota):
            assert quota is not None
            return f"quota of {in_words(event.holder)} set to {limits_in_words(quota)} by {event.by}"
        case HalfLifeSet():
            return f"what projects have used counts half after {event.half_life_s / 3600:.12g} h from now on"
        case _:
            assert_never(event)


def in_words(holder: str) -> str:
    """Such as ``user ann``, or ``each project``."""
    kind, name = ("user", holder.removeprefix(USER)) if holder.startswith(USER) else ("project", holder)
    return f"each {kind} without one" if name == EVERY_PROJECT else f"{kind} {name}"


def limits_in_words(quota: Quota) -> str:
    """Such as ``32 GPUs, any number of running jobs``."""
    limits = ((quota.gpus, "GPUs"), (quota.running_jobs, "running jobs"), (quota.waiting_jobs, "waiting jobs"))
    words = [
        f"{'any number of' if limit == UNLIMITED else limit} {what}" for limit, what in limits if limit is not None
    ]
    if quota.max_priority is not None:
        words.append("any priority" if quota.max_priority == UNLIMITED else f"priority {quota.max_priority}")
    return ", ".join(words)
