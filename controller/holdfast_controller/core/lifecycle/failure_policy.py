"""The failure policy: what a rank's end is, and what is done about it.

``classify`` says which class the first failure of a generation belongs to, ``TABLE`` what its class deserves, and
``decide`` applies the budgets. Nothing here depends on the order of anything else.

Where the managed services contradict themselves, this is what we hold. One of them calls a user's exception a
common error, which ends the job at once, and says elsewhere that any non-zero exit is restarted five times and the
job then retried three times: we restart, since a program that can resume loses nothing by it. It retries the whole
job for codes that may be transient (abort, segmentation fault), at most three times: we do that in place, which is
quicker, and on another host from the second time on, since such ends are often the host's. A budget is refilled
only by progress: past the job's highest step, or by a checkpoint where no step is known.
"""

from __future__ import annotations

import enum
import re

from holdfast._base.backoff import wait_s
from holdfast._base.dataclass import dataclass, replace
from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.events.recovery import Failure
from holdfast_controller.core.lifecycle.error_report import (
    budget_spent,
    error_of,
    final,
    hint_on_path,
    internal_error,
    never_works,
    no_progress,
)
from holdfast_controller.core.model.budgets import is_same, says_the_same
from holdfast_controller.core.model.exits import JobError, raised_by
from holdfast_controller.core.model.gang import Gang, Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import Budget

PORT_RETRIES = 5
"""Times in a row that a launch is repeated because its port was taken at the last moment."""
TRANSIENT_RESTARTS = 3
INTERNAL_RESTARTS = 2
"""Three attempts in all."""
HOST_MOVES = 3
"""Times in a row, without progress, that work moves away from hosts that were lost or broken."""
SECOND_PAUSE_S = 1.0
"""Before the second launch of a row, in a job that names no pause; its first launch is at once."""
_OF_TEXT = frozenset(
    {"ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError", "BdbQuit"}
)
_NO_COMMAND = frozenset({126, 127})
"""A shell's codes for a command that it may not run, or doesn't find."""
_SIGABRT, _SIGSEGV = 6, 11
_FROM_OUTSIDE = frozenset({1, 2, 9, 15})
"""HUP, INT, KILL, TERM: a program does not get these from its own code."""


class Cause(enum.Enum):
    """The classes of failures."""

    USER_ERROR = "USER_ERROR"
    PERMANENT = "PERMANENT"
    """By the job's own list of exit codes."""
    TRANSIENT = "TRANSIENT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    CANNOT_START = "CANNOT_START"
    KILLED = "KILLED"
    """From outside, and not by us."""
    HANG = "HANG"
    """The communication library gave up waiting, and ended the process."""
    HOST_LOST = "HOST_LOST"
    CUT_OFF = "CUT_OFF"
    """Its shim has stopped it, since nothing was heard of us for the length of the lease."""
    HARDWARE_FAULT = "HARDWARE_FAULT"
    HOST_UNFIT = "HOST_UNFIT"
    """The host failed the checks before the start, or the start itself."""
    PORT_TAKEN = "PORT_TAKEN"
    INTERNAL = "INTERNAL"
    """Ours: a shim died, or a start never came about."""


class Way(enum.Enum):
    """The hosts on which a job is recovered."""

    IN_PLACE = "IN_PLACE"
    REPLACE = "REPLACE"
    """The failed worker on another host, the others where they are."""
    NOWHERE = "NOWHERE"


@dataclass(frozen=True)
class Rule:
    """The policy for one class of failures."""

    way: Way
    budget: Budget
    suspect: bool = False
    """The host may be at fault: the second such failure there in a row moves the worker away."""
    cordon: bool = False
    """The host is at fault, and is cordoned until an admin has examined it."""
    then_retry: bool = False
    """When the budget is spent the whole job is retried; otherwise it fails."""
    then_elsewhere: bool = False
    """When the budget is spent the job is retried once, if other hosts could take it; otherwise it fails."""
    repeats: bool = False
    """The same again and again without progress is final."""
    why_final: str = ""
    """Why what ended so is not launched again."""


