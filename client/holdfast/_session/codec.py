"""The session's values to protobuf and back: the only place that knows both.

Decoding checks nothing but enums. What a peer may say at most is for its receiver to judge.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from holdfast._session.reports import (
    Exit,
    ExitReason,
    ExitReport,
    ReportedState,
    WorkerId,
    WorkerReport,
    raised_in,
)
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import agent_pb2, job_pb2


class _Enum:
    """One of our enums and its twin on the wire. ``field`` names it in errors."""

    def __init__(self, ours: type[enum.Enum], wire: Any, prefix: str, field: str) -> None:
        self._field = field
        self._numbers = {each: wire.Value(prefix + each.name) for each in ours}
        self._ours: dict[int, Any] = {number: each for each, number in self._numbers.items()}

    def encode(self, value: enum.Enum) -> Any:
        """Its number on the wire."""
        return self._numbers[value]

    def decode(self, number: int) -> Any:
        """Raises ``InvalidInput`` for a number that this version does not know."""
        try:
            return self._ours[number]
        except KeyError:
            problem = f"{number} is no value that this controller knows"
            raise InvalidInput([Violation(self._field, problem, "upgrade the controller first")]) from None


_REASONS = _Enum(ExitReason, job_pb2.ExitReason, "EXIT_REASON_", "exit_reason")
_STATES = _Enum(ReportedState, agent_pb2.ReportedState, "REPORTED_STATE_", "reported_state")


def exit_to_proto(exit_: Exit) -> job_pb2.Exit:
    """How a rank ended, without the last lines of its output, which travel beside it."""
    return job_pb2.Exit(
        attempt=exit_.attempt,
        generation=exit_.generation,
        rank=exit_.rank,
        exit_code=exit_.exit_code,
        signal=exit_.signal,
        core_dumped=exit_.core_dumped,
        reason=_REASONS.encode(exit_.reason),
        message=exit_.message,
        end_time=timestamp(exit_.end_time) if exit_.end_time else None,
        raised=exit_.raised,
    )


def exit_from_proto(message: job_pb2.Exit, stderr_tail: Iterable[str] = ()) -> Exit:
    """The same again. Raises ``InvalidInput`` for an unknown reason."""
    return Exit(
        attempt=message.attempt,
        generation=message.generation,
        rank=message.rank,
        reason=_REASONS.decode(message.reason),
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        signal=message.signal if message.HasField("signal") else None,
        core_dumped=message.core_dumped,
        message=message.message,
        end_time=seconds(message.end_time),
        stderr_tail=tuple(stderr_tail),
        raised=message.raised if message.HasField("raised") else raised_in(message.message),
    )


def exit_report_to_proto(report: ExitReport) -> agent_pb2.ExitReport:
    """A rank's exit, for the controller."""
    return agent_pb2.ExitReport(
        sequence=report.sequence,
        job_id=report.key.job,
        worker=report.key.worker,
        exit=exit_to_proto(report.exit),
        stderr_tail=report.exit.stderr_tail,
        port_taken=report.port_taken,
    )


def exit_report_from_proto(message: agent_pb2.ExitReport) -> ExitReport:
    """The same again. Raises ``InvalidInput`` for an unknown reason."""
    return ExitReport(
        sequence=message.sequence,
        key=WorkerId(message.job_id, message.worker),
        exit=exit_from_proto(message.exit, message.stderr_tail),
        port_taken=message.port_taken,
    )


def worker_report_to_proto(report: WorkerReport) -> agent_pb2.WorkerReport:
    """A worker's state, for the controller."""
    return agent_pb2.WorkerReport(
        job_id=report.key.job,
        worker=report.key.worker,
        attempt=report.attempt,
        generation=report.generation,
        state=_STATES.encode(report.state),
        port=report.port,
        master_port=report.master_port,
        shim_pid=report.shim_pid,
        ranks=[job_pb2.Rank(rank=rank, pid=pid) for rank, pid in report.pids],
        message=report.message,
        host_fault=report.host_fault,
        gpus=report.gpus,
    )


def worker_report_from_proto(message: agent_pb2.WorkerReport) -> WorkerReport:
    """The same again. Raises ``InvalidInput`` for an unknown state."""
    return WorkerReport(
        key=WorkerId(message.job_id, message.worker),
        attempt=message.attempt,
        generation=message.generation,
        state=_STATES.decode(message.state),
        port=message.port,
        master_port=message.master_port,
        shim_pid=message.shim_pid,
        pids=tuple(sorted((each.rank, each.pid) for each in message.ranks)),
        message=message.message,
        host_fault=message.host_fault,
        gpus=tuple(message.gpus),
    )


def seconds(message: duration_pb2.Duration | timestamp_pb2.Timestamp) -> float:
    """A duration, or a time since the epoch, in seconds; 0 where absent."""
    return message.seconds + message.nanos / 1e9


def duration(seconds: float) -> duration_pb2.Duration:
    """So many seconds."""
    message = duration_pb2.Duration()
    message.FromNanoseconds(int(seconds * 1e9))
    return message


def timestamp(wall_s: float) -> timestamp_pb2.Timestamp:
    """A time in seconds since the epoch."""
    whole = int(wall_s)
    return timestamp_pb2.Timestamp(seconds=whole, nanos=int((wall_s - whole) * 1e9))
