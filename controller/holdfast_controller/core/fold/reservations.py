"""Fold of reservations of hosts: those that aren't over."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events.reservations import (
    ReservationBegan,
    ReservationEnded,
    ReservationEvent,
    ReservationMade,
)
from holdfast_controller.core.model.cluster import Cluster


def fold_reservations(cluster: Cluster, event: ReservationEvent) -> None:
    """Apply ``event`` to the reservations."""
    known = cluster.reservations
    match event:
        case ReservationMade(reservation=made):
            known.by_name[made.name] = made
            if made.start <= event.at:
                known.begun.add(made.name)
        case ReservationBegan():
            known.begun.add(event.name)
        case ReservationEnded():
            known.by_name.pop(event.name, None)
            known.begun.discard(event.name)
        case _:
            assert_never(event)
