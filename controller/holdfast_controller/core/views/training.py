"""How far a job's training is, from what its workers report at present. For display; nothing is decided by it."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job

_PHASES = ("save", "evaluate", "train")
"""The first that any worker is in: the others wait for it."""


@dataclass(frozen=True, slots=True)
class Training:
    """A step is None where none is known. ``phase`` is "train", "evaluate" or "save", or empty."""

    step: float | None = None
    total: float | None = None
    phase: str = ""
    saved_step: float | None = None
    reported: bool = False
    """The program reports the step, or a pattern of the job finds it; else it is read from counts in its output."""
    is_step: bool = True
    """False for what the output counts, with its total, and doesn't call a step: epochs, say."""


UNKNOWN = Training()


def training_of(cluster: Cluster, job: Job) -> Training:
    """The state of a job's training in its current launch; ``UNKNOWN`` where nothing runs or nothing tells."""
    runtime = cluster.runtime.get(job.id)
    if runtime is None or job.terminal or not runtime.features:
        return UNKNOWN
    outputs = [vector.output for vector in runtime.features.values()]
    reported = [output for output in outputs if output.step is not None]
    counted = reported or [output for output in outputs if output.bar_step is not None]
    step = max((_step(output.step, output.bar_step) for output in counted), default=None)
    total = max((output.step_total for output in counted if output.step_total is not None), default=None)
    if total is None and not any(output.step_fell for output in counted):
        # What the program says goes before what its job file says.
        total = float(job.gang.progress_total) or None
    return Training(
        step=step,
        total=total if step is not None and total is not None and total >= step else None,
        phase=next((phase for phase in _PHASES if any(output.phase == phase for output in outputs)), ""),
        reported=bool(reported),
        is_step=bool(reported) or all(output.bar_is_step or output.step_total is None for output in counted),
        saved_step=max((output.saved_step for output in outputs if output.saved_step is not None), default=None),
    )


def _step(step: float | None, bar_step: float | None) -> float:
    return step if step is not None else bar_step or 0.0
