"""Samples that an agent takes of one worker at one time, and their form in a file: one JSON object a line.

A record holds only what differs from the default, so that an idle worker costs little. Times are seconds on the
sender's monotonic clock. A field that a reader doesn't know is an error: records are made to be replayed exactly.
"""

from __future__ import annotations

import json

from holdfast._base.codec import Format, from_plain, to_plain
from holdfast._base.dataclass import dataclass
from holdfast.errors import HoldfastError
from holdfast.hang.pipeline.samples import RankSample
from holdfast.hang.thresholds import HangSettings
from holdfast.training.rank_progress import RankProgress

FORMAT = 1
_FORM = Format(without_defaults=True, digits=4)


class RecordingError(HoldfastError):
    """A line that is no record of this version; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a rank's output, without its end; long ones are cut."""

    rank: int
    # "out" or "err".
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class SavedFiles:
    """Files that the worker's processes have open for writing. A time is None while none has been seen to grow."""

    checkpoint_open: bool = False
    # When a checkpoint was last seen to have grown.
    checkpoint_grew_s: float | None = None
    # The same of TensorBoard's event files.
    events_grew_s: float | None = None
    # The same of any other regular file outside the log directory.
    other_grew_s: float | None = None
    # The checkpoint that grew last.
    path: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """All that was read of one worker at one time. ``lines`` are those since the sample before.

    Without ``ranks`` it is a last look at what they have said, as one of them has ended.
    """

    job: str
    worker: str
    generation: int
    at_s: float
    ranks: tuple[RankSample, ...] = ()
    lines: tuple[LogLine, ...] = ()
    # Output that came too fast to be read, in bytes since the sample before.
    skipped_bytes: int = 0
    files: SavedFiles = SavedFiles()
    progress: tuple[RankProgress, ...] = ()
    # The job's own, in the first of some samples of a file, so that a replay judges as the job was judged.
    settings: HangSettings | None = None
    # Ranks of a world that began and ends on this worker, apart from the rest of its job; 0 where there is none.
    own_world: int = 0

    @property
    def idle_reason(self) -> str:
        """Why some rank declares itself idle; empty when none does."""
        return next((said.idle_reason for said in self.progress if said.idle_reason is not None), "")


def encode(sample: WorkerSample) -> str:
    """The sample as one line, without its end."""
    return json.dumps({"v": FORMAT, **to_plain(sample, _FORM)}, ensure_ascii=False, separators=(",", ":"))


def decode(line: str) -> WorkerSample:
    """The sample that a line holds. Raises ``RecordingError``."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"no record: {error}") from error
    version = record.pop("v", None) if isinstance(record, dict) else None
    if version is None:
        raise RecordingError("no record: it names no version, as each line that holdfast hang record writes does")
    if version != FORMAT:
        raise RecordingError(f"a record of version {version}; this program reads {FORMAT}")
    try:
        return from_plain(WorkerSample, record, _FORM)
    except ValueError as error:
        raise RecordingError(str(error)) from error
