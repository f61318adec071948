"""Workers' vectors from an agent, as far as they can be believed."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from holdfast._base.printable import one_line
from holdfast._session import hang_wire
from holdfast.errors import InvalidInput, Violation
from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast.v1 import agent_pb2
from holdfast_controller.core.step.commands import FeaturesReported


def features(host: str, session: int, message: agent_pb2.FeatureReport) -> FeaturesReported:
    """How a worker's ranks move; nothing in it lies after its sending. Raises ``InvalidInput``.

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
    if not all(map(math.isfinite, known)):
        problem = f"times of {vector.worker} are no numbers"
        raise InvalidInput([Violation("features", problem, "upgrade the agent")])
    ranks = tuple(replace(rank, times=_counters(rank.times, message.sent_s)) for rank in vector.ranks)
    vector = replace(vector, output=_plausible(output), ranks=ranks)
    if max(known) > message.sent_s:
        vector = _not_after(vector, message.sent_s)
    return FeaturesReported(host, session, one_line(message.job_id), message.generation, message.sent_s, vector)


def _plausible(output: OutputFeatures) -> OutputFeatures:
    """Steps that are numbers from 0, and a total that its step hasn't passed; what is none is unknown."""
    step, bar_step, total = map(_step, (output.step, output.bar_step, output.step_total))
    done = bar_step if step is None else step
    return replace(
        output,
        step=step,
        bar_step=bar_step,
        step_total=total if total is not None and done is not None and max(done, 1.0) <= total else None,
        saved_step=_step(output.saved_step),
        resumed_step=_step(output.resumed_step),
        first_step=_step(output.first_step),
    )


def _step(step: float | None) -> float | None:
    return step if step is not None and math.isfinite(step) and step >= 0 else None


def _counters(times: RankTimes | None, sent_s: float) -> RankTimes | None:
    """Counters of a rank's time, with no report after its sending; None where a number is none that can be."""
    if times is None:
        return None
    values = [value for value in (getattr(times, field.name) for field in fields(times)) if value is not None]
    if not all(math.isfinite(value) and value >= 0 for value in values):
        return None
    return replace(times, step_s=min(times.step_s, sent_s)) if times.step_s is not None else times


def _not_after(vector: WorkerFeatures, sent_s: float) -> WorkerFeatures:
    """Clamp a time in the future to now: a silence that began there would never count."""

    def past(at_s: float | None) -> float | None:
        return None if at_s is None else min(at_s, sent_s)

    ranks = tuple(
        replace(
            rank,
            still_since_s=min(rank.still_since_s, sent_s),
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
    return replace(vector, at_s=min(vector.at_s, sent_s), ranks=ranks, output=output, gpus=gpus)
