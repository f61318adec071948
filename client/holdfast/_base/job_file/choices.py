"""The words from which a job file chooses. What reads it, what decides by it and what carries it out share these.

Values are the names in the contract. The controller stores the members' own names, which job files may use as well.
"""

from __future__ import annotations

import enum
from typing import Any


class Choice(enum.Enum):
    """A word of the job file."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """How the controller's log reads and writes it: by its name."""
        # Written out, since agents import this and carry no pydantic.
        return {
            "type": "function-after",
            "function": {"type": "no-info", "function": cls.__getitem__},
            "schema": {"type": "literal", "expected": list(cls.__members__)},
            "serialization": {"type": "function-plain", "function": lambda member: member.name},
        }


class SuccessPolicy(Choice):
    """When a job counts as done."""

    PRIMARY = "SUCCESS_POLICY_PRIMARY"
    ALL = "SUCCESS_POLICY_ALL"


class RestartScope(Choice):
    """The part of a job that a restart in place relaunches: the whole gang, or the worker that failed."""

    GANG = "RESTART_SCOPE_GANG"
    WORKER = "RESTART_SCOPE_WORKER"


class HangAction(Choice):
    """The answer to a confirmed hang. OFF: hangs are not looked for."""

    NOTIFY = "HANG_ACTION_NOTIFY"
    RESTART = "HANG_ACTION_RESTART"
    OFF = "HANG_ACTION_OFF"


class DependencyEnd(Choice):
    """The end of a job that another one waits for."""

    OK = "DEPENDENCY_END_OK"
    ANY = "DEPENDENCY_END_ANY"
    FAILED = "DEPENDENCY_END_FAILED"

    def met_by(self, succeeded: bool) -> bool:
        """Whether a job that has ended, by success or otherwise, has ended so."""
        return self is DependencyEnd.ANY or succeeded is (self is DependencyEnd.OK)

    @property
    def in_words(self) -> str:
        """The deed of the other job as a verb, such as "succeed"."""
        return {DependencyEnd.OK: "succeed", DependencyEnd.ANY: "end", DependencyEnd.FAILED: "fail"}[self]


class UnderuseShare(Choice):
    """Which of a job's GPUs have to be unused."""

    ANY = "UNDERUSE_SHARE_ANY"
    ALL = "UNDERUSE_SHARE_ALL"


class UnderuseAction(Choice):
    """The answer to GPUs that stay unused. OFF: they are not looked for."""

    NOTIFY = "UNDERUSE_ACTION_NOTIFY"
    PAUSE = "UNDERUSE_ACTION_PAUSE"
    STOP = "UNDERUSE_ACTION_STOP"
    OFF = "UNDERUSE_ACTION_OFF"

    @property
    def usual_share(self) -> UnderuseShare:
        """Which GPUs have to be unused where no one says: any is reported, but one alone ends no work."""
        return UnderuseShare.ALL if self in (UnderuseAction.PAUSE, UnderuseAction.STOP) else UnderuseShare.ANY


class NumaBinding(Choice):
    """Cores and memory of its host that a rank is kept to."""

    NONE = "NUMA_BINDING_NONE"
    NODE = "NUMA_BINDING_NODE"
    """The cores of its GPU's NUMA node, shared with others, and that node's memory first."""
    EXCLUSIVE = "NUMA_BINDING_EXCLUSIVE"
    """Whole cores that no other rank is bound to, and the same memory."""


class NotificationEvent(Choice):
    """Events of a job that receivers can be notified of."""

    STARTED = "NOTIFICATION_EVENT_STARTED"
    COMPLETED = "NOTIFICATION_EVENT_COMPLETED"
    FAILED = "NOTIFICATION_EVENT_FAILED"
    CANCELLED = "NOTIFICATION_EVENT_CANCELLED"
    EXPIRED = "NOTIFICATION_EVENT_EXPIRED"
    RESTARTED = "NOTIFICATION_EVENT_RESTARTED"
    RECOVERED = "NOTIFICATION_EVENT_RECOVERED"
    HANGED = "NOTIFICATION_EVENT_HANGED"
    PREEMPTED = "NOTIFICATION_EVENT_PREEMPTED"
    DRAINED = "NOTIFICATION_EVENT_DRAINED"
    MAINTENANCE = "NOTIFICATION_EVENT_MAINTENANCE"
    UNSURE = "NOTIFICATION_EVENT_UNSURE"
    UNDERUSED = "NOTIFICATION_EVENT_UNDERUSED"
    STRAGGLER = "NOTIFICATION_EVENT_STRAGGLER"
