"""Ends: of ranks, as they are recorded once and for all, and of jobs, as they are reported."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ExitReason(enum.Enum):
    """Why a rank is no longer there."""

    COMPLETED = "COMPLETED"
    NONZERO_EXIT = "NONZERO_EXIT"
    SIGNALED = "SIGNALED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    CANNOT_START = "CANNOT_START"
    STOPPED = "STOPPED"
    HANG_KILLED = "HANG_KILLED"
    LOST_SHIM_DIED = "LOST_SHIM_DIED"
    LOST_REBOOT = "LOST_REBOOT"
    LOST_HOST = "LOST_HOST"
    NOT_STARTED = "NOT_STARTED"
    LOST_RECORD = "LOST_RECORD"
    """How it ended was known to a controller whose disk is lost."""


@dataclass(frozen=True)
class Exit:
    """How one rank of one generation ended. ``exit_code`` and ``signal`` are None when unknown or absent."""

    attempt: int
    generation: int
    rank: int
    reason: ExitReason
    exit_code: int | None = None
    signal: int | None = None
    core_dumped: bool = False
    message: str = ""
    end_time: float = 0.0
    stderr_tail: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """It finished its work."""
        return self.reason is ExitReason.COMPLETED

    @property
    def shell_code(self) -> int | None:
        """The code a shell would show: 128+n for signal n; None when nobody knows."""
        return 128 + self.signal if self.signal is not None else self.exit_code


@dataclass(frozen=True)
class JobError:
    """The first cause of a job's end. ``code`` is a google.rpc.Code."""

    code: int
    message: str
    details: tuple[str, ...] = ()
    exit_code: int | None = None
    rank: int | None = None
    """Whose end it is about, if it is about one."""
