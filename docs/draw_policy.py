"""Draw ``docs/users/failures.md`` from the failure policy in the code: ``python docs/draw_policy.py [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast_controller.core.lifecycle.failure_policy import (
    HOST_MOVES,
    INTERNAL_RESTARTS,
    PORT_RETRIES,
    TABLE,
    TRANSIENT_RESTARTS,
    Cause,
    Rule,
    Way,
)
from holdfast_controller.core.model.gang import Gang, Retries
from holdfast_controller.core.model.recovery import Budget

PAGE = Path(__file__).with_name("users") / "failures.md"
HEAD = """# Failures and recovery
The table is generated from the code by `python docs/draw_policy.py`; a test keeps this page current.

Holdfast answers the first failure of a generation and treats the others as its consequences. To find the first
one it looks at what each exit reports, and only then at its time: a rank that reports a lost connection is a
consequence if any other rank reports something else ([ADR 8](../adr/0008-blame-by-report-then-by-time.md)).
"""
TAIL = """
- **In place**: the next generation on the same hosts and GPUs, without scheduling. All workers restart, or with
  `restartScope: WORKER` only the one that failed, under the address that its peers know.
- **Moved**: the worker goes to another host, the others keep theirs. If no other host is free, it returns to its
  own.
- **Retried**: the whole job is placed again, at the head of the queue, if possible away from the host where it
  failed.
- Budgets count failures in a row. Only progress resets them: a step beyond the job's highest (reported through
  `holdfast.progress` or found by `stepPattern`), or a new checkpoint if no step is known.
- The same failure `noProgressLimit` times in a row (3) without progress is final, for a job whose progress is
  known. It is the same by the exception of the rank that failed first, whichever rank that is; without an exception
  by its exit code or by its last line on stderr. Figures in them may differ.
- A program that can't work as it is written isn't tried again: an import or syntax error, or exit code 126 or 127, in a
  first generation that made no progress. Nor is one that fails in the same way twice in a row (the same exception, or
  the same code and last line on stderr; figures, addresses and names of temporary files may differ), each time within
  ten minutes and before it has begun its work. It has begun with a step, a checkpoint or a phase that it reports; with
  a step or a bar in its output that grows, or any other number that grows for a minute; or with a minute of work on
  GPUs. Banners, warnings, and what counts while something is loaded or prepared are the start's.
  An error that may heal by itself (a port in use, a server that is away, a name that is not found) is tried again as
  often as any. `noProgressLimit: 0` switches both rules off.
- All workers of a job together are restarted in place for their own errors at most twice as often as one of them.
- The first launch of such a row is at once; those that follow wait 1 s, 2 s, 4 s and so on, 5 minutes at most. With
  `backoff.initial` the first one waits too, and `backoff.limit` is the longest wait, `0s` for none. Launches after a
  hang, a drain, a preemption or a restart that was asked for are not delayed, and are no failures in a row.
- `disableRetries` makes every failure final, and every hang that would be restarted; `unconditionalRetry` retries the
  job after any of them.
