"""Phases of a worker that change what its silence means.

One phase at a time, one table. ``facts`` are looked at in a fixed order: what a person said or does (declared
idle, a debugger) goes before what the job does (a checkpoint, lone work, a compile), and start-up ends once per
generation.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.features import GpuLook, Motion, WorkerFeatures
from holdfast.hang.thresholds import Tuning


class Phase(enum.Enum):
    """Phases of a worker within one generation."""

    # Until the first progress and a known rate; only the start-up limit counts.
    STARTUP = "starting up"
    STEADY = "steady"
    # A checkpoint file is open and grew lately: 15 min since its last byte.
    CHECKPOINT = "writing a checkpoint"
    # GPU idle, CPU burning, frames changing: a compile, preprocessing.
    HOST_BUSY = "busy on the host"
    # Some rank of the job works while its peers wait.
    LONE_WORK = "lone work"
    # A tracer is attached; nothing is judged.
    DEBUGGED = "debugged"
    # The program says it is idle; nothing is judged.
    DECLARED_IDLE = "declared idle"


_PASSING = frozenset({Phase.CHECKPOINT, Phase.HOST_BUSY, Phase.LONE_WORK, Phase.DEBUGGED, Phase.DECLARED_IDLE})

# Start-up can be interrupted and come back; once steady, a worker never starts up again in the same generation.
TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    Phase.STARTUP: _PASSING | {Phase.STEADY},
    Phase.STEADY: _PASSING,
    **{phase: (_PASSING - {phase}) | {Phase.STARTUP, Phase.STEADY} for phase in _PASSING},
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Inputs that decide a worker's phase."""

    started: bool
    declared_idle: bool = False
    traced: bool = False
    checkpoint: bool = False
    lone_work: bool = False
    host_busy: bool = False


def next_phase(phase: Phase, facts: Facts) -> Phase:
    """The phase that follows from the facts. Raises ValueError for a way the table doesn't have."""
    following = _wanted(facts)
    if following is not phase and following not in TRANSITIONS[phase]:
        raise ValueError(f"no way from {phase.name} to {following.name}")
    return following


def _wanted(facts: Facts) -> Phase:
    ordered = (
        (facts.declared_idle, Phase.DECLARED_IDLE),
        (facts.traced, Phase.DEBUGGED),
        (facts.checkpoint, Phase.CHECKPOINT),
        (facts.lone_work, Phase.LONE_WORK),
        (facts.host_busy, Phase.HOST_BUSY),
    )
    for holds, phase in ordered:
        if holds:
            return phase
    return Phase.STEADY if facts.started else Phase.STARTUP


def facts_of(worker: WorkerFeatures, now_s: float, *, started: bool, lone_work: bool, tuning: Tuning) -> Facts:
    """The facts of one worker; whether the job has started and has lone work, only its reader can tell."""
    output = worker.output
    grew_s = output.last_checkpoint_s
    recent = grew_s is not None and now_s - grew_s < tuning.checkpoint_pause_s
    return Facts(
        started=started,
        declared_idle=bool(worker.declared_idle),
        traced=worker.traced,
        checkpoint=output.checkpoint_open and recent,
        lone_work=lone_work,
        host_busy=_host_busy(worker),
    )


def _host_busy(worker: WorkerFeatures) -> bool:
    """Ranks work or burn CPU, and no GPU of them does."""
    busy = any(rank.motion in (Motion.WORKING, Motion.BURNING) for rank in worker.ranks)
    gpus = [rank.gpu for rank in worker.ranks if rank.gpu is not None]
    return busy and bool(gpus) and all(gpu.look is GpuLook.IDLE for gpu in gpus)
