"""Exit statuses of the command line; scripts rely on every one of these numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, InvalidInput

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2

OK = 0
USAGE = 2
NOT_RUNNING = 3
TIMED_OUT = 124
OUR_FAILURE = 125
CANCELLED = 130
READER_GONE = 141
"""128 and SIGPIPE, as every program whose reader has gone."""

_DEADLINE_EXCEEDED = 4
"""Of google.rpc.Code: how a job that ran into its timeout is marked."""


def of_error(error: HoldfastError) -> int:
    """The status of a command that was refused or has failed so."""
    return USAGE if isinstance(error, InvalidInput) else OUR_FAILURE


def of_job(job: job_pb2.CustomJob) -> int:
    """The status for a job that has ended: its own code where it has one, and never 0 unless it SUCCEEDED."""
    from holdfast.v1 import job_pb2

    match job.state:
        case job_pb2.JOB_STATE_SUCCEEDED:
            return OK
        case job_pb2.JOB_STATE_EXPIRED:
            return TIMED_OUT
        case job_pb2.JOB_STATE_CANCELLED:
            return CANCELLED
        case _ if job.error.code == _DEADLINE_EXCEEDED:
            return TIMED_OUT
        case _ if job.error.HasField("exit_code") and 0 < job.error.exit_code < 256:
            return job.error.exit_code
        case _:
            return OUR_FAILURE
