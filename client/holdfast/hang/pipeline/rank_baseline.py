"""From raw samples to features: one rank's baseline, folded sample by sample.

Theory of operation. What its counters did between two samples is compared with a rank's own steady level, since no
number separates work from waiting on every machine. Steady levels are medians tracked in one float each, and they
learn only from samples that moved: a hang must never become the new normal. A single wake-up doesn't end a stillness;
evidence of work does, and so do two moving samples in a row, or two within a minute that did more than ask again.
"""

from __future__ import annotations

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.xids import XidAction, action_of
from holdfast.hang.pipeline.features import GpuFeatures, GpuLook, Motion, RankFeatures
from holdfast.hang.pipeline.samples import GpuSample, ProcessSample, RankSample, State
from holdfast.hang.pipeline.waits import WaitKind
from holdfast.hang.thresholds import Tuning

# A tracked median moves by so much of itself per sample: a doubling takes it 15 samples, outliers don't count.
_STEP = 0.05
# Before that many samples it is their mean: the first often lies half-way to idle, and steps from there take minutes.
_FIRST = 20
_AWAKE_S = 0.0005  # a rank that is stopped runs for some microseconds, while its C frames are read


@dataclass(frozen=True, slots=True)
class Baseline:
    """Baseline of one rank from its past samples; a few numbers, journalled and restored by the agent."""

    sample: RankSample
    still_since_s: float
    still_longest_s: float = 0.0
    last_work_s: float | None = None
    work: str = ""
    helpers_s: float | None = None
    # When its helpers last used a share of a core that work takes, or wrote anything.
    helpers_ran_s: float | None = None
    stirs: int = 0
    # When its main thread last ran for longer than a poll takes.
    strode_s: float | None = None
    # Steady levels and the idle floor.
    switches_s: float | None = None
    power_w: float | None = None
    power_floor_w: float | None = None
    memory_util_pct: float | None = None
    link_bytes_s: float | None = None
    # Readings of the GPU at work that these were learned from.
    gpu_learned: int = 0
    gpu: GpuFeatures | None = None


def begin(sample: RankSample) -> tuple[Baseline, RankFeatures]:
    """The first sample of a rank in a generation, or after a pause of the agent without a journal."""
    base = Baseline(sample=sample, still_since_s=sample.at_s)
    return base, _features(base, sample, _life(sample) or Motion.STIRRING, 0.0, None)


def observe(base: Baseline, sample: RankSample, tuning: Tuning) -> tuple[Baseline, RankFeatures]:
    """The rank after one more sample. Time without samples (a restarted agent, a leap of the clock) is no stillness."""
    elapsed_s = sample.at_s - base.sample.at_s
    if elapsed_s <= 0:
        return base, _features(base, sample, _life(sample) or Motion.STIRRING, 0.0, None)
    if elapsed_s > tuning.stale_s:
        base = replace(base, still_since_s=sample.at_s, stirs=0)
    life = _life(sample)
    base = _learn_gpu(base, sample, tuning)
    if life is not None or sample.process is None:
        return _without_motion(base, sample, life or Motion.UNSEEN)
    return _with_motion(base, sample, sample.process, elapsed_s, tuning)


def _life(sample: RankSample) -> Motion | None:
    """The motion that the state alone decides, if it does."""
    if sample.exit_code is not None:
        return Motion.EXITED
    if sample.process is None:
        return Motion.UNSEEN
    if sample.process.state is State.ZOMBIE:
        return Motion.ZOMBIE
    return Motion.STOPPED if sample.process.state in (State.STOPPED, State.TRACED) else None


def _without_motion(base: Baseline, sample: RankSample, motion: Motion) -> tuple[Baseline, RankFeatures]:
    # It has been stopped since then, not since it began to wait; if continued in turns (cpulimit), since it last ran.
    ran = sample.process and base.sample.process and _ran_s(sample.process, base.sample.process) >= _AWAKE_S
    halts = motion in (Motion.STOPPED, Motion.ZOMBIE) and (bool(ran) or _life(base.sample) is not motion)
    base = replace(base, sample=_keep_process(base, sample))
    if motion is Motion.UNSEEN or halts:
        base = replace(base, still_since_s=sample.at_s)
    return base, _features(base, sample, motion, 0.0, None)


def _keep_process(base: Baseline, sample: RankSample) -> RankSample:
    """The sample to subtract the next one from: counters that couldn't be read now stay those of the last time."""
    return sample if sample.process is not None else replace(sample, process=base.sample.process)