TABLE: dict[Cause, Rule] = {
    Cause.USER_ERROR: Rule(Way.IN_PLACE, Budget.WORKER, then_retry=True, repeats=True),
    Cause.KILLED: Rule(Way.IN_PLACE, Budget.WORKER, then_retry=True, repeats=True),
    Cause.TRANSIENT: Rule(Way.IN_PLACE, Budget.TRANSIENT, suspect=True, repeats=True),
    Cause.PERMANENT: Rule(
        Way.NOWHERE, Budget.NONE, why_final="The job's own list of exit codes calls this one permanent"
    ),
    Cause.OUT_OF_MEMORY: Rule(Way.NOWHERE, Budget.NONE, why_final="A new launch would need as much memory"),
    Cause.CANNOT_START: Rule(Way.NOWHERE, Budget.NONE, why_final="A new launch would meet the same"),
    Cause.HANG: Rule(Way.IN_PLACE, Budget.HANG, suspect=True, then_elsewhere=True),
    Cause.HOST_LOST: Rule(Way.REPLACE, Budget.HOST, suspect=True),
    Cause.CUT_OFF: Rule(Way.IN_PLACE, Budget.HOST, suspect=True),
    Cause.HARDWARE_FAULT: Rule(Way.REPLACE, Budget.HOST, suspect=True, cordon=True),
    Cause.HOST_UNFIT: Rule(Way.REPLACE, Budget.HOST, cordon=True),
    Cause.PORT_TAKEN: Rule(Way.IN_PLACE, Budget.NONE),
    Cause.INTERNAL: Rule(Way.IN_PLACE, Budget.INTERNAL, suspect=True),
}

_GAVE_UP_WAITING = re.compile(
    r"watchdog caught collective operation timeout|collective operation timeout: workNCCL"
    r"|to avoid data inconsistency, we are taking the entire process down",
    re.IGNORECASE,
)
"""What torch prints before NCCL's watchdog aborts a process that waited too long."""
_FIGURES = re.compile(
    r"0x[0-9a-f]+|\btmp(?=\w{0,40}[\d_])\w{6,40}|\b(?=\w*\d)[0-9a-f]{6,}\b"
    r"|\d+(?:\.\d+)?(?:\s?(?:[KMGT]i?B|bytes)\b)?"
)
"""What differs between two ends of one kind: addresses, hashes, names of temporary files, figures with their unit."""
_MAY_HEAL = re.compile(
    r"address already in use|connection (?:refused|reset|aborted|timed out)|timed? ?out\b|temporar(?:y|ily) "
    r"|resource busy|busy or unavailable|try again|stale file handle|no space left|input/output error"
    r"|too many (?:requests|open files in system)|service unavailable|bad gateway|gateway time|server error"
    r"|(?:network|host) (?:is )?unreachable|no route to host|ConnectionError|MaxRetryError|name resolution",
    re.IGNORECASE,
)
"""Errors of the program's surroundings: the same words twice don't say that a third launch meets them again."""
_FATAL_FOR_GPU = re.compile(
    r"uncorrectable (ecc|nvlink) error|cudaerrorecc|gpu has fallen off the bus|unspecified launch failure.*xid",
    re.IGNORECASE,
)


def classify(gang: Gang, exit_: Exit, *, port_taken: bool, unfit: bool = False, gpu_problem: str = "") -> Cause:
    """The class of a failure. ``gpu_problem``: what is wrong with a GPU of the worker, if anything is."""
    if port_taken:
        return Cause.PORT_TAKEN
    match exit_.reason:
        case ExitReason.CANNOT_START:
            return Cause.HOST_UNFIT if unfit or exit_.host_fault else Cause.CANNOT_START
        case ExitReason.OUT_OF_MEMORY:
            return Cause.OUT_OF_MEMORY
        case ExitReason.LOST_HOST | ExitReason.LOST_REBOOT:
            return Cause.HOST_LOST
        case ExitReason.STOPPED:
            return Cause.CUT_OFF  # we have not asked for it, or there were no question
        case ExitReason.LOST_SHIM_DIED | ExitReason.NOT_STARTED | ExitReason.LOST_RECORD:
            return Cause.INTERNAL
        case _:
            return _of_program(gang, exit_, gpu_problem)


def _of_program(gang: Gang, exit_: Exit, gpu_problem: str) -> Cause:
    """The class of an end of the program itself. The job's own lists of codes go first."""
    code = exit_.shell_code
    if code in gang.retries.permanent_codes:
        return Cause.PERMANENT
    if code in gang.retries.transient_codes:
        return Cause.TRANSIENT
    if gpu_problem or any(map(_FATAL_FOR_GPU.search, exit_.stderr_tail)):
        return Cause.HARDWARE_FAULT
    aborted = exit_.signal == _SIGABRT or exit_.exit_code in (_SIGABRT, 128 + _SIGABRT)
    if aborted and any(map(_GAVE_UP_WAITING.search, exit_.stderr_tail)):
        return Cause.HANG
    if aborted or exit_.signal == _SIGSEGV or exit_.exit_code in (_SIGSEGV, 128 + _SIGSEGV):
        return Cause.TRANSIENT
    if exit_.signal in _FROM_OUTSIDE or exit_.exit_code in {128 + signal for signal in _FROM_OUTSIDE}:
        return Cause.KILLED
    return Cause.USER_ERROR


