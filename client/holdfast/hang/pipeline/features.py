"""Features of ranks: small frozen vectors that an agent sends when they change.

The fold from raw samples to these is ``hang.pipeline.rank_baseline``. A vector holds no counters, only what can be
judged without its past: how a rank moves, since when it has not, and the numbers that say so. Times are on the
sender's monotonic clock until ``shifted`` moves them onto the reader's.
"""

from __future__ import annotations

import enum
from dataclasses import field

from holdfast._base.dataclass import dataclass, replace
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast.hang.pipeline.samples import Family, State
from holdfast.hang.pipeline.waits import Wait


class Motion(enum.Enum):
    """How a rank moves."""

    # Evidence of work in the last half minute: storage bytes, major faults, new children, GPU energy, changing
    # frames.
    WORKING = "working"
    # At least half a core, and nothing that tells work from a livelock.
    BURNING = "burning CPU"
    # Some wake-ups, little CPU, no evidence of work.
    STIRRING = "stirring"
    # Under 2 % CPU, the main thread hardly ever wakes.
    BLOCKED = "blocked"
    # The GPU runs a kernel that does nothing: busy, but at low power, without memory traffic.
    SPINNING = "spinning on the GPU"
    # Stopped by a signal, dead but not reaped, or ended.
    STOPPED = "stopped"
    ZOMBIE = "zombie"
    EXITED = "exited"
    # It could not be read.
    UNSEEN = "unseen"


class GpuLook(enum.Enum):
    """Apparent activity of a rank's GPU."""

    WORK = "work"
    IDLE = "idle"
    SPIN = "spin"
    # It can be read, but what can be read doesn't tell work from spin.
    UNCLEAR = "unclear"
    BLIND = "blind"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class GpuFeatures:
    """A rank's GPU relative to this job's own steady level. Shares are of the band between floor and steady."""

    look: GpuLook
    util_pct: float | None = None
    memory_util_pct: float | None = None
    power_w: float | None = None
    power_share: float | None = None
    links_share: float | None = None


@dataclass(frozen=True, slots=True)
class RankFeatures:
    """One rank. ``still_since_s`` is the last time it moved; meaningful while its motion is a still one."""

    rank: int
    motion: Motion
    still_since_s: float
    # The longest it has stood still in this generation and moved again by itself.
    still_longest_s: float = 0.0
    # The last evidence of work, and what it was.
    last_work_s: float | None = None
    work: str = ""
    # The last time a helper of it moved bytes or burned CPU.
    helpers_s: float | None = None
    cpu_share: float = 0.0
    # Main-thread switches a second, and relative to its own steady rate (None: not known yet).
    switches_s: float | None = None
    switch_share: float | None = None
    state: State | None = None
    wchan: str = ""
    gpu: GpuFeatures | None = None
    exit_code: int | None = None
    """Of a rank that has ended, as a shell would show it: 128+n for signal n; None where that is unknown."""
    # A debugger is attached, and no dump tool of the agent.
    traced: bool = False
    # A dump tool of the agent had it stopped at this sample; its state here is the one before.
    paused_by_us: bool = False
    mount: str = ""
    # What its main thread waits for; None while it moves, and where it could not be read.
    wait: Wait | None = None
    # A fatal Xid, or the GPU lost: words, empty when there is none.
    hardware: str = ""
    # That only another host, or a repair of this one, will help.
    broken: bool = False
    # What its time goes to. No rule of hangs looks at it; None from an agent that doesn't say.
    times: RankTimes | None = None

    @property
    def still(self) -> bool:
        """Whether nothing about this rank moves."""
        return self.motion in _STILL

    @property
    def blind(self) -> frozenset[Family]:
        """The families of signals that could not be read of it."""
        unseen = {Family.PROCESS} if self.motion is Motion.UNSEEN else set()
        if self.gpu is not None and self.gpu.look is GpuLook.BLIND:
            unseen.add(Family.GPU)
        return frozenset(unseen)

    @property
    def essence(self) -> tuple[object, ...]:
        """The fields that a verdict depends on; the wait channel counts only while the rank stands still."""
        where = (self.still_since_s, self.state, self.wchan, self.mount, self.helpers_s) if self.still else ()
        wait = (self.wait.kind, self.wait.what, self.wait.place) if self.wait else None
        look = self.gpu.look if self.gpu else None
        return (
            self.motion,
            where,
            wait,
            look,
            self.exit_code,
            self.traced,
            self.hardware,
        )

    def shifted(self, by_s: float) -> RankFeatures:
        return replace(
            self,
            still_since_s=self.still_since_s + by_s,
            last_work_s=_shift(self.last_work_s, by_s),
            helpers_s=_shift(self.helpers_s, by_s),
            wait=None if self.wait is None else _shifted(self.wait, by_s),
            times=None if self.times is None else self.times.shifted(by_s),
        )


