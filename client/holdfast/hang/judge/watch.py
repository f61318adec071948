"""A job's past as the detector remembers it between two looks: one value, journalled as it is. ``state`` changes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge.finding import Finding
from holdfast.hang.judge.stages import Rung
from holdfast.hang.pipeline.phase import Phase
from holdfast.hang.pipeline.progress_rate import ProgressRate


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


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One suspected hang, from the first finding to its end."""

    since_s: float
    finding: Finding
    diagnosis: Diagnosis | None = None
    told_would_act: bool = False
    # When its newest dumps were ordered; None while others were taken too short a time ago.
    asked_s: float | None = None
    # Since when one of its ranks is seen to move, if it is: a single wake-up ends no hang.
    moves_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobWatch:
    """The detector's state for one job in one generation. Times as in ``verdict``."""

    began_s: float
    seen_s: float
    output: ProgressRate
    # How long the start-up of an earlier generation took; None in the first.
    earlier_start_s: float | None = None
    # What each worker did at the last look.
    phases: Mapping[str, Phase] = field(default_factory=dict)
    started_s: float | None = None
    # When all GPUs first worked: with output too rare for a rate, some minutes later start-up is over.
    first_work_s: float | None = None
    # The silence or the wait that the user was notified of, by its beginning: one notice for each.
    told_of_s: float | None = None
    # When something was last seen to move.
    moved_s: float = 0.0
    # Since when all ranks have stood still; and since when nothing was printed meanwhile either.
    stood_since_s: float | None = None
    still_since_s: float | None = None
    # The longest time that they did so and went on by themselves.
    still_longest_s: float = 0.0
    # Whether something outside the job could have ended the stillness, and the longest one of that kind.
    still_external: bool = False
    external_longest_s: float = 0.0
    # Since when some rank works while all its peers wait and nothing is printed, and the longest time of that kind.
    lone_since_s: float | None = None
    lone_longest_s: float = 0.0
    rung: Rung = Rung.HEALTHY
    suspicion: Suspicion | None = None
    # Stack dumps: how many in a row, the last one's time, and the ranks whose changing frames it showed.
    dumps: int = 0
    dumped_s: float | None = None
    by_frames: frozenset[tuple[str, int]] = frozenset()
    hold_until_s: float | None = None
    # The hang that the last generation was restarted for.
    lesson: Lesson | None = None
    # Why this hang is left as it is; empty where it isn't.
    given_up: str = ""