def _with_motion(
    base: Baseline, sample: RankSample, process: ProcessSample, elapsed_s: float, tuning: Tuning
) -> tuple[Baseline, RankFeatures]:
    before = base.sample.process or process
    cpu_share = _rate(process.cpu_s, before.cpu_s, elapsed_s)
    child_share = _rate(sample.children.cpu_s, base.sample.children.cpu_s, elapsed_s)
    switches = _switches(process, before, elapsed_s)
    base = _note_work(base, sample, process, before, tuning)
    # What wakes because we stop it, to read its C frames, doesn't move; nor does what only asks for a lock again.
    counts = not (sample.paused_by_us or base.sample.paused_by_us or _polls(base, sample))
    stirs = max(cpu_share, child_share) >= tuning.blocked_cpu_share or _wakes(base, switches, tuning)
    stirred = stirs and counts
    motion = _motion(base, sample, max(cpu_share, child_share), stirred, tuning)
    base = _note_motion(base, sample, motion, switches, _helpers(base, sample, elapsed_s, tuning), stirred=stirred)
    if counts and _ran_s(process, before) >= tuning.stride_s:
        base = _note_stride(base, sample, tuning)
    if motion is Motion.STIRRING and base.stirs < 2:
        motion = Motion.BLOCKED
    if motion is Motion.BLOCKED and _strides(base, sample, tuning):
        motion = Motion.STIRRING
    sample = _beside_helpers(base, sample, tuning)
    return base, _features(base, sample, motion, max(cpu_share, child_share), switches)


def _beside_helpers(base: Baseline, sample: RankSample, tuning: Tuning) -> RankSample:
    """The sample, with a wait for a process of its own tree as one for work, while helpers are seen at it."""
    # A loader that prepares a batch for minutes looks like one that runs in a circle.
    wait, ran_s = sample.wait, base.helpers_ran_s
    if wait is None or wait.kind is not WaitKind.CHILD or ran_s is None:
        return sample
    if sample.at_s - ran_s >= tuning.work_window_s:
        return sample
    what = f"{wait.what}, at work" if wait.what else "at work"
    return replace(sample, wait=replace(wait, what=what, at_work=True))


def _rate(now: float, before: float, elapsed_s: float) -> float:
    return max(0.0, now - before) / elapsed_s


def _switches(process: ProcessSample, before: ProcessSample, elapsed_s: float) -> float | None:
    if process.main_switches is None or before.main_switches is None:
        return None
    return _rate(process.main_switches, before.main_switches, elapsed_s)


def _polls(base: Baseline, sample: RankSample) -> bool:
    """Whether the rank has asked again and again, since the sample before, for a lock that another process holds."""
    wait = sample.wait
    return wait is not None and wait.polled and wait.since_s is not None and wait.since_s <= base.sample.at_s


def _wakes(base: Baseline, switches: float | None, tuning: Tuning) -> bool:
    """Whether the main thread wakes as it does when it works."""
    if switches is None:
        return False
    if base.switches_s is None:
        return switches > tuning.blocked_switches_unknown
    return switches >= tuning.blocked_switch_share * base.switches_s and switches > 0


def _motion(base: Baseline, sample: RankSample, cpu_share: float, stirred: bool, tuning: Tuning) -> Motion:
    if base.last_work_s is not None and sample.at_s - base.last_work_s < tuning.work_window_s:
        return Motion.WORKING
    if base.gpu is not None and base.gpu.look is GpuLook.SPIN:
        return Motion.SPINNING
    if cpu_share >= tuning.busy_cpu_share:
        return Motion.BURNING
    return Motion.STIRRING if stirred else Motion.BLOCKED


def _note_motion(
    base: Baseline,
    sample: RankSample,
    motion: Motion,
    switches: float | None,
    helpers: tuple[float | None, float | None],
    *,
    stirred: bool,
) -> Baseline:
    """Moves the start of the stillness on while the rank moves, and learns its steady rate of switches."""
    stirs = base.stirs + 1 if stirred else 0
    moved = motion is Motion.BURNING or (motion is Motion.STIRRING and stirs >= 2)
    still_since_s = sample.at_s if moved else base.still_since_s
    if motion is Motion.WORKING and base.last_work_s is not None:
        still_since_s = max(still_since_s, base.last_work_s)
    lasted_s = base.sample.at_s - base.still_since_s if still_since_s > base.still_since_s else 0.0
    return replace(
        base,
        sample=sample,
        stirs=stirs,
        still_since_s=still_since_s,
        still_longest_s=max(base.still_longest_s, lasted_s),
        helpers_s=helpers[0],
        helpers_ran_s=helpers[1],
        switches_s=_towards(base.switches_s, switches if stirred else None),
    )


def _ran_s(process: ProcessSample, before: ProcessSample) -> float:
    """Seconds that the main thread has run on a core since the sample before; 0 where that isn't known."""
    return process.ran_s - before.ran_s if process.ran_s is not None and before.ran_s is not None else 0.0


