"""Draw ``docs/failures.md`` from the failure policy in the code: ``python docs/draw_policy.py [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast_controller.core.gang import Gang, Retries
from holdfast_controller.core.policy import (
    HOST_MOVES,
    INTERNAL_RESTARTS,
    PORT_RETRIES,
    TABLE,
    TRANSIENT_RESTARTS,
    Budget,
    Cause,
    Rule,
    Way,
)

PAGE = Path(__file__).with_name("failures.md")
HEAD = """# What happens when something fails
The table is drawn from the code by `python docs/draw_policy.py`; a test keeps this page current.

The first failure of a generation is answered, and the others are taken for what follows from it. Which one was
first is told by what each end says of itself before its time: a rank that speaks of a lost connection is a
victim where any other rank has something else to say (see [the
decision](adr/0008-what-an-end-says-goes-before-when-it-was.md)).
"""
TAIL = """
- **In place**: the next generation on the same hosts and GPUs, no scheduling; all workers, or with
  `restartScope: WORKER` the one that failed, under the address that its peers know.
- **Moved**: the worker goes to another host, the others keep theirs; where no other host is free it goes back
  to its own.
- **Retried**: the whole job is placed anew, at the head of the queue, away from the host where it failed if it
  can be.
- Budgets are counted in a row. Only progress refills them: a step past the job's highest (told by
  `holdfast.progress` or found by `stepPattern`), or a new checkpoint where no step is known.
- The same failure `noProgressLimit` times running (3) without progress is final, in a job whose progress is
  known.
- `backoff` delays every launch but the first of a row, and doubles.
- `disableRetries` makes every failure of the program final; `unconditionalRetry` retries the job whatever it
  was.
- A host that is suspect twice in one job (†) is left; one that is at fault (‡) takes no more work until an
  admin lifts that.
- An end of `LOST_RECORD` was known to a controller whose disk is lost, and to no host any more. No code is made up
  for it; a job that no host knows is paused, and its owner decides: see [restore](operations.md#restore).
- A hang that is found while the program lives is restarted in place within the same budget as the library's own
  time-out; see [hang detection](hang-detection.md).
"""
WHAT = {
    Cause.USER_ERROR: "any other exit code, or a signal such as SIGFPE",
    Cause.PERMANENT: "a code in `permanentExitCodes`",
    Cause.TRANSIENT: "SIGABRT (6, 134), SIGSEGV (11, 139), a code in `transientExitCodes`",
    Cause.OUT_OF_MEMORY: "killed for memory, by its cgroup's counter",
    Cause.CANNOT_START: "missing command, bad interpreter, missing directory, no permission",
    Cause.KILLED: "SIGKILL, SIGTERM, SIGINT or SIGHUP that was not ours",
    Cause.HANG: "SIGABRT with NCCL's watchdog time-out on stderr",
    Cause.HOST_LOST: "the host rebooted, was lost or fenced",
    Cause.CUT_OFF: "its shim stopped it: nothing was heard of the controller for the length of the lease",
    Cause.HARDWARE_FAULT: "any end beside a GPU that is lost or needs a reset (Xid table)",
    Cause.HOST_UNFIT: "the host failed the checks before the start",
    Cause.PORT_TAKEN: "a port was taken in the last moment",
    Cause.INTERNAL: "a shim died, or a start never came about",
}
WAYS = {Way.IN_PLACE: "in place", Way.REPLACE: "moved", Way.NOWHERE: "the job fails"}
LIMITS = {
    Budget.NONE: "",
    Budget.WORKER: f"{Gang(()).max_worker_restarts} for each worker (`maxWorkerRestarts`)",
    Budget.TRANSIENT: str(TRANSIENT_RESTARTS),
    Budget.INTERNAL: f"{INTERNAL_RESTARTS} (three attempts in all)",
    Budget.HANG: f"{Gang(()).max_hang_restarts} (`maxHangRestarts`)",
    Budget.HOST: str(HOST_MOVES),
    Budget.JOB: str(Retries().job_retries),
}


def row(cause: Cause, rule: Rule) -> str:
    """One class of failures."""
    marks = "†" * rule.suspect + "‡" * rule.cordon
    budget = str(PORT_RETRIES) if cause is Cause.PORT_TAKEN else LIMITS[rule.budget]
    then = f"retried, {Retries().job_retries} times (`maxJobRetries`)" if rule.then_retry else ""
    if rule.way is not Way.NOWHERE and not then:
        then = "an error of the program" if cause is Cause.PORT_TAKEN else "the job fails" if budget else ""
    return f"| {cause.value} {marks}".rstrip() + f" | {WHAT[cause]} | {WAYS[rule.way]} | {budget} | {then} |"


def page() -> str:
    """The whole page."""
    rows = [row(cause, rule) for cause, rule in TABLE.items()]
    return "\n".join(
        [HEAD, "| class | what | goes on | so often | and then |", "|---|---|---|---|---|", *rows, TAIL]
    )


if __name__ == "__main__":
    if "--check" in sys.argv and PAGE.read_text() != page():
        sys.exit("docs/failures.md is out of date: run python docs/draw_policy.py")
    if "--check" not in sys.argv:
        PAGE.write_text(page())
