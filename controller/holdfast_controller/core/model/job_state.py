"""The job's state machine: every state that can be reached, and the one table of what may follow what."""

from __future__ import annotations

import enum


class JobState(enum.Enum):
    """A job's state; names and meaning are those of managed training services."""

    QUEUED = "QUEUED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    PAUSED = "PAUSED"
    EXPIRED = "EXPIRED"


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset(
        {
            JobState.PENDING,
            JobState.PAUSED,
            JobState.CANCELLING,
            JobState.CANCELLED,
            JobState.EXPIRED,
            JobState.FAILED,
        }
    ),
    JobState.PENDING: frozenset(
        {
            JobState.RUNNING,
            JobState.QUEUED,
            JobState.PAUSED,
            JobState.CANCELLING,
            JobState.SUCCEEDED,
            JobState.FAILED,
        }
    ),
    JobState.RUNNING: frozenset(
        {JobState.QUEUED, JobState.PAUSED, JobState.CANCELLING, JobState.SUCCEEDED, JobState.FAILED}
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED, JobState.FAILED}),
    JobState.CANCELLING: frozenset({JobState.CANCELLED, JobState.FAILED, JobState.SUCCEEDED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.EXPIRED: frozenset(),
}
"""QUEUED comes again after an attempt that failed, or that a pause ended: the job waits for new hosts. A paused job
fails where a job that it was to run after has ended otherwise than it had to."""

TERMINAL = frozenset(state for state, following in TRANSITIONS.items() if not following)


class IllegalTransition(AssertionError):
    """A transition that the table doesn't list: a defect of ours, never a user's."""


def checked(now: JobState, following: JobState) -> JobState:
    """``following``, if the table allows it after ``now``. Raises ``IllegalTransition``."""
    if following not in TRANSITIONS[now]:
        raise IllegalTransition(f"{now.name} -> {following.name}")
    return following