def _note_stride(base: Baseline, sample: RankSample, tuning: Tuning) -> Baseline:
    """Steps of some seconds, of a main thread that waits in between, are wake-ups apart: the second one is movement."""
    last_s, base = base.strode_s, replace(base, strode_s=sample.at_s)
    if last_s is None or sample.at_s - last_s > tuning.strides_apart_s:
        return base
    longest_s = max(base.still_longest_s, last_s - base.still_since_s)
    return replace(base, still_since_s=sample.at_s, still_longest_s=longest_s)


def _strides(base: Baseline, sample: RankSample, tuning: Tuning) -> bool:
    """Whether a step of that kind was the last movement and is not long over: it is seen at several looks."""
    return base.strode_s == base.still_since_s and sample.at_s - base.still_since_s < tuning.stride_shows_s


def _note_work(
    base: Baseline, sample: RankSample, process: ProcessSample, before: ProcessSample, tuning: Tuning
) -> Baseline:
    """The newest evidence of work by the rank or its own children."""
    bytes_moved = process.storage_bytes - before.storage_bytes
    bytes_moved += sample.children.storage_bytes - base.sample.children.storage_bytes
    faults = process.major_faults - before.major_faults
    faults += sample.children.major_faults - base.sample.children.major_faults
    if bytes_moved >= tuning.work_bytes:
        return replace(base, last_work_s=sample.at_s, work=f"moved {bytes_moved / 1e6:.1f} MB of storage")
    if faults >= tuning.work_major_faults:
        return replace(base, last_work_s=sample.at_s, work=f"{faults} major page faults")
    if sample.children.spawned > base.sample.children.spawned:
        return replace(base, last_work_s=sample.at_s, work="started child processes")
    return base


def _helpers(
    base: Baseline, sample: RankSample, elapsed_s: float, tuning: Tuning
) -> tuple[float | None, float | None]:
    """When the rank's helpers were last seen at work, and when they last ran at all."""
    old, new = base.sample.helpers, sample.helpers
    share = _rate(new.cpu_s, old.cpu_s, elapsed_s)
    worked = share >= tuning.busy_cpu_share or new.storage_bytes - old.storage_bytes >= tuning.work_bytes
    # A pool that asks a service needs hardly any CPU; each result is written into a pipe.
    ran = share >= tuning.helper_cpu_share or new.written > old.written
    return sample.at_s if worked else base.helpers_s, sample.at_s if ran else base.helpers_ran_s


# -- GPU ---------------------------------------------------------------------------------------------------------


def _learn_gpu(base: Baseline, sample: RankSample, tuning: Tuning) -> Baseline:
    """Reads the GPU, and learns its floor and steady levels; its work is evidence of the rank's work."""
    if sample.gpu_blind:
        return replace(base, gpu=GpuFeatures(GpuLook.BLIND))
    new, old = sample.gpu, base.sample.gpu
    if new is None:
        return base if base.gpu is None else replace(base, gpu=None)
    if new.lost:
        return replace(base, gpu=GpuFeatures(GpuLook.LOST))
    if old is None or new.at_s <= old.at_s:
        return base
    power = _slope(new.energy_j, old.energy_j, new.at_s - old.at_s)
    links = _slope(new.link_bytes, old.link_bytes, new.at_s - old.at_s)
    floor_w = base.power_floor_w if power is None else min(power, base.power_floor_w or power)
    if floor_w != base.power_floor_w:
        base = replace(base, power_floor_w=floor_w)
    features = _look(base, new, power, links, tuning)
    if features.look is not GpuLook.WORK:
        return replace(base, gpu=features)
    count = base.gpu_learned + 1
    return replace(
        base,
        gpu=features,
        power_w=_towards(base.power_w, power, count),
        link_bytes_s=_towards(base.link_bytes_s, links, count),
        memory_util_pct=_towards(base.memory_util_pct, new.memory_util_pct, count),
        gpu_learned=count,
        last_work_s=sample.at_s,
        work=_gpu_words(features),
    )


def _gpu_words(gpu: GpuFeatures) -> str:
    power = "" if gpu.power_w is None else f" at {gpu.power_w:.0f} W"
    return f"GPU busy {gpu.util_pct or 0:.0f} %{power}"


def _slope(new: float | None, old: float | None, elapsed_s: float) -> float | None:
    if new is None or old is None or new < old:
        return None
    return (new - old) / elapsed_s