@dataclass(frozen=True)
class Reached:
    """The progress of a generation: its highest reported step, if any, and whether a checkpoint was written."""

    step: float | None = None
    checkpoint: bool = False
    early: bool = False
    """It ended within minutes, before its program was seen to begin its work."""

    def progressed(self, job: Job) -> bool:
        """Whether that is past everything before: by steps where any is known, by a checkpoint otherwise."""
        if self.step is not None or job.budgets.best_step is not None:
            return self.step is not None and (job.budgets.best_step is None or self.step > job.budgets.best_step)
        return self.checkpoint


@dataclass(frozen=True)
class Restart:
    """Go on with the next generation on the same places."""

    cause: Cause
    failure: Failure
    charged: int | None = None


@dataclass(frozen=True)
class Replace:
    """Go on elsewhere with the worker that failed; the others keep their places."""

    cause: Cause
    failure: Failure
    cordon: bool = False


@dataclass(frozen=True)
class Retry:
    """Place the whole job again, on other hosts where there are any."""

    cause: Cause
    failure: Failure


@dataclass(frozen=True)
class Fail:
    """The job is over."""

    error: JobError


Answer = Restart | Replace | Retry | Fail


def decide(
    job: Job, member: Member, exit_: Exit, cause: Cause, reached: Reached, *, could_move: bool = False
) -> Answer:
    """Answer the first failure of a generation: ``exit_`` of a rank of ``member``.

    ``could_move``: other hosts could take the job now.
    """
    rule, retries = TABLE[cause], job.gang.retries
    failure = failure_of(job, member, exit_, cause, reached)
    used = _used(job, member, failure)
    error = error_of(member, exit_, restarts=job.budgets.spent.worker_restarts.get(member.index, 0))
    if cause is Cause.PORT_TAKEN:
        return _on_port(job, member, failure, error)
    if retries.disabled and cause is not Cause.HOST_UNFIT:
        return Fail(final(error, "disableRetries makes every failure final"))
    if _is_stuck(job, rule, failure) and not retries.unconditional:
        return Fail(no_progress(error, job, failure, retries.no_progress_limit))
    if _never_works(job, cause, exit_, failure) and not retries.unconditional:
        hint = hint_on_path(job.gang.pool_of(member).task, exit_)
        return Fail(never_works(error, again=bool(job.budgets.spent.early), hint=hint))
    if rule.way is Way.NOWHERE:
        error = final(error, rule.why_final)
        return _retry_or_fail(job, cause, failure, error, allowed=retries.unconditional)
    if used[rule.budget] >= _limits(job)[rule.budget]:
        spent = internal_error(error) if cause is Cause.INTERNAL else error
        if cause is Cause.HANG:
            failure = replace(failure, budget=Budget.JOB)
        of_job = (used[Budget.JOB], retries.job_retries) if rule.then_retry or retries.unconditional else None
        spent = budget_spent(spent, rule.budget, used[rule.budget], _limits(job)[rule.budget], retries=of_job)
        once = rule.then_elsewhere and could_move and may_try_elsewhere(job)
        return _retry_or_fail(job, cause, failure, spent, allowed=rule.then_retry or once or retries.unconditional)
    again = failure.host and job.budgets.suspected.get(failure.host, 0) >= 1
    if rule.way is Way.REPLACE or again:
        # What keeps a rank from its start lies on the job's own paths: a mount that others may not use.
        return Replace(cause, failure, cordon=rule.cordon and not exit_.host_fault)
    return Restart(cause, failure, charged=member.index if rule.budget is Budget.WORKER else None)


def may_try_elsewhere(job: Job) -> bool:
    """Whether a job whose hang restarts are spent may be placed on other hosts: once, if it allows restarts at all."""
    return job.gang.max_hang_restarts > 0 and not job.budgets.hang_moves


def failure_of(job: Job, member: Member, exit_: Exit, cause: Cause, reached: Reached) -> Failure:
    """The failure as the budgets count it."""
    rule = TABLE[cause]
    # What the host's agent knows of it (a lost host, a broken GPU) is no work of an injected fault.
    at = exit_.end_time or job.updated_at
    rehearsed = rule.way is Way.IN_PLACE and job.is_rehearsed(job.generation_of(member.index), at)
    return Failure(
        key=key_of(cause, exit_),
        budget=rule.budget,
        host=job.places[member.index].host if (rule.suspect or rule.cordon) and not rehearsed else "",
        progressed=reached.progressed(job),
        step=reached.step,
        checkpoint=reached.checkpoint,
        early=reached.early,
    )


