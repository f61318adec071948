"""What an agent reports of one worker: its state on the host, and the exit of a rank."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from holdfast_controller.core.model.exits import Exit


class PlaceState(enum.Enum):
    """What an agent says of one worker's place."""

    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    CANNOT_PREPARE = "CANNOT_PREPARE"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    EMPTY = "EMPTY"
    STUCK = "STUCK"


@dataclass(frozen=True)
class PlaceReport:
    """State of one worker on its host. ``pids`` in rank order, while running."""

    job_id: str
    attempt: int
    generation: int
    worker: str
    state: PlaceState
    port: int = 0
    master_port: int = 0
    shim_pid: int = 0
    pids: tuple[int, ...] = ()
    message: str = ""
    host_fault: bool = False
    """With CANNOT_PREPARE: the host failed its checks; the program may be all right."""
    gpus: tuple[str, ...] = ()
    """UUIDs that its ranks were given, as far as the agent knows."""


@dataclass(frozen=True)
class ExitReported:
    """An agent reports how a rank ended; it repeats that until acknowledged."""

    host: str
    session: int
    sequence: int
    job_id: str
    worker: str
    exit: Exit
    port_taken: bool = False
