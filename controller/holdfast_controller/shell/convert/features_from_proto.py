"""Workers' vectors from an agent, as far as they can be believed."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from holdfast._base.printable import one_line
from holdfast._session import hang_wire
from holdfast.errors import InvalidInput, Violation
from holdfast.hang.pipeline.features import GpuFeatures, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast.training.known_step import known_step
from holdfast.v1 import agent_pb2
from holdfast_controller.core.step.commands import FeaturesReported

MOST = 1e15
"""No counter or reading of a rank is above: sums and quotients of what is read must not overflow."""
LATEST_S, OLDEST_S = 1e10, 1e9
"""No host runs for longer; nothing that is reported lies further back than the latter."""


def features(host: str, session: int, message: agent_pb2.FeatureReport) -> FeaturesReported:
    """How a worker's ranks move; nothing in it lies after its sending, or ages before. Raises ``InvalidInput``.

    A time that is no number would be neither fresh nor stale, and its worker overlooked.
    """
    vector = hang_wire.from_proto(host, message)
    output = vector.output
    times = [message.sent_s, vector.at_s, output.last_progress_s, output.last_checkpoint_s, output.step_s]
    times.append(output.first_step_s)
    for rank in vector.ranks:
        times += (rank.still_since_s, rank.last_work_s, rank.helpers_s)
    times += [gpu.idle_since_s for gpu in vector.gpus]
    known = [at for at in times if at is not None]
    if not all(map(math.isfinite, known)) or abs(message.sent_s) > LATEST_S:
        problem = f"times of {vector.worker} are no numbers"
        raise InvalidInput([Violation("features", problem, "upgrade the agent")])
    ranks = tuple(_believed(rank, message.sent_s) for rank in vector.ranks)
    vector = replace(vector, output=_plausible(output), ranks=ranks)
    if max(known) > message.sent_s or min(known) < message.sent_s - OLDEST_S:
        vector = _within(vector, message.sent_s)
    return FeaturesReported(host, session, one_line(message.job_id), message.generation, message.sent_s, vector)


def _plausible(output: OutputFeatures) -> OutputFeatures:
    """Steps that are numbers from 0, and a total that its step hasn't passed; what is none is unknown."""
    step, bar_step, total = map(known_step, (output.step, output.bar_step, output.step_total))
    done = bar_step if step is None else step
    return replace(
        output,
        step=step,
        bar_step=bar_step,
        step_total=total if total is not None and done is not None and max(done, 1.0) <= total else None,
        saved_step=known_step(output.saved_step),
        resumed_step=known_step(output.resumed_step),
        first_step=known_step(output.first_step),
    )


def _believed(rank: RankFeatures, sent_s: float) -> RankFeatures:
    """The rank with readings that can be; those that can't are as if they had not been read."""
    wrong: dict[str, Any] = {}
    if not _are_readings(_readings(rank)):
        wrong = {name: instead for name, instead in _READINGS.items() if not _is_reading(getattr(rank, name))}
    gpu, wait = rank.gpu, rank.wait
    if gpu is not None and not _are_readings(_gpu_readings(gpu)):
        unread: dict[str, Any] = {name: None for name in _GPU_READINGS if not _is_reading(getattr(gpu, name))}
        wrong["gpu"] = replace(gpu, **unread)
    if wait is not None and not (_is_reading(wait.since_s) and _is_reading(wait.until_s)):
        # A sleep may be without an end.
        endless = wait.until_s == math.inf or _is_reading(wait.until_s)
        since_s = wait.since_s if _is_reading(wait.since_s) else None
        wrong["wait"] = replace(wait, since_s=since_s, until_s=wait.until_s if endless else None)
    if (times := _counters(rank.times, sent_s)) is not rank.times:
        wrong["times"] = times
    return replace(rank, **wrong) if wrong else rank


_GPU_READINGS = tuple(field.name for field in fields(GpuFeatures) if field.name != "look")
_gpu_readings = attrgetter(*_GPU_READINGS)
_READINGS: dict[str, Any] = {"still_longest_s": 0.0, "cpu_share": 0.0, "switches_s": None, "switch_share": None}
"""Of a rank, with what stands for one that is not known."""
_readings = attrgetter(*_READINGS)
_counts = attrgetter(*(field.name for field in fields(RankTimes)))


def _is_reading(value: float | None) -> bool:
    return value is None or -MOST <= value <= MOST


def _are_readings(values: tuple[float | None, ...]) -> bool:
    for value in values:  # noqa: SIM110  # twice as fast, and ranks are reported by the thousand
        if value is not None and not -MOST <= value <= MOST:
            return False
    return True


def _counters(times: RankTimes | None, sent_s: float) -> RankTimes | None:
    """Counters of a rank's time, with no report after its sending; None where a number is none that can be."""
    if times is None:
        return None
    for value in _counts(times):
        if value is not None and not 0 <= value <= MOST:
            return None
    late = times.step_s is not None and times.step_s > sent_s
    return replace(times, step_s=sent_s) if late else times


def _within(vector: WorkerFeatures, sent_s: float) -> WorkerFeatures:
    """Clamp a time in the future to now, where a silence would never count, and one that is too old to be true."""

    def clamped(at_s: float) -> float:
        return max(min(at_s, sent_s), sent_s - OLDEST_S)

    def past(at_s: float | None) -> float | None:
        return None if at_s is None else clamped(at_s)

    ranks = tuple(
        replace(
            rank,
            still_since_s=clamped(rank.still_since_s),
            last_work_s=past(rank.last_work_s),
            helpers_s=past(rank.helpers_s),
        )
        for rank in vector.ranks
    )
    output = replace(
        vector.output,
        last_progress_s=past(vector.output.last_progress_s),
        last_checkpoint_s=past(vector.output.last_checkpoint_s),
        step_s=past(vector.output.step_s),
        first_step_s=past(vector.output.first_step_s),
    )
    gpus = tuple(replace(gpu, idle_since_s=past(gpu.idle_since_s)) for gpu in vector.gpus)
    return replace(vector, at_s=clamped(vector.at_s), ranks=ranks, output=output, gpus=gpus)
