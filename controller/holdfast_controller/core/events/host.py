"""Events of hosts; see ``events``."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.health import Health
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.hosts.host import CheckStatus, GpuFault, Inventory, Maintenance, Waiver
from holdfast_controller.core.model.hosts.measurements import Kind, Measurement, Why


@dataclass(frozen=True, kw_only=True)
class HostJoined:
    """A host connected for the first time, or with a changed address, version, inventory or labels."""

    host: str
    at: Wall
    address: str
    boot_id: str
    agent_version: str
    inventory: Inventory
    labels: dict[str, str] = field(default_factory=dict)
    known: bool = False
    """It had joined before."""
    rebooted: bool = False
    previous_version: str = ""
    """Of its agent; empty where that is the same."""
    agent_stopped_at: Wall = NEVER
    """When its agent had been stopped before."""
    had_gpu_problems: bool = False
    """Some of its GPUs were not well when it was last heard of them."""


@dataclass(frozen=True, kw_only=True)
class HostRefused:
    """An agent was refused, for its version or for a later epoch that it has obeyed.

    ``problem`` says why, and what to do.
    """

    host: str
    at: Wall
    agent_version: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class HostThrottled:
    """One kind of a host's messages exceeded what it may store in an hour; further ones are held back."""

    host: str
    at: Wall
    kind: str
    per_hour_bytes: int


@dataclass(frozen=True, kw_only=True)
class HostCordoned:
    """A host was cordoned: it gets no new work."""

    host: str
    at: Wall
    reason: str
    by: str


@dataclass(frozen=True, kw_only=True)
class HostUncordoned:
    """A host was uncordoned: it gets work again. ``repaired``: its failures are counted from now on."""

    host: str
    at: Wall
    by: str
    repaired: bool = False


@dataclass(frozen=True, kw_only=True)
class HostDraining:
    """A drain began: the host gets no new work, and its work ends or moves until ``deadline`` (wall clock)."""

    host: str
    at: Wall
    reason: str
    by: str
    deadline: Wall | None = None
    at_checkpoint: bool = False


@dataclass(frozen=True, kw_only=True)
class HostDrained:
    """A draining host has no work left."""

    host: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class HostFenced:
    """An admin vouches that nothing runs on a host any more: its shares are free, its ranks are lost."""

    host: str
    at: Wall
    reason: str
    by: str


@dataclass(frozen=True, kw_only=True)
class HostPlaceFreed:
    """A quarantined share is free: its worker is proven gone. ``place`` is JOB/WORKER_INDEX."""

    host: str
    at: Wall
    place: str


@dataclass(frozen=True, kw_only=True)
class HostLost:
    """A host was silent past its lease."""

    host: str
    at: Wall
    silent_s: float
    shut_down_at: Wall = NEVER
    """When it had said that it shuts down."""
    agent_stopped_at: Wall = NEVER
    """When its agent had said that it is stopped."""


@dataclass(frozen=True, kw_only=True)
class HostReturned:
    """A lost host connected again."""

    host: str
    at: Wall
    silent_since: Wall = NEVER


@dataclass(frozen=True, kw_only=True)
class HostRemoved:
    """An admin removed a host; its certificates are void."""

    host: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class HostShutdownBegan:
    """A host is shutting down: its work moves at once, and it gets none until it has booted again."""

    host: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class AgentStopped:
    """The agent of a host was stopped in an orderly way; the host goes on, and what runs there runs on."""

    host: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class HostCheckFailed:
    """A check of a host fails, or fails in a worse way than before. ``fix`` is lines to type or write."""

    host: str
    at: Wall
    check: str
    status: CheckStatus
    saw: str
    why: str = ""
    fix: tuple[str, ...] = ()
    keeps_work_away: bool = False
    health: Health | None = None
    waived: Waiver | None = None


@dataclass(frozen=True, kw_only=True)
class HostCheckPassed:
    """A check of a host that failed passes again."""

    host: str
    at: Wall
    check: str
    health: Health | None = None


@dataclass(frozen=True, kw_only=True)
class MaintenancePlanned:
    """A maintenance window of a host was planned."""

    host: str
    at: Wall
    maintenance: Maintenance


@dataclass(frozen=True, kw_only=True)
class MaintenanceBegan:
    """A host's maintenance window began."""

    host: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class MaintenanceEnded:
    """A maintenance ended or was cancelled. ``why`` is set where the host stays cordoned."""

    host: str
    at: Wall
    by: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class GpuCondemned:
    """A GPU gets no new work until it is repaired; ``fault`` says why, and whether its host is kept from work too."""

    host: str
    at: Wall
    gpu: str
    """UUID."""
    index: int
    fault: GpuFault


@dataclass(frozen=True, kw_only=True)
class GpuCleared:
    """Faults of a GPU are over: by evidence of the repair, which ``why`` names, or because ``by`` says so."""

    host: str
    at: Wall
    gpu: str
    """UUID."""
    index: int
    causes: tuple[str, ...]
    by: str
    why: str


@dataclass(frozen=True, kw_only=True)
class HostMeasurementDue:
    """An active check of a host is due: ``by`` an admin, or as a repetition where that is empty."""

    host: str
    at: Wall
    kind: Kind
    why: Why
    by: str


@dataclass(frozen=True, kw_only=True)
class HostMeasurementBegan:
    """An active check of a host became a job, which the same commit holds."""

    host: str
    at: Wall
    job: str
    kind: Kind
    why: Why
    partner: str = ""


@dataclass(frozen=True, kw_only=True)
class HostMeasured:
    """An active check of a host has ended."""

    host: str
    at: Wall
    result: Measurement


HostEvent = (
    GpuCleared
    | GpuCondemned
    | HostJoined
    | HostRefused
    | HostThrottled
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
    | AgentStopped
    | HostCheckFailed
    | HostCheckPassed
    | MaintenancePlanned
    | MaintenanceBegan
    | MaintenanceEnded
    | HostMeasurementDue
    | HostMeasurementBegan
    | HostMeasured
)