def key_of(cause: Cause, exit_: Exit) -> str:
    """The mark that a failure is recognised by: its exception, or else two lines, its code and its last line on stderr.

    Which rank fails is chance where all run the same program, and so is the code that a launcher or a shell makes of
    it. Figures and addresses may differ. Empty for a hang, which has a budget of its own.
    """
    if cause is Cause.HANG:
        return ""
    raised = _FIGURES.sub("#", raised_by(exit_))
    if raised:
        return raised[:300].rstrip()
    last = next((line.strip() for line in reversed(exit_.stderr_tail) if line.strip()), "")
    return f"{cause.value} {exit_.shell_code}\n{_FIGURES.sub('#', last)}"[:300].rstrip(" ")


def _used(job: Job, member: Member, failure: Failure) -> dict[Budget, int]:
    if failure.progressed:
        return dict.fromkeys(Budget, 0)
    restarts = job.budgets.spent.worker_restarts
    return {
        Budget.NONE: 0,
        Budget.WORKER: max(restarts.get(member.index, 0), sum(restarts.values()) - job.gang.max_worker_restarts),
        Budget.TRANSIENT: job.budgets.spent.transient_restarts,
        Budget.INTERNAL: job.budgets.spent.internal_errors,
        Budget.HANG: job.budgets.hang_restarts,
        Budget.HOST: job.budgets.spent.host_moves,
        Budget.JOB: job.budgets.spent.job_retries,
    }


def _limits(job: Job) -> dict[Budget, int]:
    return {
        Budget.NONE: 1,
        Budget.WORKER: job.gang.max_worker_restarts,
        Budget.TRANSIENT: TRANSIENT_RESTARTS if job.gang.max_worker_restarts else 0,
        Budget.INTERNAL: INTERNAL_RESTARTS,
        Budget.HANG: job.gang.max_hang_restarts,
        Budget.HOST: HOST_MOVES,
        Budget.JOB: job.gang.retries.job_retries,
    }


def _is_stuck(job: Job, rule: Rule, failure: Failure) -> bool:
    """The same failure so often in a row without progress, in a job of whose progress something is known."""
    limit = job.gang.retries.no_progress_limit
    known = (
        failure.step is not None
        or failure.checkpoint
        or job.budgets.best_step is not None
        or job.budgets.checkpointed
    )
    if not rule.repeats or not limit or not known or failure.progressed:
        return False
    key, times = job.budgets.spent.same_failure
    # More than the limit only where the true cause of the last one became known after its restart.
    return times >= limit or (is_same(key, failure.key) and times + 1 >= limit)


def _never_works(job: Job, cause: Cause, exit_: Exit, failure: Failure) -> bool:
    """The same words twice before any progress, or a first failure that is the program's text: a typo, no package.

    Words of surroundings that may heal by themselves (a port in use, a server that is away) are no such end.
    """
    budgets = job.budgets
    if cause is not Cause.USER_ERROR or not job.gang.retries.no_progress_limit or not failure.early:
        return False
    if budgets.best_step or budgets.checkpointed:
        return False
    if not budgets.spent.failures:
        kind = raised_by(exit_).partition(":")[0].rpartition(".")[2]
        return kind in _OF_TEXT or exit_.exit_code in _NO_COMMAND
    return says_the_same(budgets.spent.early, failure.key) and not _MAY_HEAL.search(failure.key)


def _on_port(job: Job, member: Member, failure: Failure, error: JobError) -> Answer:
    """A port that was taken costs nothing, some times; then it is the program's failure."""
    if job.budgets.port_retries < PORT_RETRIES:
        return Restart(Cause.PORT_TAKEN, failure)
    if job.budgets.spent.worker_restarts.get(member.index, 0) < job.gang.max_worker_restarts:
        return Restart(Cause.USER_ERROR, failure, charged=member.index)
    return Fail(final(error, f"{PORT_RETRIES + 1} launches in a row found the port taken, and no restart is left"))


def _retry_or_fail(job: Job, cause: Cause, failure: Failure, error: JobError, *, allowed: bool) -> Answer:
    used = 0 if failure.progressed else job.budgets.spent.job_retries
    return Retry(cause, failure) if allowed and used < job.gang.retries.job_retries else Fail(error)


def backoff_s(job: Job, failure: Failure) -> float:
    """How long the next launch waits: it doubles with each failure in a row. 0 where nothing failed, as in a drain."""
    if not failure.key:
        return 0.0
    before, retries = 0 if failure.progressed else job.budgets.spent.failures, job.gang.retries
    if retries.backoff_s is None:
        return wait_s(before, SECOND_PAUSE_S, retries.backoff_limit_s) if before else 0.0
    return wait_s(before + 1, retries.backoff_s, retries.backoff_limit_s)
