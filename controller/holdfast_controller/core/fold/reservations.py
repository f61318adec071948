"""Fold of reservations of hosts: those that aren't over."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events.reservations import ReservationEnded, ReservationEvent, ReservationMade
from holdfast_controller.core.model.cluster import Cluster


def fold_reservations(cluster: Cluster, event: ReservationEvent) -> None:
    """Apply ``event`` to the reservations."""
    by_name = cluster.reservations.by_name
    match event:
        case ReservationMade():
            by_name[event.reservation.name] = event.reservation
        case ReservationEnded():
            by_name.pop(event.name, None)
        case _:
            assert_never(event)
