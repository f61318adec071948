"""Checks of a controller's assignment: its names are safe as file names, and its launch is complete."""

from __future__ import annotations

import re
import signal

from holdfast._session import codec
from holdfast._session.assignment import Assignment, Launch, Phase
from holdfast._session.reports import WorkerId
from holdfast.bundles import is_digest
from holdfast.errors import InvalidInput
from holdfast.v1 import agent_pb2

PROCESSES_MOST = 1024
"""Of one worker."""
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WORKER = re.compile(r"workerpool\d{1,4}-\d{1,6}")


def is_job(job: str) -> bool:
    """Whether a job's id is safe as a file name."""
    return bool(_JOB.fullmatch(job))


def is_worker(key: WorkerId) -> bool:
    """Whether both names are safe as file names."""
    return bool(_JOB.fullmatch(key.job) and _WORKER.fullmatch(key.worker))


def checked_assignment(message: agent_pb2.Assignment) -> Assignment:
    """The assignment as the core's value. Raises ``ValueError`` for unsafe names or a missing part."""
    try:
        assignment = codec.assignment_from_proto(message)
    except InvalidInput as error:
        raise ValueError(str(error)) from error
    key, launch = assignment.key, assignment.launch
    if not is_worker(key):
        raise ValueError(f"{key.job!r}/{key.worker!r} names no worker")
    if assignment.generation < 1:
        raise ValueError(f"generation {assignment.generation} is below 1")
    if launch is not None:
        _check(launch)
    for number in (assignment.warn_signal, assignment.notice_signal):
        if not 0 <= number < signal.NSIG:
            raise ValueError(f"{number} is no signal")
    if launch is None and assignment.phase in (Phase.PREPARE, Phase.RUN):
        raise ValueError(f"phase {assignment.phase.name} without a launch")
    if assignment.phase is Phase.RUN and (launch is None or launch.rendezvous is None):
        raise ValueError("phase RUN without a rendezvous")
    return assignment


def _check(launch: Launch) -> None:
    task = launch.task
    if not task.command and not task.image:
        raise ValueError("a launch without a command")
    if not 1 <= launch.processes <= PROCESSES_MOST:
        raise ValueError(f"a launch of {launch.processes} processes")
    if task.code is not None and task.code.bundle and not is_digest(task.code.bundle):
        raise ValueError(f"{task.code.bundle[:80]!r} names no bundle")
