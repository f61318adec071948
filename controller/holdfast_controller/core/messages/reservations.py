"""Events of reservations of hosts in words; see ``message_of``."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events.reservations import (
    ReservationBegan,
    ReservationEnded,
    ReservationEvent,
    ReservationMade,
)
from holdfast_controller.core.model.hosts.reservations import Reservation


def reservation_message(event: ReservationEvent) -> str:
    """The sentence for an event of a reservation."""
    match event:
        case ReservationMade(reservation=made):
            return f"reservation {made.name} of {what_is_reserved(made)} for {made.whose} made by {made.by}"
        case ReservationBegan():
            return f"reservation {event.name} begins"
        case ReservationEnded(by=""):
            return f"reservation {event.name} is over"
        case ReservationEnded():
            return f"reservation {event.name} deleted by {event.by}"
        case _:
            assert_never(event)


def what_is_reserved(reservation: Reservation) -> str:
    """Such as ``4 hosts of rack=a`` or ``64 H200 GPUs``."""
    which = reservation.selector.in_words()
    model = f"{reservation.gpu_type} " if reservation.gpu_type else ""
    if reservation.gpus:
        return f"{reservation.gpus} {model}GPUs" + (f" of {which}" if which else "")
    if reservation.count:
        many = "host" if reservation.count == 1 else "hosts"
        return (
            f"{reservation.count} {many}"
            + (f" with {model}GPUs" if model else "")
            + (f" of {which}" if which else "")
        )
    return (f"the hosts {which}" if which else "all hosts") + (f" with {model}GPUs" if model else "")