_STILL = frozenset({Motion.BLOCKED, Motion.SPINNING, Motion.STOPPED, Motion.ZOMBIE, Motion.EXITED})


@dataclass(frozen=True, slots=True)
class OutputFeatures:
    """A worker's output: log lines that are progress, steps the program reports, growing files."""

    last_progress_s: float | None = None
    step: float | None = None
    last_checkpoint_s: float | None = None
    checkpoint_open: bool = False
    # The program reports its progress itself, so its lines count no longer.
    reported: bool = False
    # The program has begun its work: a step, a save, a phase, a count that grows, GPUs at work. An error before that
    # is one of its start. None from an agent that doesn't say.
    began_work: bool | None = None
    # For display and for the account of a job's time only; no rule and no budget looks at what follows.
    # Steps in all; None where it isn't known.
    step_total: float | None = None
    # The step has fallen without a word of a resumption: it is no count of the whole training's.
    step_fell: bool = False
    # "train", "evaluate" or "save", as the program says; empty where it says nothing.
    phase: str = ""
    # Step of the newest checkpoint that the program calls complete, and of the one that it went on from.
    saved_step: float | None = None
    resumed_step: float | None = None
    # Read from a count in the output (a bar, ``Epoch 3/10``) or learned from its lines, where the program reports no
    # step.
    bar_step: float | None = None
    # The output calls that a step; else it counts something else, such as epochs.
    bar_is_step: bool = False
    # When the program reported its newest step; None where it reports none.
    step_s: float | None = None
    # Where bar_step was learned: the first such step, and when it was read, before its lines were understood.
    first_step: float | None = None
    first_step_s: float | None = None

    def shifted(self, by_s: float) -> OutputFeatures:
        return replace(
            self,
            last_progress_s=_shift(self.last_progress_s, by_s),
            last_checkpoint_s=_shift(self.last_checkpoint_s, by_s),
            step_s=_shift(self.step_s, by_s),
            first_step_s=_shift(self.first_step_s, by_s),
        )


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Whether a GPU is used. No rule of hangs looks at it."""

    # It could be read just now.
    known: bool = False
    # Every reading since then was below the bound of the job's policy, and none was missed; None while it is used.
    idle_since_s: float | None = None

    def shifted(self, by_s: float) -> GpuUse:
        return self if self.idle_since_s is None else replace(self, idle_since_s=self.idle_since_s + by_s)


@dataclass(frozen=True, slots=True)
class WorkerFeatures:
    """All ranks of one worker at one time. A worker whose vector is old counts as unseen, not as hung."""

    worker: str
    host: str
    at_s: float
    ranks: tuple[RankFeatures, ...]
    output: OutputFeatures = field(default_factory=OutputFeatures)
    # Why the program says it is idle; empty when it doesn't.
    declared_idle: str = ""
    # Ranks of a world that began and ends on this worker, apart from the rest of its job; 0 where there is none.
    own_world: int = 0
    # Its GPUs in the order of its launch; none where its job wants no look at them.
    gpus: tuple[GpuUse, ...] = ()

    @property
    def traced(self) -> bool:
        """Whether a debugger is attached."""
        return any(rank.traced for rank in self.ranks)

    def shifted(self, by_s: float) -> WorkerFeatures:
        """The same vector on a clock that reads ``by_s`` more."""
        ranks = tuple(rank.shifted(by_s) for rank in self.ranks)
        gpus = tuple(gpu.shifted(by_s) for gpu in self.gpus)
        return replace(self, at_s=self.at_s + by_s, ranks=ranks, output=self.output.shifted(by_s), gpus=gpus)

    def confirmed(self, at_s: float) -> WorkerFeatures:
        """The same vector, still true at that time: what a heartbeat without a change says."""
        return replace(self, at_s=at_s)

    def changed_since(self, sent: WorkerFeatures | None) -> bool:
        """Whether a reader would judge differently by this vector than by the one sent last.

        Numbers of display alone (CPU shares, percents, what the work was) don't count, nor where a moving rank
        happens to be: they travel with the next change.
        """
        return sent is None or self._essence() != sent._essence()

    def _essence(self) -> tuple[object, ...]:
        ranks = tuple(rank.essence for rank in self.ranks)
        return ranks, self.output, self.declared_idle, self.own_world, self.gpus


def _shifted(wait: Wait, by_s: float) -> Wait:
    return replace(wait, since_s=_shift(wait.since_s, by_s), until_s=_shift(wait.until_s, by_s))


def _shift(at_s: float | None, by_s: float) -> float | None:
    return None if at_s is None else at_s + by_s
