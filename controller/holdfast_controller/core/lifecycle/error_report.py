"""Error reports: the first cause of a job's end, in the words that managed services use."""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast._base.job_file.launcher import is_login_shell
from holdfast._session.assignment import Task
from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.events.recovery import Failure
from holdfast_controller.core.model.exits import JobError, raised_by
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import Budget

INVALID_ARGUMENT = 3
RESOURCE_EXHAUSTED = 8
INTERNAL = 13
_NOT_FOUND = 127


def error_of(member: Member, exit_: Exit, *, restarts: int = 0) -> JobError:
    """The report of a job that ends because of ``exit_``.

    Details: how often it was tried, the Python exception where there is one, and the last lines of stderr.
    """
    details = []
    if restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        details.append(f"{member.name} had been restarted in place {times}.")
    raised = raised_by(exit_)
    if raised and raised != (exit_.stderr_tail or ("",))[-1]:
        details.append(raised)
    details.extend(exit_.stderr_tail)
    return JobError(_code(exit_), _sentence(member, exit_), tuple(details), exit_.shell_code, exit_.rank, raised)


def internal_error(error: JobError) -> JobError:
    """The report of a job that ends because we failed too often; what happened goes into the details."""
    message = "Internal error occurred for the current attempt."
    return replace(error, code=INTERNAL, message=message, details=(error.message, *error.details))


def no_progress(error: JobError, job: Job, failure: Failure, times: int) -> JobError:
    """The report of a job that fails in the same way again and again and gets nowhere."""
    steps = [at for at in (job.budgets.best_step, failure.step) if at is not None]
    where = f" past step {max(steps):.12g}" if steps else " and no newer checkpoint"
    note = f"It failed in the same way {times} times running, without progress{where}; it is not tried again."
    return replace(error, details=(note, *error.details), why_final=note)


def never_works(error: JobError, *, again: bool, hint: str = "") -> JobError:
    """The report of a job whose program fails before it does anything: in the same way twice, or for what it is.

    ``hint`` is a sentence on what may be behind it.
    """
    how = (
        "in the same way twice, each time before any progress was seen"
        if again
        else "before any progress, in a way that a new try would not change"
    )
    note = f"It failed {how}; it is not tried again.{' ' * bool(hint)}{hint}"
    return replace(error, details=(note, *error.details), why_final=note)


_RESTARTS = {
    Budget.WORKER: "restarts in place for the program's own errors",
    Budget.TRANSIENT: "restarts after ends that may be transient, such as an abort or a segmentation fault,",
    Budget.INTERNAL: "new launches after internal errors",
    Budget.HANG: "restarts after hangs",
    Budget.HOST: "moves away from hosts that were lost or at fault",
}


def budget_spent(
    error: JobError, budget: Budget, used: int, limit: int, *, retries: tuple[int, int] | None = None
) -> JobError:
    """The report of a job that ends because a budget is spent, and its retries (used, allowed) if those count."""
    what = _RESTARTS.get(budget, "restarts")
    if limit:
        note = f"{min(used, limit)} of {limit} {what} are spent"
    else:
        note = f"{what[0].upper()}{what[1:]} are not allowed"
    if retries is not None:
        of_job = (
            f"{retries[0]} of {retries[1]} retries of the job are" if retries[1] else "retries of the job are not"
        )
        note += f", and {of_job} {'spent' if retries[1] else 'allowed'}"
    return final(error, note)


def final(error: JobError, why: str) -> JobError:
    """The report of a job that ends for that reason, a clause."""
    return replace(error, why_final=f"{why}; it is not tried again.")


def hint_on_path(task: Task, exit_: Exit) -> str:
    """A sentence for a login shell that found no command: such a shell drops the PATH that it was given; else empty."""
    if exit_.exit_code != _NOT_FOUND or not is_login_shell((*task.command, *task.args)):
        return ""
    return "A login shell takes PATH from /etc/profile, not from the job: start it without -l."


def _code(exit_: Exit) -> int:
    ours = exit_.reason.name.startswith("LOST") or exit_.reason is ExitReason.NOT_STARTED
    return INTERNAL if ours else INVALID_ARGUMENT


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
        case ExitReason.STOPPED if exit_.exit_code:
            return f"{who}{rank} exited with a non-zero status of {exit_.exit_code}. Termination reason: Error."
        case ExitReason.SIGNALED:
            core = ", core dumped" if exit_.core_dumped else ""
            return (
                f"{who}{rank} exited with a non-zero status of {exit_.shell_code}."
                f" Termination reason: signal {exit_.signal}{core}."
            )
        case _:
            return f"{who}{rank} was lost: {exit_.message.rstrip('.') or exit_.reason.name}."
