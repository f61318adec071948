"""Counters of a rank's time, by which a slow rank is distinguished from those that wait for it.

They begin with the first sample that an agent sees of a rank, and only grow; a reader subtracts two of them. So a
vector that is lost costs nothing, and an agent that begins again is seen by a counter that falls. No rule of hangs
looks at them.
"""

from __future__ import annotations

from holdfast._base.dataclass import dataclass, replace
from holdfast.hang.pipeline.samples import GpuSample, RankSample, State

_GAP_S = 30.0
"""Samples farther apart say nothing of the time between them."""
_ASIDE = ("nanosleep", "pipe")
"""Kernel functions of a wait for a clock, or for a helper such as a data loader: a rank's own time, not its peers'."""
_HELD_DOWN = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clocks event reasons of hardware, heat and the power brake; a power cap is everyday."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Counters: seconds in ``_s`` over ``seen_s`` seconds of samples; the others count samples, or add up readings."""

    seen_s: float = 0.0
    # Of the main thread: on a core, and ready without one; None where the kernel doesn't say.
    ran_s: float | None = None
    queued_s: float | None = None
    looks: int = 0
    # Stopped by a signal; in uninterruptible sleep; asleep by its own call, or waiting for a helper.
    stopped: int = 0
    storage: int = 0
    aside: int = 0
    # Its own newest step, and when it reported that.
    step: float | None = None
    step_s: float | None = None
    # Of its GPU: readings, their sums, and in how many something held the clocks down.
    gpu_looks: int = 0
    clock_mhz: float = 0.0
    util_pct: float = 0.0
    throttled: int = 0
    gpu_s: float = 0.0
    energy_j: float = 0.0

    def shifted(self, by_s: float) -> RankTimes:
        """The same on a clock that reads ``by_s`` more."""
        return self if self.step_s is None else replace(self, step_s=self.step_s + by_s)


def added(times: RankTimes, before: RankSample | None, sample: RankSample) -> RankTimes:
    """The counters after one more sample."""
    if sample.process is None:
        return times
    state, wchan = sample.process.state, sample.process.wchan
    stopped = state is State.STOPPED and not sample.paused_by_us
    times = replace(
        times,
        looks=times.looks + 1,
        stopped=times.stopped + stopped,
        storage=times.storage + (state is State.DISK),
        aside=times.aside + (state is State.SLEEPING and any(name in wchan for name in _ASIDE)),
    )
    if before is None or before.process is None or not 0 < sample.at_s - before.at_s <= _GAP_S:
        return times
    elapsed_s = sample.at_s - before.at_s
    times = replace(times, seen_s=times.seen_s + elapsed_s)
    ran_s = _grown(before.process.ran_s, sample.process.ran_s)
    queued_s = _grown(before.process.queued_s, sample.process.queued_s)
    if ran_s is not None and queued_s is not None:
        times = replace(times, ran_s=(times.ran_s or 0.0) + ran_s, queued_s=(times.queued_s or 0.0) + queued_s)
    return _with_gpu(times, before.gpu, sample.gpu)


def _with_gpu(times: RankTimes, before: GpuSample | None, gpu: GpuSample | None) -> RankTimes:
    if gpu is None or before is None or gpu.at_s <= before.at_s or gpu.sm_clock_mhz is None:
        return times
    joules = _grown(before.energy_j, gpu.energy_j)
    elapsed_s = gpu.at_s - before.at_s if joules is not None else 0.0
    return replace(
        times,
        gpu_looks=times.gpu_looks + 1,
        clock_mhz=times.clock_mhz + gpu.sm_clock_mhz,
        util_pct=times.util_pct + (gpu.util_pct or 0.0),
        throttled=times.throttled + bool((gpu.throttle or 0) & _HELD_DOWN),
        gpu_s=times.gpu_s + elapsed_s,
        energy_j=times.energy_j + (joules or 0.0),
    )


def _grown(before: float | None, now: float | None) -> float | None:
    return now - before if before is not None and now is not None and now >= before else None
