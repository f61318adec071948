"""Replays recorded times of mini-batches: workers that don't keep in step, each with its own steps.

The file has mini-batch times of alibaba/clusterdata (cluster-trace-gpu-v2020, CC BY 4.0): ``job, worker, gpu_pct,
iteration, batch_time_norm``. It names no hosts and no unit; a batch is taken as so many milliseconds, and each worker
as on a host of its own, so that only its own steps can speak for or against it.
"""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast_controller.core.model.slowness import SlowWatch
from holdfast_controller.core.slowness.judge import judge
from holdfast_controller.core.slowness.pace import Look
from holdfast_controller.core.slowness.signs import signs_of
from holdfast_controller.core.slowness.thresholds import TUNING

LOOK_S = 10.0


@dataclass(frozen=True)
class Worker:
    """Times at which it had done so many steps."""

    at_s: list[float]
    steps: list[float]


def read(path: Path) -> dict[int, dict[int, Worker]]:
    """By job, by worker."""
    batches: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(path, "rt") as lines:
        for row in csv.DictReader(lines):
            batches[int(row["job"]), int(row["worker"])].append(
                (float(row["iteration"]), float(row["batch_time_norm"]))
            )
    jobs: dict[int, dict[int, Worker]] = defaultdict(dict)
    for (job, number), found in batches.items():
        found.sort()
        at_s, times, steps, before = 0.0, [], [], 0.0
        for iteration, batch in found:
            # Each row stands for the batches since the row before.
            at_s, before = at_s + (iteration - before) * batch / 1000, iteration
            times.append(at_s)
            steps.append(iteration)
        jobs[job][number] = Worker(times, steps)
    return jobs


def replay(workers: dict[int, Worker]) -> tuple[float | None, dict[int, int], int]:
    """(When it was first called slow, in how many slow slots each worker's own steps stood out, ranks named)."""
    watch, first, stood, named = SlowWatch(), None, defaultdict[int, int](int), 0
    ends_s = sorted(worker.at_s[-1] for worker in workers.values())[-2]
    for tick in range(1, int(ends_s // LOOK_S)):
        now = tick * LOOK_S
        times = {}
        for number, worker in workers.items():
            place = bisect_right(worker.at_s, now) - 1
            if place >= 0 and now < worker.at_s[-1]:
                counted = RankTimes(seen_s=now, looks=tick * 5, step=worker.steps[place], step_s=worker.at_s[place])
                times[number] = (f"h{number}", now, counted)
        step = max((counted.step or 0.0 for _, _, counted in times.values()), default=0.0)
        found = judge(watch, Look(now, step, apart=False, times=times), 1)
        if found.slow is None:
            continue
        first = first or now
        named += len(found.slow.named)
        lost = 1 - found.slow.best_ms / found.slow.recent_ms
        for rank in signs_of(watch.slots[-1].ranks, watch.usual, lost, frozenset(), TUNING):
            stood[rank] += 1
    return first, dict(stood), named


def table(path: Path) -> str:
    """All jobs of the file."""
    lines = ["| job | workers | median batch, least to most | called slow after s | own steps stood out | named |"]
    lines += ["|---|---|---|---|---|---|"]
    for job, workers in sorted(read(path).items()):
        first, stood, named = replay(workers)
        medians = sorted(
            median(
                (b - a) / (d - c)
                for a, b, c, d in zip(w.at_s, w.at_s[1:], w.steps, w.steps[1:], strict=False)
                if d > c
            )
            for w in workers.values()
        )
        who = ", ".join(f"{rank} ({slots})" for rank, slots in sorted(stood.items(), key=lambda item: -item[1])[:5])
        spread = f"{1000 * medians[0]:.0f} to {1000 * medians[-1]:.0f}"
        lines.append(f"| {job} | {len(workers)} | {spread} | {first or 'never'} | {who or 'none'} | {named} |")
    return "\n".join(lines)
