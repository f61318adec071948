"""Events of reservations of hosts; see ``events`` and ``model.hosts.reservations``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.reservations import Reservation


@dataclass(frozen=True, kw_only=True)
class ReservationMade:
    """An admin reserved hosts for a project or a user."""

    at: Wall
    reservation: Reservation


@dataclass(frozen=True, kw_only=True)
class ReservationBegan:
    """Its time has come, some while after it was made."""

    at: Wall
    name: str


@dataclass(frozen=True, kw_only=True)
class ReservationEnded:
    """Its time is over, or an admin deleted it: ``by`` is empty in the first case."""

    at: Wall
    name: str
    by: str = ""


ReservationEvent = ReservationMade | ReservationBegan | ReservationEnded
