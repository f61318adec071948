"""Events of fair share in words; see ``message_of``."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events.shares import GuaranteeSet, HalfLifeSet, ShareEvent, ShareSet


def share_message(event: ShareEvent) -> str:
    """The sentence for an event of fair share."""
    match event:
        case ShareSet(weight=None):
            return f"weight of project {event.project} cleared by {event.by}"
        case ShareSet(weight=weight):
            return f"weight of project {event.project} set to {weight:g} by {event.by}"
        case GuaranteeSet(gpus=0):
            return f"guarantee of project {event.project} cleared by {event.by}"
        case GuaranteeSet(gpus=gpus):
            return f"project {event.project} is guaranteed {gpus} GPU{'s' * (gpus > 1)} by {event.by}"
        case HalfLifeSet():
            return f"what projects have used counts half after {event.half_life_s / 3600:g} h from now on"
        case _:
            assert_never(event)
