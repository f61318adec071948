"""Answers of the Python API: how a job ended, its events, lines of its output, hosts. Frozen values."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast._base.printable import one_line, spaced_line
from holdfast._base.proto_values import short_name
from holdfast._sdk import json_view
from holdfast._sdk.host_calls import gpus_free
from holdfast.cli.kit import exit_status
from holdfast.errors import JobFailed
from holdfast.v1 import host_pb2, job_pb2


@dataclass(frozen=True, slots=True)
class RankExit:
    """How one rank ended in its worker's last launch.

    ``exit_code`` is None where a signal ended the rank or nothing was observed, ``signal`` is None without one;
    ``reason`` is a word such as ``COMPLETED``, ``NONZERO_EXIT``, ``SIGNALED``, ``OUT_OF_MEMORY`` or ``STOPPED``.
    """

    rank: int
    worker: str
    exit_code: int | None
    signal: int | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job did not succeed. ``str()`` is the exception, where there is one, and the sentence.

    ``exception`` is the Python exception that ``rank`` ended with, such as ``ValueError: bad batch``, or empty;
    ``details`` are its last lines of output and other findings.
    """

    message: str
    rank: int | None = None
    exit_code: int | None = None
    exception: str = ""
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return _with_exception(self)


@dataclass(frozen=True, slots=True)
class Result:
    """How a job ended. True where it succeeded, so ``if job.wait(): …`` reads as it should.

    ``state`` is ``SUCCEEDED``, ``FAILED``, ``CANCELLED``, ``EXPIRED`` or ``PARTIALLY_SUCCEEDED``. ``exits`` are in
    the order of ranks; ranks that never started are missing. ``error`` is None where the job succeeded.
    ``exit_status`` is what ``holdfast run`` would have exited with: 0 only for success, 124 for a timeout, 130 for a
    cancelled job, 125 where no rank's code is the cause. ``run_s`` is in seconds from the first start to the end.
    """

    job_id: str
    name: str
    state: str
    exits: tuple[RankExit, ...] = ()
    error: Failure | None = None
    exit_status: int = 0
    restarts: int = 0
    run_s: float | None = None

    @property
    def exit_codes(self) -> dict[int, int | None]:
        """By rank, as a shell says it: 128+n for signal n, and None where the end was not observed."""
        return {e.rank: 128 + e.signal if e.signal is not None else e.exit_code for e in self.exits}

    @property
    def succeeded(self) -> bool:
        """Whether the job did what was asked."""
        return self.state == "SUCCEEDED"

    def check(self) -> Result:
        """The result itself where the job succeeded. Raises ``JobFailed``, which holds the result, else."""
        if not self.succeeded:
            raise JobFailed(
                f"Job {self.job_id} {self.state}{f': {self.error}' if self.error else ''}",
                fix=f"See: holdfast job show {self.job_id}; holdfast logs {self.job_id}",
                result=self,
            )
        return self

    def __bool__(self) -> bool:
        return self.succeeded


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a job's history.

    ``kind`` is a word such as ``rank_exited``, empty for one that this version doesn't know; ``data`` are its fields
    as ``holdfast job events -o json`` prints them. ``state`` is the job's once the event had happened. ``cursor``
    counts up; give it to ``events(after=…)`` to go on behind this event.
    """

    cursor: int
    time: datetime.datetime
    kind: str
    message: str
    state: str
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a rank's output as it was printed, without its end; of a progress bar, its last state.

    ``stream`` is ``stdout`` or ``stderr``, or ``note`` for a sentence of Holdfast's about output that is missing or
    comes from elsewhere. ``text`` may hold sequences that drive a terminal. A line of more than 64 KiB comes in
    pieces. Bytes that are no UTF-8 are replaced.
    """

    text: str
    rank: int
    worker: str
    generation: int
    stream: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the cluster.

    ``state`` is a word such as ``READY``, ``SILENT`` or ``LOST``. Counts are of GPUs and of logical cores, memory is
    in bytes; ``gpus_free`` are those that a job may have now, free of the others is what no job holds. ``problem`` says
    why it takes no new work, or is empty.
    """

    name: str
    state: str
    gpus: int
    gpus_free: int
    gpu_model: str
    cpus: int
    cpus_free: int
    memory_bytes: int
    memory_free_bytes: int
    labels: Mapping[str, str]
    job_ids: tuple[str, ...]
    problem: str = ""


def result_of(job: job_pb2.CustomJob) -> Result:
    """The result of a job that has ended."""
    exits = [_rank_exit(worker.name, each) for worker in job.workers for each in _last_exits(worker)]
    ran = job.HasField("start_time") and job.HasField("end_time")
    return Result(
        job_id=job.id,
        name=job.display_name,
        state=state_of(job),
        exits=tuple(sorted(exits, key=lambda each: each.rank)),
        error=failure_of(job),
        exit_status=exit_status.of_job(job),
        restarts=max(0, job.generation - 1),
        run_s=(job.end_time.ToNanoseconds() - job.start_time.ToNanoseconds()) / 1e9 if ran else None,
    )


def _last_exits(worker: job_pb2.Worker) -> list[job_pb2.Exit]:
    """The exits of its last launch, which another worker's may have followed: each can be relaunched alone."""
    last = max((each.generation for each in worker.exits), default=0)
    return [each for each in worker.exits if each.generation == last]


