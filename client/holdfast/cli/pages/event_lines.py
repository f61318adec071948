"""A job's history in few words: which events a person who waits wants to read, and how it all ended."""

from __future__ import annotations

from holdfast._base.job_file.launcher import is_login_shell
from holdfast._base.proto_values import seconds, short_name
from holdfast.cli.kit.durations import span
from holdfast.v1 import job_pb2

MAX_WAIT_S = 86_400.0
"""How long a job waits for hosts that names no time."""
_ALONG_THE_WAY = frozenset(
    {
        "submitted",
        "launched",
        "rank_exited",
        "progress_recorded",
        "worker_emptied",
        "ending",
        "ended",
        "cancel_requested",
    }
)
"""Left out of what a waiting person reads: details, and ends that ``farewell`` tells better."""


def kind_of(event: job_pb2.WatchJobResponse) -> str:
    """The kind's name in the contract, such as ``rank_exited``; empty where this client doesn't know it."""
    return event.event.WhichOneof("kind") or ""


def title_of(event: job_pb2.WatchJobResponse) -> str:
    """The kind as tables show it, such as ``RankExited``."""
    return "".join(part.capitalize() for part in kind_of(event).split("_")) or event.type


def sentence(event: job_pb2.WatchJobResponse) -> str:
    """The event as a user who waits reads it; empty when it would only be noise. Unknown kinds are printed."""
    kind = kind_of(event)
    if kind in _ALONG_THE_WAY:
        return ""
    judged = event.event.hang_judged
    more = judged.note or judged.sentence
    if kind == "hang_judged" and judged.outcome == job_pb2.HANG_OUTCOME_RESTARTED and not more:
        return ""  # the restart itself is the next event
    return event.message


def is_failure(event: job_pb2.WatchJobResponse) -> bool:
    """Whether the event records that a rank ended, and not well."""
    return kind_of(event) == "rank_exited" and event.event.rank_exited.exit.reason != job_pb2.EXIT_REASON_COMPLETED


def blamed_rank(event: job_pb2.WatchJobResponse) -> int | None:
    """The rank that the event calls the cause of a restart, of a retry or of the job's end, if it names one."""
    found = event.event
    match kind_of(event):
        case "restarting":
            return _only(found.restarting.related)
        case "attempt_ended":
            return _only(found.attempt_ended.related)
        case "cause_found":
            return _only(found.cause_found.related)
        case "ending" if found.ending.error.HasField("rank"):
            return found.ending.error.rank
        case "ended" if found.ended.error.HasField("rank"):
            return found.ended.error.rank
    return None


def launches(event: job_pb2.WatchJobResponse) -> int:
    """The generation that follows upon the failure that the event names a cause of; 0 where it names none."""
    found = event.event
    match kind_of(event):
        case "restarting":
            return found.restarting.generation
        case "cause_found":
            return found.cause_found.generation
    return 0


def _only(related: job_pb2.Related) -> int | None:
    return related.ranks[0].rank if len(related.ranks) == 1 else None


def is_in_farewell(event: job_pb2.WatchJobResponse, exit_: job_pb2.Exit) -> bool:
    """Whether ``farewell`` has all that is known of the rank: the job ends because it could not be started."""
    return exit_.reason == job_pb2.EXIT_REASON_CANNOT_START and kind_of(event) in ("ending", "ended")


def never_started(job: job_pb2.CustomJob) -> set[tuple[int, int]]:
    """(generation, rank) of those that have printed nothing because they never ran."""
    return {
        (exit_.generation, exit_.rank)
        for worker in job.workers
        for exit_ in worker.exits
        if exit_.reason in (job_pb2.EXIT_REASON_CANNOT_START, job_pb2.EXIT_REASON_NOT_STARTED)
    }


def nothing_ran(job: job_pb2.CustomJob) -> bool:
    """Whether it is on record that no rank of any generation ever ran."""
    ended = {(each.generation, each.rank) for worker in job.workers for each in worker.exits}
    return bool(ended) and ended == never_started(job)


