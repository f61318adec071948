"""One look at a whole job: every worker's newest vector beside what the job's past says; what the rules judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.pipeline.features import GpuFeatures, GpuLook, Motion, RankFeatures
from holdfast.hang.pipeline.phase import Phase
from holdfast.hang.pipeline.progress_rate import ProgressRate
from holdfast.hang.pipeline.samples import State
from holdfast.hang.thresholds import Tuning


@dataclass(frozen=True, slots=True)
class Seen:
    """One rank, with the worker it belongs to."""

    worker: str
    host: str
    features: RankFeatures

    @property
    def name(self) -> str:
        return f"{self.worker} rank {self.features.rank}"

    @property
    def key(self) -> tuple[str, int]:
        return self.worker, self.features.rank


@dataclass(frozen=True, slots=True)
class Counts:
    """Collective counts where they are free (NCCL's RAS): frozen since when, and which ranks lag behind."""

    frozen_since_s: float
    mismatched: bool
    laggards: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Lesson:
    """The hang that a generation was restarted for: where it waited, how far it had come, and how often in a row."""

    signature: str
    step: float | None
    ran_s: float
    times: int = 1

    def repeated_by(self, signature: str, step: float | None, ran_s: float) -> bool:
        """Whether a hang is this one again: the same wait at the same step; without steps, as far from the start."""
        if signature != self.signature:
            return False
        if step is not None or self.step is not None:
            return step == self.step
        return abs(ran_s - self.ran_s) <= max(30.0, self.ran_s / 4)


@dataclass(frozen=True)
class View:
    """All that is known of a job at one time; times on the reader's clock."""

    now_s: float
    tuning: Tuning
    ranks: tuple[Seen, ...]
    output: ProgressRate
    # Start-up is over: the output has a known rate, or work has been going on for long.
    started: bool
    # How long start-up may take while every rank is blocked.
    startup_limit_s: float
    phases: Mapping[str, Phase] = field(default_factory=dict)
    # Workers not heard of lately.
    unseen: tuple[str, ...] = ()
    last_checkpoint_s: float | None = None
    # Longest time that everything stood still, and that some rank worked alone, and it went on by itself.
    still_longest_s: float = 0.0
    lone_longest_s: float = 0.0
    # The longest time that everything waited for something outside the job, and it went on by itself.
    external_longest_s: float = 0.0
    # Since when no rank has moved, as far as the looks so far tell.
    stood_since_s: float | None = None
    # The hang that the last generation was restarted for.
    lesson: Lesson | None = None
    began_s: float = 0.0
    # The highest step that any worker has reported in this generation.
    step: float | None = None
    # The program reports its progress itself.
    reported: bool = False
    # Since when some rank works while all its peers wait and nothing is printed.
    lone_since_s: float | None = None
    # The newest diagnosis of this suspicion, and ranks whose changing frames still count as work.
    diagnosis: Diagnosis | None = None
    # Stack dumps of this suspicion may still come.
    dumps_awaited: bool = True
    by_frames: frozenset[tuple[str, int]] = frozenset()
    counts: Counts | None = None
    # The highest step that each worker has reported, if it reports any.
    steps: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def live(self) -> tuple[Seen, ...]:
        return tuple(seen for seen in self.ranks if seen.features.motion is not Motion.EXITED)

    @cached_property
    def working(self) -> tuple[Seen, ...]:
        """Ranks with evidence of work: the veto."""
        return tuple(s for s in self.live if s.features.motion is Motion.WORKING or s.key in self.by_frames)

    @cached_property
    def moving(self) -> tuple[Seen, ...]:
        """Ranks that move without evidence of work: they burn CPU, or stir."""
        restless = (Motion.BURNING, Motion.STIRRING)
        return tuple(s for s in self.live if s.features.motion in restless and s.key not in self.by_frames)

    @cached_property
    def gpus(self) -> tuple[GpuFeatures, ...]:
        return tuple(seen.features.gpu for seen in self.live if seen.features.gpu is not None)

    @cached_property
    def quiet_since_s(self) -> float:
        """When the output, or evidence of work, was last seen."""
        times = [seen.features.last_work_s for seen in self.live]
        return max([self.output.last_s, *(at_s for at_s in times if at_s is not None)])

    def looks(self, *looks: GpuLook) -> bool:
        """Whether there are GPUs and every one of them looks like one of these."""
        return bool(self.gpus) and all(gpu.look in looks for gpu in self.gpus)

    @property
    def gpus_hidden(self) -> bool:
        """Whether some rank's GPU can't be read and may work. A rank in state D hangs in that driver itself."""
        hidden = (seen for seen in self.live if seen.features.gpu and seen.features.gpu.look is GpuLook.BLIND)
        return any(seen.features.state is not State.DISK for seen in hidden)

    @property
    def helped(self) -> bool:
        """Whether helpers of some rank were active lately: they delay a verdict and never veto it."""
        window_s = self.tuning.work_window_s
        times = [seen.features.helpers_s for seen in self.live]
        return any(at_s is not None and self.now_s - at_s < window_s for at_s in times)

    def times_before(self, signature: str, since_s: float) -> int:
        """How many restarts in a row have led back to this wait, at the same step."""
        known = self.lesson
        if known is None or (self.last_checkpoint_s or 0.0) > self.began_s:
            return 0
        return known.times if known.repeated_by(signature, self.step, since_s - self.began_s) else 0

    @property
    def unstarted(self) -> bool:
        """Whether the job has shown hardly any progress: its rate is unknown, and it has reported no step."""
        return not self.started and self.step is None

    @property
    def writing(self) -> bool:
        return Phase.CHECKPOINT in self.phases.values()
