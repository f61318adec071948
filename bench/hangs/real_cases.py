"""The cases of ``real.py``: each gang's life and how time is compressed for it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from holdfast.hang.thresholds import Tuning

RANKS, GUILTY = 4, 2
SCALE = 1 / 5
CEILING_SCALE = 1 / 20
STARTUP_SCALE = 1 / 60
# Not scaled: how old a vector may be, since agents repeat theirs after 8 s; and the time that dumps may take.
_KEPT = {"timeout_s", "diagnose_s", "stale_s", "work_bytes", "contrast_link_bytes_s"}


def scaled() -> Tuning:
    """All times by ``SCALE``; ceilings and the start-up, which would take longest, by their own."""
    tuning = Tuning()
    changed = {
        f.name: getattr(tuning, f.name) * SCALE
        for f in fields(tuning)
        if f.name.endswith("_s") and f.name not in _KEPT
    }
    changed |= {"ceiling_s": tuning.ceiling_s * CEILING_SCALE, "lone_act_s": tuning.lone_act_s * CEILING_SCALE}
    changed |= {"startup_s": tuning.startup_s * STARTUP_SCALE}
    changed |= {"startup_ceiling_s": tuning.startup_ceiling_s * STARTUP_SCALE}

    return replace(tuning, **changed)


SCALED = scaled()


@dataclass(frozen=True)
class Case:
    """One gang's life. ``what`` as ``gang.py`` takes it; ``rank`` is who does it, None where all do."""

    name: str
    what: str
    rank: int | None = GUILTY
    fault: bool = True
    at_step: int = 25
    watch_s: float = 60.0
    lasts_s: float = 45.0
    real_time: bool = False
    gpus: bool = False
    # How many cores it burns after the fault.
    burns: float = 0.2


FAULTS = (
    Case("SIGSTOP of a rank", "stop"),
    Case("a rank ends with 0", "exit"),
    Case("endless sleep", "sleep"),
    Case("mismatched collective", "mismatch"),
    Case("data loader deadlock", "loader"),
    Case("read that never returns (FIFO)", "fifo"),
    Case("uninterruptible (D, vfork)", "dstate"),
    Case("heartbeat line goes on", "heartbeat"),
    Case("spin-wait (scripted GPU)", "gpu_spin", gpus=True),
    Case("CPU livelock", "livelock", watch_s=120, burns=1),
    Case("SIGSTOP, as shipped", "stop", at_step=80, watch_s=120, real_time=True),
    Case("endless sleep, as shipped", "sleep", at_step=80, watch_s=120, real_time=True),
)
NEGATIVES = (
    Case("rank 0 evaluates", "evaluate", rank=0, fault=False, burns=1),
    Case("rank 0 saves", "save", rank=0, fault=False),
    Case("slow checkpoint (a portion every 15 s)", "slow_save", rank=0, fault=False),
    Case("tokenising in forked children at the start", "tokenise", rank=0, fault=False, at_step=0, burns=1.4),
    Case("CPU burnt before the first line", "preprocess", rank=0, fault=False, at_step=0, burns=2),
    Case("compile, only children burn", "compile", rank=0, fault=False, burns=1),
    Case("debugger attached (ptrace)", "traced", fault=False),
    Case("evaluation of all ranks", "evaluate_all", rank=0, fault=False, burns=1.2),
    Case("straggler at 4 ×", "straggler", fault=False),
    Case("declared idle", "idle", rank=0, fault=False),
    Case(
        "rank 0 saves, as shipped", "save", rank=0, fault=False, at_step=80, watch_s=130, lasts_s=90, real_time=True
    ),
)
WEAKNESSES = (Case("undeclared sleep of all ranks", "pause", rank=0, fault=False),)