def _look(base: Baseline, gpu: GpuSample, power: float | None, links: float | None, tuning: Tuning) -> GpuFeatures:
    """Work, idle, spin or unclear, by all the signals there are."""
    power_share = _power_share(base, power, tuning)
    links_share = None
    if links is not None and base.link_bytes_s is not None and base.link_bytes_s >= tuning.contrast_link_bytes_s:
        links_share = links / base.link_bytes_s
    look = _judge(base, gpu, power, power_share, links_share, tuning)
    return GpuFeatures(look, gpu.util_pct, gpu.memory_util_pct, power, power_share, links_share)


def _power_share(base: Baseline, power: float | None, tuning: Tuning) -> float | None:
    """The power relative to this GPU's floor (0) and the job's steady median (1)."""
    if power is None or base.power_w is None or base.power_floor_w is None:
        return None
    band = base.power_w - base.power_floor_w
    return (power - base.power_floor_w) / band if band >= tuning.contrast_power_w else None


def _judge(
    base: Baseline,
    gpu: GpuSample,
    power: float | None,
    power_share: float | None,
    links_share: float | None,
    tuning: Tuning,
) -> GpuLook:
    util = gpu.util_pct
    if power_share is not None and power_share > tuning.spin_power_share:
        return GpuLook.WORK
    if util is None:
        # Only energy is readable (MIG): the idle slope shows idle; between idle and work nothing can be decided.
        idle = power_share is not None and power_share <= tuning.idle_power_share
        return GpuLook.IDLE if idle else GpuLook.UNCLEAR
    if util <= tuning.idle_util_pct:
        return GpuLook.IDLE
    if util < tuning.spin_util_pct:
        # Neither a spinning kernel nor idle: some work is done, unless the power says there is none.
        return GpuLook.WORK if power_share is None else GpuLook.UNCLEAR
    memory_contrast = (base.memory_util_pct or 0.0) >= tuning.contrast_memory_util_pct
    memory_flat = gpu.memory_util_pct is not None and gpu.memory_util_pct <= tuning.spin_memory_util_pct
    if gpu.memory_util_pct is not None and not memory_flat:
        # Without power, memory traffic is the evidence; with it, low power contradicts: nothing can be decided.
        return GpuLook.WORK if power_share is None else GpuLook.UNCLEAR
    if links_share is not None and links_share > tuning.spin_links_share:
        return GpuLook.UNCLEAR
    if power_share is not None or (memory_flat and memory_contrast):
        return GpuLook.SPIN
    # Busy, and no signal with a contrast yet. Where power rises with memory traffic the steady level is first
    # learned; without the traffic it may be the spin of ranks that wait for each other at the start.
    return GpuLook.WORK if not memory_flat and _first_light(base, power, tuning) else GpuLook.UNCLEAR


def _first_light(base: Baseline, power: float | None, tuning: Tuning) -> bool:
    floor = base.power_floor_w
    return power is not None and floor is not None and power - floor >= tuning.contrast_power_w


def _towards(median: float | None, value: float | None, count: int = _FIRST) -> float | None:
    """A median tracked in one float: a step of a twentieth towards each new value; the mean of the first ones."""
    if value is None:
        return median
    if median is None:
        return value
    if count < _FIRST:
        return median + (value - median) / count
    return median * (1 + _STEP) if value > median else median * (1 - _STEP) if value < median else median


def _features(
    base: Baseline, sample: RankSample, motion: Motion, cpu_share: float, switches: float | None
) -> RankFeatures:
    process = sample.process
    share = None if switches is None or not base.switches_s else switches / base.switches_s
    return RankFeatures(
        rank=sample.rank,
        motion=motion,
        still_since_s=base.still_since_s,
        still_longest_s=base.still_longest_s,
        last_work_s=base.last_work_s,
        work=base.work if motion is Motion.WORKING else "",
        helpers_s=base.helpers_s,
        cpu_share=cpu_share,
        switches_s=switches,
        switch_share=share,
        state=process.state if process else None,
        wchan=process.wchan if process else "",
        gpu=base.gpu,
        exit_code=sample.exit_code,
        traced=process.traced if process else False,
        paused_by_us=sample.paused_by_us,
        mount=sample.mount,
        wait=sample.wait,
        hardware=_hardware(sample.gpu),
        broken=_broken(sample.gpu),
    )


def _hardware(gpu: GpuSample | None) -> str:
    if gpu is None:
        return ""
    if gpu.lost:
        return "its GPU is lost"
    return f"its GPU reported Xid {gpu.fatal_xid}" if gpu.fatal_xid is not None else ""


def _broken(gpu: GpuSample | None) -> bool:
    if gpu is None or gpu.fatal_xid is None:
        return gpu is not None and gpu.lost
    return gpu.lost or action_of(gpu.fatal_xid) is XidAction.REPLACE