- A host that is suspected twice in one job (†) is no longer used by it; a host that is at fault (‡) is cordoned
  until an admin uncordons it. Where it is known which GPU is, only that [GPU](../admins/operations.md#faulty-gpus) is
  taken out of service, and its host if it needs a reboot.
- `LOST_RECORD` means that the exit was recorded only by a controller whose disk is lost. No exit code is invented
  for it. A job that no host knows is paused, and its owner decides: see
  [restore](../admins/operations.md#restore).
- A hang that is detected while the program is alive is restarted in place, on the same budget as the library's
  own timeout; see [hang detection](hang-detection.md). Such restarts are counted apart: neither
  `HOLDFAST_RESTART_COUNT` nor the other budgets count them. Once they are spent the job is placed once on other hosts,
  without those of the suspects (of all its ranks, if there are none), if these could take it at once and a retry
  (`maxJobRetries`) is left.

## In words
Four sentences say how a job is: `now`, `happened`, `done` and `to do` at the head of `holdfast job show`, the first of
them (and what to type, where you are needed) in `holdfast ps`, all of them in notifications, and over HTTP and as JSON
in `summary`:

```
train-k7wq2m  RUNNING · ran 3h 2m
  now         Trains: step 48,120 of 120,000, 1.42 s a step, as usual
  happened    3 interruptions, the last at 09:31:09 UTC: it hung: workerpool1-0 rank 3 is in data_loader.py:26
              `queue.get`
  done        Noticed after 30 s, relaunched in place as generation 4; all ran again after 2 min, back at step
              47,950 after 6 min more
  to do       Nothing
```

The time of a step is the median of the last ten minutes; after an hour it is compared with the best since the launch.

| `summary.condition`, without the prefix in the JSON of the command line | |
|---|---|
| `JOB_CONDITION_WORKS` | it runs as it should |
| `JOB_CONDITION_WAITS` | for hosts, for its start or for you, and nothing is wrong |
| `JOB_CONDITION_RECOVERS` | something went wrong, and it goes on by itself |
| `JOB_CONDITION_NEEDS_YOU` | it needs a person: `to do` ends in the line to type, which is also `command` |
| `JOB_CONDITION_ENDED` | |

## Warm starts
Most of a restart in place is the program's own start, and most of that is imports. With
`faultTolerance: {warm: {mode: AUTO}}` they are done before they are needed. The first rank of each worker keeps a list
of the modules that it imports, the late ones of the first step too. When nothing has been added to it for some seconds,
the worker's own command line is started once more, imports these modules at the lowest priority, and forks a process
for each rank. They wait, share their memory, and become the ranks of the next generation, with its environment,
directory and descriptors. They run your program from its first line on: `argv`, `__main__`, exit codes and tracebacks
are Python's own. It may run in any Python from 3.8 on.

`holdfast job show` says what is prepared on each worker, how much memory it takes, and what was left out and why; a
recovery is `warm` or `cold`, with the reason for a cold one at the worker. With `mode: IN_PROCESS` ranks that did not
fail can keep even their process: [restarts in process](in-process.md).

| left out of the preparation, or the start is cold | why |
|---|---|
| a package that starts a thread or a process when it is imported, opens a socket or pipe, makes shared memory or a\
 lock of `multiprocessing`, or initialises CUDA | a forked process would lack it, or share it |
| a package that reads a variable such as `RANK` or `MASTER_PORT`, a secret, or all variables when it is imported;\
 any start where a `.pth` file or `sitecustomize` does | their values are known only at the launch |
| a package that reads a variable that the program sets first, or looks into `__main__`; a library where that is\
 `OMP_NUM_THREADS` or the like | the program has not run: set the variable in the job instead |
| a package that imports a module that the program has in another place, or has put something in place of in\
 `sys.modules` | it would be another module |
| a package that leaves a file or terminal open or a temporary file behind, seeds `random`, numpy or torch, or\
 changes its directory, `sys.path`, `sys.argv`, its session, standard streams or priority, the root logger, a timer\
 or what a signal does | ranks would share it, or it would come before what the program does |
| a package that asks for its pid, its parent's, its process group or priority when it is imported, or for the cores\
 that it may use where ranks are [bound](job-file.md#numabinding) | each rank has others |
| a package that ends the process, raises another error than ImportError, or prints and raises that, when it is\
 imported ahead; one that imports the module that `-m` runs | it needs its program |
| a package that warns of the line that imports it (`stacklevel=2`) | the line would not be the program's |
| code that is not installed as a package | it may have changed; `preload` names what is imported all the same |
| commands other than `python …`, such as `torchrun` and scripts, those called `python` too; `-I`, `-E`, `-S`, `-i`\
 | they start Python in their own way: use one process for each rank instead of a launcher |
| containers, and ranks with a terminal | not supported yet |
| `PYTHONHASHSEED`, `OMP_NUM_THREADS` and others that are read before any import, where they differ between the\
 ranks of a worker | they can't be changed later |
| the command, a variable, the account, the Python, a limit, the processors, or a file that was imported, or that a\
 package read when it was imported, has changed since | the old one was in force |
| more than a twentieth of the host's memory, or a tenth of the worker's, would be held | |
| the imports take longer than 20 minutes, or leave a process behind | |

At most three packages are left out; with more the start is cold. After a generation that was started warm and failed or
hung before it did any work, every later start of the job is cold.

- Where the ranks have met at `MASTER_ADDR:MASTER_PORT` before, those of a warm start begin once rank 0 listens there,
  after five seconds at most: a library that is refused tries again only after half a second or so.
- A cold generation that keeps the list differs a little: `sys.meta_path` begins with the finder that keeps it, and one
  more descriptor is open.
- Ranks of a worker share the seed of string hashes, unless `PYTHONHASHSEED` sets it. Each seeds `random` and the global
  generators of numpy and torch for itself; a generator, an id or a time that a package takes for its own use when it is
  imported is the same in all of them. The process has begun, as `/proc` has it, when it was prepared.
- Whatever the program changes in other modules or in Python before it imports a package (a function that it replaces, a
  warning filter, `sys.excepthook`) it changes after that import: name such a package in `never`.
- Each rank has imported what the first rank had, before the program's first line: `sys.modules` holds it, exit handlers
  and warning filters of packages come first, and `sys.argv[0]` of `-m` is `-m` in packages that read it when imported.
- `gc.get_objects()` leaves out what the imports have made.
- Functions that packages register with `os.register_at_fork` when they are imported take part in the program's forks
  alone.
- Not seen is a package that, when it is imported, has a command or C code read such a variable or a pid, looks at the
  frames that import it, or asks the kernel for what a fork takes back (`PR_SET_PDEATHSIG`, `mlockall`): name it in
  `never`.
- What a package prints when it is imported, each rank prints at its start.
- Waiting processes are neither ranks nor work, and have ended before the worker counts as empty at the job's end.
  `ps -e` and `top` call them `holdfast-warm`. Where the agent is not root they are prepared at ordinary priority.

## Slow ranks
In a gang that trains in step one slow rank makes all of them slow. `holdfast job show`, `ps`, the page and
`STRAGGLER` among the [notifications](notifications.md) say who it is, once that is sure:

```
Trains: step 18,400, 1.21 s a step; 20 % slower than at its best since 14:02:30 UTC: rank 5 on gpu-12: the others wait
for it, and the clock of its GPU is lower
```

- **Slow** is a job whose steps take at least 10 % longer, for about three minutes, than in the best five minutes of
  its attempts so far, or 3 % where a rank is named for it; more where its steps vary more. Evaluations and saves
  don't count.
- **A rank is named** when two signs of different kinds agree on it at three of five looks, half a minute apart: the
  others wait for it, its own steps take longer (of ranks that don't keep in step), or its GPU's power changed; and its
  place takes its time: it is ready to run and has no core, it is stopped, its GPU's clock is lower, its host has a
  finding about its hardware. Each is compared with what is usual for this rank and with the ranks on other hosts.
- **More work names no one**: `the others wait for rank 5, and nothing on its host holds it back: it may have more
  work than they` is what an uneven data set looks like. Neither do slow storage, data loaders, or a cause that
  several hosts have: `no rank stands out`.

Nothing is stopped or moved for it. An admin who drains the host (`holdfast host drain HOST --at-checkpoint`) moves
the job's workers off it at its next checkpoint. What the slowness cost is in `holdfast goodput JOB`. A job that was
slow from its start isn't called slow, and after a restart of the controller its best is learned again. [How often
it is right](../evidence/stragglers.md).

## Lost hosts
A host that was silent for 66 s is lost. It may have no power, or only no way to the controller. `disconnectPolicy` says
what becomes of the job:

| `disconnectPolicy` | on a host that is cut off, the ranks | when the host is lost, the job |
|---|---|---|
| `REPLACE_IF_ISOLATED`, the default | run on while the job's workers on other hosts answer it; else they stop \
within 60 s | moves once a worker on another host has missed it for 66 s too |
| `STOP_AND_REPLACE` | stop within 60 s | moves at once |
| `KEEP` | run on | waits for the host, or for `holdfast host fence` |

With the default:

- **A host loses power**: the job runs again on another host about 70 s later. If there is none it waits, and says so.
- **A host is cut off from everything**: its ranks stop by themselves before the job starts elsewhere, never after.
- **A host is cut off from the controller alone, or its agent is dead**: the job runs on, since the other hosts still
  reach it.
- **The controller is away**, for however long: nothing is stopped. But if the job loses a host meanwhile, its ranks on
  the other hosts stop too, even if they could do without; they are restarted when the controller is back.
- **A job on one host** has no other worker to ask, so it waits as with `KEEP`. If its ranks may be stopped while the
  controller is away, choose `STOP_AND_REPLACE`.
- **All hosts of a job are lost together**: no worker is left to ask, so it waits.

Where admins have set a [command that switches hosts off](../admins/operations.md#a-command-that-switches-hosts-off),
the job moves under every policy as soon as that has proven the host off, some 30 s after its last word.

Nothing is ever started beside ranks that may still run. A job whose host was lost before its ranks were launched moves
at once under every policy. A worker whose ranks have all exited 0 while others of its job still run needs its host no
more: where that is lost, fenced, drained or shut down, the job goes on with the others, and gets another host for it
only if all are relaunched. `holdfast job show` and `holdfast ps` say since when a host is silent, when the job is
moved, and which command moves it now. Workers ask each other over UDP, each on its port of the rendezvous. Where a
firewall drops that, or a host's `address` is a name, the job waits as with `KEEP`, and the agents' logs warn of it.
"""
WHAT = {
    Cause.USER_ERROR: "any other exit code, or a signal such as SIGFPE",
    Cause.PERMANENT: "a code in `permanentExitCodes`",
    Cause.TRANSIENT: "SIGABRT (6, 134), SIGSEGV (11, 139), a code in `transientExitCodes`",
    Cause.OUT_OF_MEMORY: "killed for memory, by its cgroup's counter",
    Cause.CANNOT_START: "missing command, bad interpreter, missing directory, no permission; an image or a package "
    "that can't be had",
    Cause.KILLED: "SIGKILL, SIGTERM, SIGINT or SIGHUP that Holdfast did not send",
    Cause.HANG: "SIGABRT with NCCL's watchdog timeout on stderr",
    Cause.HOST_LOST: "the host rebooted, was lost or was fenced",
    Cause.CUT_OFF: "its shim stopped it: no contact with the controller, nor with all of its peers, for its lease",
    Cause.HARDWARE_FAULT: "any exit beside a GPU that is lost or needs a reset (Xid table)",
    Cause.HOST_UNFIT: "the host failed its checks before the start; or the start, for want of a file server: not ‡",
    Cause.PORT_TAKEN: "a port was taken at the last moment",
    Cause.INTERNAL: "a shim died, or a start never happened, such as for want of a process",
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
    if rule.then_elsewhere:
        then = "retried once, if other hosts could take it"
    if rule.way is not Way.NOWHERE and not then:
        then = "an error of the program" if cause is Cause.PORT_TAKEN else "the job fails" if budget else ""
    return f"| {cause.value} {marks}".rstrip() + f" | {WHAT[cause]} | {WAYS[rule.way]} | {budget} | {then} |"


def page() -> str:
    """The whole page."""
    rows = [row(cause, rule) for cause, rule in TABLE.items()]
    return "\n".join([HEAD, "| class | what | recovery | at most | then |", "|---|---|---|---|---|", *rows, TAIL])


if __name__ == "__main__":
    if "--check" in sys.argv and PAGE.read_text() != page():
        sys.exit("docs/users/failures.md is out of date: run python docs/draw_policy.py")
    if "--check" not in sys.argv:
        PAGE.write_text(page())
