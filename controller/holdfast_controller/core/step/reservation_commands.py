"""Commands about reservations of hosts; see ``commands``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.hosts.reservations import Reservation


@dataclass(frozen=True)
class ReservationAsked:
    """An admin reserves hosts for a project, a user, or a user's jobs in a project; ``start`` NEVER: from now on."""

    token: int
    reservation: Reservation


@dataclass(frozen=True)
class ReservationDeletionAsked:
    """An admin wants a reservation gone."""

    token: int
    by: str
    name: str


ReservationCommand = ReservationAsked | ReservationDeletionAsked
