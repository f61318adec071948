"""The last quarter of an hour of every worker's samples, on disk, so that a hang's beginning is never missed.

Two files for each worker, in its own directory: ``samples.jsonl.gz`` and, once that holds a quarter of an hour, the
one before. They survive the agent, but for its last minute if it was killed, and go with the worker.
"""

from __future__ import annotations

from pathlib import Path

from holdfast._daemon import log
from holdfast._session.reports import WorkerId
from holdfast.hang.records.recorder import Recorder, older
from holdfast.hang.records.recording import WorkerSample
from holdfast_agent.shell.sampling.listeners import bounded

KEPT_S = 900.0
"""At least; twice as much at most."""
FLUSH_EVERY_S = 60.0
BASE_BYTES, RANK_BYTES = 256 << 10, 48 << 10
"""Of one file: a rank's quarter of an hour takes 24 to 54 KiB, of which its lines may take as much again."""
MOST_BYTES = 5 << 18
"""Of one file: both travel in one message."""
LINES_BYTES = 4 << 10
"""Of the output in one sample, for each rank: the newest lines."""


class _Ring:
    def __init__(self, path: Path, ranks: int, now_s: float) -> None:
        self.recorder = Recorder(path, 2 * min(BASE_BYTES + RANK_BYTES * ranks, MOST_BYTES))
        self.flushed_s = now_s

    def write(self, sample: WorkerSample) -> None:
        began_s = self.recorder.began_s
        if began_s is not None and sample.at_s - began_s >= KEPT_S:
            self.recorder.split()
        self.recorder.write(bounded(sample, LINES_BYTES * max(1, len(sample.ranks))))
        if sample.at_s - self.flushed_s >= FLUSH_EVERY_S:
            self.flushed_s = sample.at_s
            self.recorder.flush()


class SampleHistory:
    """The histories of one host. ``workers`` is the directory of the workers' own directories."""

    def __init__(self, workers: Path) -> None:
        self._workers = workers
        self._rings: dict[WorkerId, _Ring] = {}
        self._failing = False

    def on_sample(self, sample: WorkerSample) -> None:
        """Keep one. What can't be written is missing; that is logged once."""
        key = WorkerId(sample.job, sample.worker)
        ring = self._rings.get(key)
        if ring is None:
            if not sample.ranks:
                return  # it has ended before its first sample
            ring = self._rings[key] = _Ring(self._path(key), len(sample.ranks), sample.at_s)
        try:
            ring.write(sample)
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("history.write_failed", worker=str(key), error=str(error))
            self._failing = True

    def read(self, key: WorkerId) -> bytes:
        """All that is kept of a worker: gzip members of whole lines, oldest first. Empty where there is nothing."""
        self._flush(key)
        path = self._path(key)
        return b"".join(_content(each) for each in (older(path), path))

    def forget(self, key: WorkerId) -> None:
        """Let go of a worker whose directory is removed."""
        self._rings.pop(key, None)

    def close(self) -> None:
        """Write everything down."""
        for key in self._rings:
            self._flush(key)

    def _flush(self, key: WorkerId) -> None:
        ring = self._rings.get(key)
        try:
            if ring is not None:
                ring.recorder.flush()
        except OSError as error:
            log.warning("history.write_failed", worker=str(key), error=str(error))

    def _path(self, key: WorkerId) -> Path:
        return self._workers / key.job / key.worker / "samples.jsonl.gz"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