def while_queued(job: job_pb2.CustomJob, said: str = "") -> list[str]:
    """When a queued job starts or is given up by itself, beyond what was said, and the command that ends it now."""
    more = job.wait_reason.removeprefix(said.removeprefix("queued: ")).lstrip("; ")
    lines = [f"  {more}"] if more and job.state == job_pb2.JOB_STATE_QUEUED else []
    scheduling = job.job_spec.scheduling
    longest_s = seconds(scheduling.max_wait_duration) if scheduling.HasField("max_wait_duration") else MAX_WAIT_S
    given_up = f", or is given up after {span(longest_s)} (--max-wait)" if longest_s else ""
    return [*lines, f"  it starts by itself{given_up}; end it now by: holdfast cancel {job.id}"]


def while_silent(job: job_pb2.CustomJob, silent_s: float) -> list[str]:
    """Why nothing new is shown of a job, when Holdfast acts by itself, and the commands that look and act now."""
    quiet = f"nothing new for {span(silent_s)}"
    if job.wait_reason:
        return [f"{quiet}: {job.wait_reason}"]
    if job.state != job_pb2.JOB_STATE_RUNNING:
        return []
    lines = [f"{quiet}: {job.health or 'nothing is known of its ranks yet'}"]
    lines.append(f"  where it is:   holdfast job stacks {job.id}")
    lines.append(f"  relaunch now:  holdfast job restart {job.id}")
    return lines


def restarts(job: job_pb2.CustomJob) -> list[str]:
    """How often the job was restarted, and apart how often upon a hang: ``2 restarts``, ``1 hang restart``."""
    upon_hangs = sum(recovery.end_reason == "HANG" for recovery in job.recoveries)
    counts = ((len(job.recoveries) - upon_hangs, "restart"), (upon_hangs, "hang restart"))
    return [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]


def farewell(job: job_pb2.CustomJob, waited_s: float) -> list[str]:
    """How the job ended, and where to read more when it did not end well."""
    took = span(ran_for(job, waited_s))
    after = " and ".join([f"after {took}", *restarts(job)])
    if nothing_ran(job):
        after = "before anything ran"
    if job.state == job_pb2.JOB_STATE_SUCCEEDED:
        return [f"succeeded {after}"]
    state = short_name(job_pb2.JobState, job.state).lower()
    lines = [f"{state} {after}" + (f": {problem}" if (problem := end_of(job)) else "")]
    if job.error.why_final:
        lines.append(f"  {job.error.why_final}")
    pools = job.job_spec.worker_pool_specs
    if job.error.raised.endswith("BdbQuit") and not any(pool.process_spec.terminal for pool in pools):
        lines.append("  breakpoint() takes a terminal, which each rank has by: holdfast run --pty")
    elif job.error.raised.startswith("ModuleNotFoundError"):
        if any(is_login_shell((*pool.process_spec.command, *pool.process_spec.args)) for pool in pools):
            lines.append("  a login shell drops the job's PATH and may run another Python: start it without -l")
        lines.append("  send along what it imports by: --package DIR --requirements LIST --extra-packages ./mine")
    if job.state != job_pb2.JOB_STATE_CANCELLED:
        lines.append(f"  more:  holdfast job show {job.id}")
    return lines


def end_of(job: job_pb2.CustomJob) -> str:
    """Why the job ended: its error, and the exception behind it."""
    return " ".join(filter(None, (job.error.message, job.error.raised)))


def ran_for(job: job_pb2.CustomJob, now_or_waited_s: float) -> float:
    """Seconds from the first launch to the end; the second argument where these are not known."""
    if not (job.HasField("start_time") and job.HasField("end_time")):
        return now_or_waited_s
    return seconds(job.end_time) - seconds(job.start_time)


def exit_in_words(exit_: job_pb2.Exit) -> str:
    """``exit code 7``, ``signal 11 (SIGSEGV), core dumped``, or the reason where neither is known."""
    if exit_.HasField("signal"):
        text = f"signal {exit_.signal} ({signal_name(exit_.signal)})"
        return f"{text}, core dumped" if exit_.core_dumped else text
    if exit_.HasField("exit_code"):
        return f"exit code {exit_.exit_code}"
    return "unknown"


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; real-time signals as ``SIGRTMIN+n``."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number > signal.SIGRTMIN else f"SIG{number}"
