"""Commands about reservations of hosts; see ``commands``."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import HostSelector


@dataclass(frozen=True)
class ReservationAsked:
    """An admin reserves hosts for a project, a user, or a user's jobs in a project; without ``start`` from now on."""

    token: int
    by: str
    name: str
    project: str
    start: Wall | None
    end: Wall
    selector: HostSelector
    count: int = 0
    gpus: int = 0
    gpu_type: str = ""
    reason: str = ""
    user: str = ""


@dataclass(frozen=True)
class ReservationDeletionAsked:
    """An admin wants a reservation gone."""

    token: int
    by: str
    name: str


ReservationCommand = ReservationAsked | ReservationDeletionAsked
