"""What to do when a rank of the running generation ends badly: the failure policy.

The policy sees the failure that came first; what other ranks do in its wake is no cause of its own.
In-place restarts are paid by the budget of the worker that failed (five unless the job says otherwise; both
managed services whose behaviour we equal allow five). A program that can't even be started fails at once:
starting it again changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_controller.core.gang import Member
from holdfast_controller.core.model import Exit, ExitReason, Job, JobError

INVALID_ARGUMENT = 3
INTERNAL = 13
OF_RANKS = frozenset({INVALID_ARGUMENT, INTERNAL})
"""Codes of errors that are about the end of a rank."""
PORT_RETRIES = 5
"""Times in a row that a launch is tried anew because its port was taken at the last moment."""


@dataclass(frozen=True)
class Restart:
    """Go on with the next generation on the same places."""

    charged: int | None
    port_retry: bool = False


@dataclass(frozen=True)
class Fail:
    """The job is over."""

    error: JobError


def decide(job: Job, member: Member, exit_: Exit, *, port_taken: bool) -> Restart | Fail:
    """Answer the first failure of a generation: ``exit_`` of a rank of ``member``."""
    if port_taken and job.port_retries < PORT_RETRIES:
        return Restart(charged=None, port_retry=True)
    if exit_.reason is ExitReason.CANNOT_START:
        return Fail(error_of(member, exit_))
    used = job.worker_restarts.get(member.index, 0)
    if used >= job.gang.max_worker_restarts:
        return Fail(error_of(member, exit_, restarts=used))
    return Restart(charged=member.index)


def first_failure(job: Job, generation: int) -> tuple[Member, Exit] | None:
    """Which rank of a generation failed first, of those that were not stopped by us.

    What is reported first need not have happened first: a peer that lost its connection to the guilty rank
    may be heard sooner. Ends are ordered by their hosts' wall clocks, which agree to milliseconds where time
    is kept by NTP; between ranks of one host the order is exact.
    """
    failed = [
        (exit_.end_time, rank)
        for rank, exit_ in job.exits.get(generation, {}).items()
        if not exit_.ok and exit_.reason not in _OURS
    ]
    if not failed:
        return None
    rank = min(failed)[1]
    member = next(member for member in job.gang.members if rank in member.ranks)
    return member, job.exits[generation][rank]


_OURS = frozenset({ExitReason.STOPPED, ExitReason.HANG_KILLED, ExitReason.NOT_STARTED})


def error_of(member: Member, exit_: Exit, *, restarts: int = 0) -> JobError:
    """The report of a job that ends because of ``exit_``, in the words that managed services use."""
    details = []
    if restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        details.append(f"{member.name} had been restarted in place {times}.")
    details.extend(exit_.stderr_tail)
    return JobError(
        code=INTERNAL if exit_.reason.name.startswith("LOST") else INVALID_ARGUMENT,
        message=_sentence(member, exit_),
        details=tuple(details),
        exit_code=exit_.shell_code,
    )


def _sentence(member: Member, exit_: Exit) -> str:
    who = f"The replica {member.name}"
    rank = f" (rank {exit_.rank})" if member.processes > 1 else ""
    match exit_.reason:
        case ExitReason.CANNOT_START:
            return f"{who}{rank} could not be started: {exit_.message.rstrip('.')}."
        case ExitReason.OUT_OF_MEMORY:
            return f"{who}{rank} ran out of memory and exited with a non-zero status of {exit_.shell_code}."
        case ExitReason.NONZERO_EXIT:
            return f"{who}{rank} exited with a non-zero status of {exit_.exit_code}. Termination reason: Error."
        case ExitReason.SIGNALED:
            core = ", core dumped" if exit_.core_dumped else ""
            return (
                f"{who}{rank} exited with a non-zero status of {exit_.shell_code}."
                f" Termination reason: signal {exit_.signal}{core}."
            )
        case _:
            return f"{who}{rank} was lost: {exit_.message.rstrip('.') or exit_.reason.name}."
