"""The states of a worker, each with its own data, and the table of the steps between them."""

from __future__ import annotations

import enum

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import ReportedState


class StateKind(enum.Enum):
    """Which state a worker is in, without its data."""

    EMPTY = "EMPTY"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    CANNOT_PREPARE = "CANNOT_PREPARE"
    LAUNCHING = "LAUNCHING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STUCK = "STUCK"
    LOST = "LOST"
    FREEING = "FREEING"
    QUARANTINED = "WITHHELD"  # a public value: `status` and the metrics print it
    CLOSING = "CLOSING"
    FORGETTING = "FORGETTING"
    FORGOTTEN = "FORGOTTEN"

    @property
    def reported(self) -> ReportedState:
        """The state as reported to the controller, which distinguishes fewer."""
        return _REPORTED.get(self) or ReportedState[self.name]


_REPORTED = {
    StateKind.LAUNCHING: ReportedState.PREPARED,
    StateKind.LOST: ReportedState.STOPPING,
    StateKind.FREEING: ReportedState.STOPPING,
    StateKind.QUARANTINED: ReportedState.STUCK,
    StateKind.CLOSING: ReportedState.STOPPING,
    StateKind.FORGETTING: ReportedState.EMPTY,
    StateKind.FORGOTTEN: ReportedState.EMPTY,
}


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing of this generation, or an older one, is left. ``message``: what the host failed in at its end."""

    generation: int
    message: str = ""
    unsaid: bool = False
    """It was prepared and never launched: the controller has not heard that it is empty."""
    kind = StateKind.EMPTY

    @property
    def host_fault(self) -> bool:
        """Its epilog has failed."""
        return bool(self.message)


@dataclass(frozen=True, slots=True)
class Preparing:
    """Checks and ports of this generation are under way."""

    generation: int
    kind = StateKind.PREPARING


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything is ready and nothing has been forked."""

    generation: int
    port: int
    master_port: int
    kind = StateKind.PREPARED


@dataclass(frozen=True, slots=True)
class CannotPrepare:
    """This generation can't run here; ``message`` says why."""

    generation: int
    message: str
    host_fault: bool = False
    kind = StateKind.CANNOT_PREPARE


@dataclass(frozen=True, slots=True)
class Launching:
    """The shim was ordered to start the ranks."""

    generation: int
    port: int
    master_port: int
    kind = StateKind.LAUNCHING


@dataclass(frozen=True, slots=True)
class Running:
    """Ranks were started; some may have ended."""

    generation: int
    kind = StateKind.RUNNING


@dataclass(frozen=True, slots=True)
class Stopping:
    """The shim was ordered to stop this generation, or stops processes that its ranks have left."""

    generation: int
    kind = StateKind.STOPPING


@dataclass(frozen=True, slots=True)
class Stuck:
    """Processes outlive KILL."""

    generation: int
    message: str
    kind = StateKind.STUCK


@dataclass(frozen=True, slots=True)
class Lost:
    """The shim is gone; what it left is being killed."""

    generation: int
    message: str = ""
    kind = StateKind.LOST


@dataclass(frozen=True, slots=True)
class Freeing:
    """No process is left; whether its GPUs are free is being looked at. ``since_s`` is monotonic."""

    generation: int
    since_s: float
    pause_s: float
    message: str = ""
    kind = StateKind.FREEING


@dataclass(frozen=True, slots=True)
class Quarantined:
    """No process is left, but its GPUs are still not free, or can't be read."""

    generation: int
    message: str
    kind = StateKind.QUARANTINED


@dataclass(frozen=True, slots=True)
class Closing:
    """No process is left and the GPUs are free; the admin's epilog runs."""

    generation: int
    kind = StateKind.CLOSING


@dataclass(frozen=True, slots=True)
class Forgetting:
    """The worker's files are being removed."""

    generation: int
    unsaid: bool = True
    """The controller has not heard yet that the worker is empty, and will once the files are gone."""
    kind = StateKind.FORGETTING


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The end of the worker."""

    generation: int
    kind = StateKind.FORGOTTEN


State = (
    Empty
    | Preparing
    | Prepared
    | CannotPrepare
    | Launching
    | Running
    | Stopping
    | Stuck
    | Lost
    | Freeing
    | Quarantined
    | Closing
    | Forgetting
    | Forgotten
)

TRANSITIONS: dict[StateKind, frozenset[StateKind]] = {
    StateKind.EMPTY: frozenset(
        {
            StateKind.EMPTY,
            StateKind.STOPPING,
            StateKind.PREPARING,
            StateKind.CANNOT_PREPARE,
            StateKind.RUNNING,
            StateKind.CLOSING,
            StateKind.FORGETTING,
        }
    ),
    StateKind.PREPARING: frozenset({StateKind.PREPARED, StateKind.CANNOT_PREPARE}),
    StateKind.PREPARED: frozenset({StateKind.LAUNCHING, StateKind.CANNOT_PREPARE, StateKind.EMPTY}),
    StateKind.CANNOT_PREPARE: frozenset({StateKind.EMPTY}),
    StateKind.LAUNCHING: frozenset(
        {
            StateKind.RUNNING,
            StateKind.STOPPING,
            StateKind.STUCK,
            StateKind.LOST,
            StateKind.FREEING,
            StateKind.EMPTY,
            StateKind.CANNOT_PREPARE,
        }
    ),
    StateKind.RUNNING: frozenset(
        {StateKind.STOPPING, StateKind.STUCK, StateKind.LOST, StateKind.FREEING, StateKind.EMPTY}
    ),
    StateKind.STOPPING: frozenset({StateKind.STUCK, StateKind.LOST, StateKind.FREEING, StateKind.EMPTY}),
    StateKind.STUCK: frozenset({StateKind.STUCK, StateKind.LOST, StateKind.FREEING, StateKind.EMPTY}),
    StateKind.LOST: frozenset({StateKind.LOST, StateKind.STUCK, StateKind.FREEING, StateKind.EMPTY}),
    StateKind.FREEING: frozenset({StateKind.FREEING, StateKind.QUARANTINED, StateKind.EMPTY}),
    StateKind.QUARANTINED: frozenset({StateKind.QUARANTINED, StateKind.EMPTY}),
    StateKind.CLOSING: frozenset({StateKind.EMPTY}),
    StateKind.FORGETTING: frozenset({StateKind.FORGOTTEN}),
    StateKind.FORGOTTEN: frozenset(),
}
"""From which state to which a worker may go."""

FOUND = frozenset({StateKind.EMPTY, StateKind.RUNNING, StateKind.STOPPING, StateKind.LOST, StateKind.FREEING})
"""States in which a worker may be found when the agent starts."""


class IllegalTransition(Exception):
    """A step that the table doesn't have: a fault of ours."""
