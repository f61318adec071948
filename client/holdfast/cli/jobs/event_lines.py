"""A job's history in few words: which events a person who waits wants to read, and how it all ended."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.cli.kit.durations import span
from holdfast.v1 import job_pb2

_ALONG_THE_WAY = frozenset(
    {"JobSubmitted", "GangLaunched", "RankExited", "WorkerEmptied", "JobEnding", "JobEnded", "CancelRequested"}
)
"""Left out of what a waiting person reads: details, and ends that ``farewell`` tells better."""

_JUDGED = {
    "RESTARTED": "",
    "WOULD_RESTART": "hang confirmed; nothing is killed (with --restart-on-hang it would be relaunched now)",
    "BUDGET_SPENT": "hang confirmed, but as many restarts in a row as it may have led nowhere",
    "WITHHELD": "hang confirmed, but nothing is done now",
}


@dataclass(frozen=True, slots=True)
class EndedRank:
    """A rank that did not end well, in a sentence."""

    rank: int
    generation: int
    sentence: str
    reason: str


def sentence(event: job_pb2.WatchJobResponse) -> str:
    """The event for somebody who waits; empty when it would only be noise. New types are told."""
    if event.type in _ALONG_THE_WAY:
        return ""
    told = _of_hang(event)
    return event.message if told is None else told


def _of_hang(event: job_pb2.WatchJobResponse) -> str | None:
    """Events of hangs in a waiting person's words; ``None`` for others, and where one lacks what it would tell."""
    data = event.data.fields
    match event.type:
        case "HangNoticed" if "sentence" in data:
            return f"does it hang? {data['sentence'].string_value}"
        case "HangDiagnosed" if "stacks" in data:
            return f"its stacks: {data['stacks'].string_value or 'none could be taken'}"
        case "HangJudged" if "outcome" in data and data["outcome"].string_value in _JUDGED:
            note = data["note"].string_value if "note" in data else ""
            return ": ".join(filter(None, (_JUDGED[data["outcome"].string_value], note)))
        case "HangOver":
            return "it moves again by itself"
        case "RestartDecided" if "end_reason" in data and data["end_reason"].string_value == "HANG":
            generation = f" as generation {data['generation'].number_value:.0f}" if "generation" in data else ""
            return f"it hangs: relaunching in place{generation}"
    return None


def ended_rank(event: job_pb2.WatchJobResponse) -> EndedRank | None:
    """The rank whose bad end the event records, if it does."""
    if event.type != "RankExited" or "exit" not in event.data:
        return None
    exit_ = event.data.fields["exit"].struct_value.fields
    reason = exit_["reason"].string_value if "reason" in exit_ else ""
    if not reason or reason == "COMPLETED" or "rank" not in exit_ or "generation" not in exit_:
        return None
    return EndedRank(int(exit_["rank"].number_value), int(exit_["generation"].number_value), event.message, reason)


def blamed_rank(event: job_pb2.WatchJobResponse) -> int | None:
    """The rank that the event calls the cause of a restart, of a retry or of the job's end, if it names one."""
    data = event.data.fields
    if event.type in ("RestartDecided", "AttemptEnded", "CauseFound") and "related" in data:
        named = re.fullmatch(r"\S+ rank (\d+)", data["related"].string_value)
        return int(named[1]) if named else None
    if event.type in ("JobEnding", "JobEnded") and "error" in data and "rank" in data["error"].struct_value.fields:
        rank = data["error"].struct_value.fields["rank"]
        return int(rank.number_value) if rank.HasField("number_value") else None
    return None


def told_at_the_end(event: job_pb2.WatchJobResponse, end: EndedRank) -> bool:
    """Whether ``farewell`` has all that is known of the rank: the job ends because it could not be started."""
    return end.reason == "CANNOT_START" and event.type in ("JobEnding", "JobEnded")


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


def farewell(job: job_pb2.CustomJob, waited_s: float) -> list[str]:
    """How the job ended, and where to read more when it did not end well."""
    took = span(ran_for(job, waited_s))
    restarts = len(job.recoveries)
    after = f"after {took}" + (f" and {restarts} restart{'s' if restarts > 1 else ''}" if restarts else "")
    if nothing_ran(job):
        after = "before anything ran"
    if job.state == job_pb2.JOB_STATE_SUCCEEDED:
        return [f"succeeded {after}"]
    state = job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
    lines = [f"{state} {after}" + (f": {job.error.message}" if job.error.message else "")]
    if job.state != job_pb2.JOB_STATE_CANCELLED:
        lines.append(f"  more:  holdfast job show {job.id}")
    return lines


def ran_for(job: job_pb2.CustomJob, now_or_waited_s: float) -> float:
    """Seconds from the first launch to the end; the second argument where these are not known."""
    if not (job.HasField("start_time") and job.HasField("end_time")):
        return now_or_waited_s
    start, end = job.start_time, job.end_time
    return (end.seconds - start.seconds) + (end.nanos - start.nanos) / 1e9


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
