"""The words of recoveries: why a generation or attempt ended, what it was about, what is done, what pays for it.

Values are stored and sent: never change one.
"""

from __future__ import annotations

import enum
import re

from holdfast._base.dataclass import dataclass


class EndReason(enum.Enum):
    """Why a generation or an attempt ended. Those of a rank's exit keep the exit's reason as their name."""

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
    PORT_TAKEN = "PORT_TAKEN"
    """The launch failed because another process had taken its port."""
    HANG = "HANG"
    CUT_OFF = "CUT_OFF"
    """The shim stopped the work because the controller was silent past the lease."""
    HARDWARE_FAULT = "HARDWARE_FAULT"
    HOST_UNFIT = "HOST_UNFIT"
    """The host failed its checks before the start."""
    RESTART_REQUESTED = "RESTART_REQUESTED"
    DRAINED = "DRAINED"
    HOST_SHUTDOWN = "HOST_SHUTDOWN"
    PREEMPTED = "PREEMPTED"
    PAUSED = "PAUSED"
    CONTROLLER_RESTORED = "CONTROLLER_RESTORED"
    """The controller was restored from a backup and cannot tell what its attempt did since."""


class Recover(enum.Enum):
    """How the job goes on. The values are those of managed training services."""

    PROC_RESTART = "PROC_RESTART"
    """In place: the next generation on the same hosts."""
    WORKER_RESCHEDULE = "WORKER_RESCHEDULE"
    """Some workers on other hosts, the others where they are."""
    JOB_RESCHEDULE = "JOB_RESCHEDULE"
    JOB_RESCHEDULE_WITH_CORDON = "JOB_RESCHEDULE_WITH_CORDON"


class StartType(enum.Enum):
    """Whether a recovery places the gang again or restarts it in place."""

    INIT_OR_RESCHEDULED = "INIT_OR_RESCHEDULED"
    RESTARTED = "RESTARTED"


class Budget(enum.Enum):
    """Which of a job's budgets pays for a failure."""

    NONE = ""
    WORKER = "WORKER"
    TRANSIENT = "TRANSIENT"
    INTERNAL = "INTERNAL"
    HANG = "HANG"
    HOST = "HOST"
    JOB = "JOB"


@dataclass(frozen=True, order=True)
class RankName:
    """A rank and the worker that it belongs to."""

    worker: str
    rank: int

    def __str__(self) -> str:
        return f"{self.worker} rank {self.rank}"


@dataclass(frozen=True)
class Related:
    """The cause that a recovery names: ranks, a host, another job, or the user who asked for it; may be empty."""

    ranks: tuple[RankName, ...] = ()
    host: str = ""
    job: str = ""
    user: str = ""

    def __str__(self) -> str:
        if self.ranks:
            return " and ".join(map(str, self.ranks))
        if self.host:
            return f"host {self.host}"
        if self.job:
            return f"job {self.job}"
        return f"asked by {self.user}" if self.user else ""


_RANK = re.compile(r"(\S+) rank (\d+)")


def ranks_named(names: tuple[str, ...]) -> tuple[RankName, ...]:
    """The ranks that the hang detector names, as in "workerpool0-1 rank 5"; other names are left out."""
    found = map(_RANK.fullmatch, names)
    return tuple(RankName(named[1], int(named[2])) for named in found if named)


def of_rank(worker: str, rank: int) -> Related:
    """The related rank of a rank's failure."""
    return Related((RankName(worker, rank),))


def related_in_words(related: Related, reason: EndReason) -> str:
    """``workerpool0-0 rank 3``, ``host gpu-07``, ``asked by ann``; never empty where there is a recovery."""
    nothing = {EndReason.HANG: "no rank in particular", EndReason.CONTROLLER_RESTORED: "the controller"}
    return str(related) or nothing.get(reason, "")
