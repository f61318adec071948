"""Events of hosts; see ``events``."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.host import Inventory, Maintenance


@dataclass(frozen=True, kw_only=True)
class HostJoined:
    """An agent introduced its host, for the first time or with something new."""

    host: str
    at: Wall
    address: str
    boot_id: str
    agent_version: str
    inventory: Inventory
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostRefused:
    """An agent called that this controller can't work with. ``problem`` says why, and what to do."""

    host: str
    at: Wall
    agent_version: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class HostCordoned:
    """The host takes no new work."""

    host: str
    at: Wall
    reason: str
    by: str


@dataclass(frozen=True, kw_only=True)
class HostUncordoned:
    """The host takes work again."""

    host: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class HostDraining:
    """Its work is to end or to move off; it takes no new work. ``deadline`` is wall clock."""

    host: str
    at: Wall
    reason: str
    by: str
    deadline: Wall | None = None
    at_checkpoint: bool = False


@dataclass(frozen=True, kw_only=True)
class HostDrained:
    """Nothing is left of the work on a host that is being drained."""

    host: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class HostFenced:
    """An admin vouches that nothing runs there any more: what it held is free, its ranks are lost."""

    host: str
    at: Wall
    reason: str
    by: str


@dataclass(frozen=True, kw_only=True)
class HostPlaceFreed:
    """A place that was withheld is proven empty. ``place`` is JOB/WORKER_INDEX."""

    host: str
    at: Wall
    place: str


@dataclass(frozen=True, kw_only=True)
class HostLost:
    """The host was silent past its lease."""

    host: str
    at: Wall
    silent_s: float


@dataclass(frozen=True, kw_only=True)
class HostReturned:
    """A lost host is heard again."""

    host: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class HostRemoved:
    """An admin has the host forgotten; its certificates are void."""

    host: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class HostShutdownBegan:
    """The host shuts down: its work moves off at once, and it takes none until it has booted again."""

    host: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class MaintenancePlanned:
    """A host is to take no work for a time."""

    host: str
    at: Wall
    maintenance: Maintenance


@dataclass(frozen=True, kw_only=True)
class MaintenanceBegan:
    """Its time has come."""

    host: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class MaintenanceEnded:
    """Its time is over, or somebody has called it off. ``why``, where the host stays cordoned."""

    host: str
    at: Wall
    by: str
    why: str = ""


HostEvent = (
    HostJoined
    | HostRefused
    | HostCordoned
    | HostUncordoned
    | HostDraining
    | HostDrained
    | HostFenced
    | HostPlaceFreed
    | HostLost
    | HostReturned
    | HostRemoved
    | HostShutdownBegan
    | MaintenancePlanned
    | MaintenanceBegan
    | MaintenanceEnded
)
