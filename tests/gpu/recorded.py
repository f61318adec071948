"""Recordings of stories: how the detector reads each phase of one, and how it should."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast.hang.pipeline.features import GpuLook
from holdfast.hang.records import reader
from holdfast.hang.records.recording import WorkerSample, encode
from holdfast.hang.worker_watch import WorkerWatch

FIXTURES = Path(__file__).parents[1] / "fixtures" / "gpu"
READING_S = 5.0
SETTLES_S = 2 * READING_S
"""Utilisation is a mean over the time before a reading, and a power the mean between two."""
WORK, IDLE, SPIN, UNCLEAR = GpuLook.WORK, GpuLook.IDLE, GpuLook.SPIN, GpuLook.UNCLEAR
EXPECTED: dict[str, tuple[set[GpuLook], set[GpuLook]]] = {
    "idle": ({IDLE}, {IDLE}),
    "train": ({WORK}, {WORK}),
    "spin": ({SPIN}, {SPIN}),
    "compile": ({IDLE}, {IDLE}),
    # Its GPU copies now and then; the others wait for it as for a rank that is missing.
    "save": ({IDLE, UNCLEAR, WORK}, {SPIN}),
}
"""By phase: what the GPU of rank 0 may look like, and those of the others."""


@dataclass(frozen=True)
class Phase:
    """One phase of a story; times are the machine's monotonic clock."""

    phase: str
    began_s: float
    lasts_s: float


def phases_of(text: str) -> list[Phase]:
    """The phases as a rank wrote them down."""
    return [Phase(**json.loads(line)) for line in text.splitlines()]


def looks(samples: Iterable[WorkerSample], phases: list[Phase]) -> dict[tuple[int, int], Counter[GpuLook]]:
    """By (number of the phase, rank): how the GPU looked in it, a count for each sample."""
    found: dict[tuple[int, int], Counter[GpuLook]] = {}
    watch = WorkerWatch("host", 1)
    for sample in samples:
        features = watch.take(sample)
        for number, phase in enumerate(phases):
            if phase.began_s + SETTLES_S <= sample.at_s < phase.began_s + phase.lasts_s:
                for rank in features.ranks:
                    if rank.gpu is not None:
                        found.setdefault((number, rank.rank), Counter())[rank.gpu.look] += 1
    return found


def misread(samples: Iterable[WorkerSample], phases: list[Phase], ranks: int) -> list[str]:
    """Each phase and rank whose GPU mostly looked other than it should, in words; empty where all is as expected.

    The first training teaches the detector how this GPU looks at work, so it isn't judged.
    """
    found = looks(samples, phases)
    wrong = []
    first = next(number for number, phase in enumerate(phases) if phase.phase == "train")
    for number, phase in enumerate(phases):
        for rank in range(ranks):
            seen = found.get((number, rank), Counter())
            expected = EXPECTED[phase.phase][min(rank, 1)]
            if number != first and (not seen or seen.most_common(1)[0][0] not in expected):
                looked = ", ".join(f"{look.value} {count}" for look, count in seen.items()) or "never read"
                wrong.append(f"phase {number} ({phase.phase}) rank {rank}: {looked}")
    return wrong


def keep(name: str, folder: Path, samples: Iterable[WorkerSample], phases: list[Phase], about: object) -> None:
    """Write a fixture: the recording, and what was done when on which GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
        file.writelines(f"{encode(sample)}\n" for sample in samples)
    told = {"about": about, "phases": [vars(phase) for phase in phases]}
    (folder / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")


def kept(name: str, folder: Path = FIXTURES) -> tuple[list[WorkerSample], list[Phase]]:
    """A fixture that ``keep`` wrote."""
    told = json.loads((folder / f"{name}.json").read_text())
    return list(reader.read(folder / f"{name}.jsonl.gz")), [Phase(**phase) for phase in told["phases"]]
