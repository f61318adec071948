"""One look at a whole job: every worker's newest vector beside what the job's past says; what the rules judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from holdfast._base.dataclass import dataclass
from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge.watch import JobWatch
from holdfast.hang.pipeline.features import GpuFeatures, GpuLook, Motion, RankFeatures
from holdfast.hang.pipeline.phase import Phase
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


@dataclass(frozen=True)
class View:
    """All that is known of a job at one time: the past in ``watch``, and the newest vectors. The reader's clock."""

    now_s: float
    tuning: Tuning
    ranks: tuple[Seen, ...]
    watch: JobWatch
    # How long start-up may take while every rank is blocked.
    startup_limit_s: float
    # What each worker does now.
    phases: Mapping[str, Phase] = field(default_factory=dict)
    # Workers not heard of lately.
    unseen: tuple[str, ...] = ()
    last_checkpoint_s: float | None = None
    # The highest step that any worker has reported in this generation.
    step: float | None = None
    # The program reports its progress itself.
    reported: bool = False
    # Stack dumps of this suspicion may still come.
    dumps_awaited: bool = True
    # Ranks whose changing frames still count as work.
    by_frames: frozenset[tuple[str, int]] = frozenset()
    counts: Counts | None = None
    # The highest step that each worker has reported, if it reports any.
    steps: Mapping[str, float] = field(default_factory=dict)

    @property
    def started(self) -> bool:
        """Whether start-up is over: the output has a known rate, or work has been going on for long."""
        return self.watch.started_s is not None

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The newest one of this suspicion."""
        return self.watch.suspicion.diagnosis if self.watch.suspicion else None

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
        return max([self.watch.output.last_s, *(at_s for at_s in times if at_s is not None)])

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
        known = self.watch.lesson
        if known is None or (self.last_checkpoint_s or 0.0) > self.watch.began_s:
            return 0
        return known.times if known.repeated_by(signature, self.step, since_s - self.watch.began_s) else 0

    @property
    def unstarted(self) -> bool:
        """Whether the job has shown hardly any progress: its rate is unknown, and it has reported no step."""
        return not self.started and self.step is None

    @property
    def writing(self) -> bool:
        return Phase.CHECKPOINT in self.phases.values()
