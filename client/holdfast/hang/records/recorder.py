"""Keeps workers' samples in files: gzipped JSON lines, bounded, readable up to the last part after a crash.

The newest samples are what counts, so a file is two: when ``PATH`` has reached half its bound it becomes
``PATH.1``, in place of the one before. ``holdfast.hang.records.reader`` reads them.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.hang.records.recording import RecordingError, WorkerSample, decode, encode
from holdfast.hang.thresholds import HangSettings

LIMIT_BYTES = 64 << 20
PART_BYTES = 64 << 10
"""Text gathered before it is compressed; each part is a gzip member of its own."""
SETTINGS_EVERY = 256
"""Samples from one that carries the job's settings to the next, so that the newer half of a split file has them too."""
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Recorder:
    """Writes samples to ``path``. Blocks for a disk write once per part, about every half minute."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES, part_bytes: int = PART_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._part_bytes = part_bytes
        self._lines: list[str] = []
        self._size = 0
        self._gathered_s = 0.0
        self.began_s: float | None = None
        """Time of the first sample that went into the current file; None before that."""

    def write(self, sample: WorkerSample) -> None:
        """Keep one. Raises ``OSError``, and has let go of what it could not write."""
        line = encode(sample) + "\n"
        if not self._lines:
            self._gathered_s = sample.at_s
            self.began_s = sample.at_s if self.began_s is None else self.began_s
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._part_bytes:
            self.flush()

    def split(self) -> None:
        """Begin a new file; the one so far becomes the older half. Raises ``OSError``."""
        self.flush()
        self.began_s = None
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._path, older(self._path))

    def flush(self) -> None:
        """Write what was gathered. Raises ``OSError``."""
        if not self._lines:
            return
        data = gzip.compress("".join(self._lines).encode("utf-8", "replace"), compresslevel=6)
        self._lines.clear()
        self._size = 0
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(handle).st_size + len(data) > self._limit_bytes // 2:
                os.replace(self._path, older(self._path))
                self.began_s = self._gathered_s
                os.close(handle)
                handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.write(handle, data)
        finally:
            os.close(handle)

    close = flush


def older(path: Path) -> Path:
    """Path of the first half of a recording once it has been split."""
    return path.with_name(f"{path.name}.1")


@dataclass
class WorkerFile:
    """One worker's recording, and what it holds. Times are those of its host's monotonic clock."""

    worker: str
    host: str
    path: Path
    recorder: Recorder
    first_s: float
    last_s: float
    generation: int = 0
    samples: int = 0
    moved: bool = False

    def size(self) -> int:
        """Size of the recording on disk in bytes, both halves together."""
        return sum(path.stat().st_size for path in (self.path, older(self.path)) if path.exists())


class JobRecording:
    """Writes a job's samples into ``folder``, a file for each worker. Raises ``HoldfastError`` where it can't."""

    def __init__(self, folder: Path, job: str, settings: HangSettings) -> None:
        self.folder = folder
        self.job = job
        self._settings = settings
        self.files: dict[str, WorkerFile] = {}

    def __enter__(self) -> JobRecording:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            taken = next(self.folder.glob("*.jsonl.gz*"), None)
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        if taken is not None:
            raise HoldfastError(f"{taken} is there already.", fix="Name another folder with --out.")
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            with _told(file.path):
                file.recorder.close()
        with contextlib.suppress(OSError):
            self.folder.rmdir()  # where nothing came

    def keep_file(self, name: str, content: bytes) -> None:
        """Write another file into the folder. Raises ``HoldfastError`` where it can't."""
        path = self.folder / name
        with _told(path):
            path.write_bytes(content)

    @property
    def in_order(self) -> list[WorkerFile]:
        """The files in the order of their workers, ``workerpool0-9`` before ``workerpool0-10``."""
        return sorted(self.files.values(), key=lambda file: [int(n) for n in re.findall(r"\d+", file.worker)])

    def take(self, worker: str, host: str, data: bytes) -> str:
        """Whole lines of that worker; why they are not kept, once. Raises ``RecordingError`` for others' lines.

        A host that is asked again sends its last quarter of an hour again; what is there already is passed over. A
        recording is on one clock, so it ends for a worker that moves to another host.
        """
        for line in data.decode(errors="replace").splitlines():
            sample = decode(line)
            if (sample.job, sample.worker) != (self.job, worker) or not _WORKER.fullmatch(worker):
                raise RecordingError(f"{host} sent a sample of {sample.worker} of job {sample.job} as {worker}'s.")
            file = self.files.get(worker)
            if file is None:
                path = self.folder / f"{worker}.jsonl.gz"
                file = self.files[worker] = WorkerFile(worker, host, path, Recorder(path), sample.at_s, sample.at_s)
            if file.host != host:
                first, file.moved = not file.moved, True
                return f"it has moved from {file.host} to {host}; its recording ends here" if first else ""
            if file.samples and (sample.generation, sample.at_s) <= (file.generation, file.last_s):
                continue
            if file.samples % SETTINGS_EVERY == 0:
                sample = replace(sample, settings=self._settings)
            file.samples += 1
            file.generation, file.last_s = sample.generation, sample.at_s
            with _told(file.path):
                file.recorder.write(sample)
        return ""


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> HoldfastError:
    return HoldfastError(
        f"{path} can't be written: {error.strerror or error}.", fix="Name another folder with --out."
    )
