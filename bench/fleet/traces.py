"""Traces: jobs with their arrival, size and run time, as a cluster has recorded them.

A trace is a CSV file, gzipped or not, with a head line. It has the columns ``submit_s``, ``duration_s`` and ``gpus``;
``user``, ``vc`` (the project) and ``limit_s`` (the run time that the user declared) where the cluster recorded them.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path


class BadTrace(Exception):
    """The file is no trace; the message names the line and the column."""


@dataclass(frozen=True)
class Request:
    """What a scheduler may know of a job when it is submitted. Times in seconds, from the trace's first."""

    name: str
    at: float
    gpus: int
    user: str = ""
    project: str = "default"
    declared_s: float | None = None
    spot: bool = False


@dataclass(frozen=True)
class Trace:
    """Jobs in the order of their arrival. ``durations`` are for the simulation, and not for a policy."""

    name: str
    requests: tuple[Request, ...]
    durations: dict[str, float] = field(repr=False)

    @property
    def gpu_s(self) -> float:
        """GPU seconds of all jobs."""
        return sum(asked.gpus * self.durations[asked.name] for asked in self.requests)

    def hosts(self, gpus_each: int) -> int:
        """A fleet on which this trace is busy: a seventh above its mean demand, and enough for its largest gang."""
        first, last = self.requests[0].at, self.requests[-1].at
        mean = self.gpu_s / max(last - first, 1.0)
        return max(math.ceil(mean * 8 / 7 / gpus_each), *(-(-asked.gpus // gpus_each) for asked in self.requests))

    def shaken(self, seed: int, spot_share: float) -> Trace:
        """The trace with arrivals up to ten minutes later and run times about 5 % off; seed 0 leaves them as they are.

        So large a part of its jobs is SPOT, drawn by the seed.
        """
        dice, drawn = random.Random(seed), random.Random(f"spot {max(seed, 1)}")
        requests, durations = [], {}
        for asked in self.requests:
            late, times = (dice.uniform(0, 600), math.exp(dice.gauss(0, 0.05))) if seed else (0.0, 1.0)
            spot = drawn.random() < spot_share
            requests.append(
                Request(asked.name, asked.at + late, asked.gpus, asked.user, asked.project, asked.declared_s, spot)
            )
            durations[asked.name] = self.durations[asked.name] * times
        return Trace(self.name, tuple(sorted(requests, key=lambda asked: asked.at)), durations)


def read(path: Path, most: int | None = None) -> Trace:
    """The first ``most`` jobs of a trace. Raises ``BadTrace``."""
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as lines:
        requests, durations = [], {}
        for request, duration in _rows(csv.DictReader(lines), path):
            requests.append(request)
            durations[request.name] = duration
    requests.sort(key=lambda asked: asked.at)
    requests = requests[:most]
    if not requests:
        raise BadTrace(f"{path}: it has no jobs")
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    return Trace(name, tuple(requests), {asked.name: durations[asked.name] for asked in requests})


def merged(traces: Sequence[Trace]) -> Trace:
    """Several clusters as one fleet, from their first jobs on."""
    requests, durations = [], {}
    for number, trace in enumerate(traces):
        for asked in trace.requests:
            name = f"{asked.name}-{number}"
            requests.append(replace(asked, name=name))
            durations[name] = trace.durations[asked.name]
    requests.sort(key=lambda asked: asked.at)
    return Trace(" and ".join(trace.name for trace in traces), tuple(requests), durations)


def _rows(rows: csv.DictReader[str], path: Path) -> Iterator[tuple[Request, float]]:
    missing = {"submit_s", "duration_s", "gpus"} - set(rows.fieldnames or ())
    if missing:
        raise BadTrace(f"{path}: its first line names no column {', '.join(sorted(missing))}")
    for number, row in enumerate(rows):
        try:
            at, duration, gpus = float(row["submit_s"]), float(row["duration_s"]), int(row["gpus"])
            limit = row.get("limit_s")
            declared = float(limit) if limit else None
        except (TypeError, ValueError) as problem:
            raise BadTrace(f"{path} line {rows.line_num}: {problem}") from None
        if not (math.isfinite(at) and math.isfinite(duration)) or duration <= 0 or gpus < 1:
            raise BadTrace(
                f"{path} line {rows.line_num}: a job needs a time, a run time above 0 and a GPU at least"
            )
        user, project = row.get("user") or "ann", row.get("vc") or "default"
        yield Request(f"j{number:06}", at, gpus, user, project, declared), duration