def _rank_exit(worker: str, record: job_pb2.Exit) -> RankExit:
    # What was found out later about the same end is what the reader asks for.
    late = record.late_exit if record.HasField("late_exit") else record
    return RankExit(
        rank=record.rank,
        worker=worker,
        exit_code=late.exit_code if late.HasField("exit_code") else None,
        signal=late.signal if late.HasField("signal") else None,
        reason=short_name(job_pb2.ExitReason, late.reason),
        message=late.message,
    )


def failure_of(job: job_pb2.CustomJob) -> Failure | None:
    """Why the job ended without success; None while it runs, and where it did succeed."""
    if not job.HasField("error"):
        return None
    error = job.error
    return Failure(
        message=one_line(error.message),
        rank=error.rank if error.HasField("rank") else None,
        exit_code=error.exit_code if error.HasField("exit_code") else None,
        exception=one_line(error.raised),
        details=tuple(spaced_line(line.rstrip()) for line in error.details),
    )


def _with_exception(failure: Failure) -> str:
    """The failure's sentence behind the Python exception that was its cause, unless it names that itself."""
    if not failure.exception or failure.exception in failure.message:
        return failure.message
    who = f"rank {failure.rank}: " if failure.rank is not None else ""
    return f"{who}{failure.exception}" + (f" ({failure.message})" if failure.message else "")


def state_of(job: job_pb2.CustomJob) -> str:
    """The job's state as tables show it, such as ``RUNNING``."""
    return short_name(job_pb2.JobState, job.state)


def event_of(message: job_pb2.WatchJobResponse) -> Event:
    """An event of the API."""
    view = json_view.event(message)
    data = dict(view["event"] or {})
    return Event(
        cursor=message.cursor,
        time=message.time.ToDatetime(datetime.UTC),
        kind=data.pop("kind", ""),
        message=one_line(message.message),
        state=json_view.state_name(view["state"]),
        data=data,
    )


def host_of(message: host_pb2.Host) -> Host:
    """A host of the API."""
    has = message.inventory
    takes_none = message.refused or (message.cordon_reason or "cordoned" if message.cordoned else "")
    return Host(
        name=message.name,
        state=short_name(host_pb2.HostState, message.state),
        gpus=len(has.gpus),
        gpus_free=gpus_free(message),
        gpu_model=has.gpus[0].model if has.gpus else "",
        cpus=has.cpu_count,
        cpus_free=max(0, has.cpu_count - message.cpu_reserved),
        memory_bytes=has.memory_bytes,
        memory_free_bytes=max(0, has.memory_bytes - message.memory_reserved_bytes),
        labels=dict(message.labels),
        job_ids=tuple(message.job_ids),
        problem=one_line(takes_none or has.gpu_problem),
    )
