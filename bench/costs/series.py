"""Cost of the series of ranks: CPU of an agent that makes minutes of its samples, and what a day of them takes on disk.

``python -m bench.costs.series [--workers N]``: a worker of eight ranks, each on a GPU whose figures vary as those of a
training do, sampled every two seconds for an hour; then that hour of N such workers in a file, put together as the
controller does once the hour is over. The file's growth is extrapolated to 1,000 such hosts and a day. Then a day of a
few of them, of which quarters of an hour are made, and what a user is answered of a job of 64 ranks.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.page.stores import Life, write_series
from bench.support.training import GPU_LOOKS, RankCounters

from holdfast._series.block import Block, pack, shifted, unpack
from holdfast._series.figures import Figure
from holdfast._series.joining import Joining, bands, joined, outliers
from holdfast.hang.pipeline.samples import GpuSample, ProcessSample, RankSample
from holdfast.hang.records.recording import WorkerSample
from holdfast_agent.core.series.worker import WorkerSeries
from holdfast_controller.shell.services.series import POINTS, _Question, _read
from holdfast_controller.shell.store.series.file import (
    DAY,
    EARLIER_S,
    HOUR,
    LATE_S,
    MINUTE,
    Limits,
    Piece,
    SeriesFile,
)

RANKS, LOOK_S = 8, 2
HOSTS = 1_000
ASKED_DAYS = (1, 6, 13, 30, 90)
KINDS = 24
"""Of hours: how much of its last page each one fills is chance."""
ON_PAGE = (Figure.STEP, Figure.GPU_UTIL, Figure.MEMORY_USED, Figure.POWER, Figure.CPU)
START = 1_790_000_000 // DAY * DAY


def samples(dice: random.Random) -> Iterator[tuple[int, WorkerSample]]:
    """(seconds, sample) of one worker for an hour."""
    counters = [RankCounters(dice, rank) for rank in range(RANKS)]
    seen: list[GpuSample | None] = [None] * RANKS
    for at in range(0, HOUR + LOOK_S, LOOK_S):
        saves = at % 600 < 20
        ranks = []
        for rank, counted in enumerate(counters):
            counted.go_on(LOOK_S, saves=saves)
            if at % 10 in GPU_LOOKS:
                seen[rank] = counted.gpu(float(at), saves=saves)
            ranks.append(RankSample(float(at), rank, ProcessSample(cpu_s=counted.cpu_s), gpu=seen[rank]))
        yield at, WorkerSample("bench", "workerpool0-0", 1, float(at), tuple(ranks))


def minutes(dice: random.Random) -> tuple[list[tuple[int, bytes]], float]:
    """(start, packed) of each minute of an hour, and the CPU seconds that making them took."""
    series, found, spent_s = WorkerSeries(), [], 0.0
    for at, sample in samples(dice):
        began = time.thread_time()
        for _, block in series.take(sample, START + at, at / 1.4):
            found.append((block.start, pack(block)))
        spent_s += time.thread_time() - began
    return found, spent_s


def stored(folder: Path, workers: int, made: Sequence[list[tuple[int, bytes]]]) -> tuple[int, int, float]:
    """Bytes of the file with minutes, and with the hour that they become; CPU seconds of that."""
    file = SeriesFile(folder / "series.db", reserve_bytes=0)
    limits = Limits(most_bytes=0, minutes_s=0)
    for worker in range(workers):
        own = made[worker % len(made)]
        file.write([Piece(f"job-{worker}", "workerpool0-0", 1, start, start + 60, data) for start, data in own])
    before = file.size()
    began = time.thread_time()
    while file.tidy(START + HOUR + LATE_S + 1, limits):
        pass
    spent_s = time.thread_time() - began
    after = file.size()
    file.close()
    return before, after, spent_s


def days_made(folder: Path, made: Sequence[list[tuple[int, bytes]]], workers: int = 4) -> tuple[int, float]:
    """Bytes of the quarters of an hour beside a worker's hours of a day, and CPU seconds of making them."""
    file = SeriesFile(folder / "series.db", reserve_bytes=0)
    limits = Limits(most_bytes=0, minutes_s=0)
    for worker in range(workers):
        for hour in range(24):
            own = [(start + hour * HOUR, data) for start, data in made[(worker + hour) % len(made)]]
            minutes = [
                (start, shifted(data, hour * HOUR)) for start, data in own if start < START + (hour + 1) * HOUR
            ]
            file.write([Piece(f"job-{worker}", "workerpool0-0", 1, at, at + 60, data) for at, data in minutes])
    while file.tidy(START + DAY + LATE_S + 1, limits):
        pass
    before, began = file.size(), time.thread_time()
    while file.tidy(START + DAY + EARLIER_S + 1, limits):
        pass
    spent_s, after = time.thread_time() - began, file.size()
    file.close()
    return (after - before) // workers, spent_s / workers


def asked_for(folder: Path, days: Sequence[int]) -> list[float]:
    """CPU seconds of the page's question for so many days of a job of 64 ranks, all answers; medians of three."""
    now = int(time.time())
    write_series(folder / "series.db", Life("train", now - max(days) * DAY, workers=64 // RANKS), now, max(days))
    file, found = SeriesFile(folder / "series.db", reserve_bytes=0), []
    for length in days:
        spent_s = []
        for _ in range(3):
            began, since = time.thread_time(), now - length * DAY
            following: int | None = since
            while following is not None:
                question = _Question(
                    "train", "", None, ON_PAGE, None, following, now + MINUTE, POINTS, 64, bands=True, banded=True
                )
                following = _read(file, question).following
            spent_s.append(time.thread_time() - began)
        found.append(sorted(spent_s)[1])
    file.close()
    return found


def asked(made: Sequence[list[tuple[int, bytes]]]) -> float:
    """CPU seconds of the page's question for a day of 64 ranks: five figures as bands.

    Made-up ranks are alike; of those that differ extremes would be read, too.
    """
    day: list[bytes] = []
    for start in range(START, START + DAY, HOUR):
        for worker in range(64 // RANKS):
            found = [unpack(data) for at, data in made[worker % len(made)] if at < START + HOUR]
            hour = joined(found, START, MINUTE, HOUR // MINUTE)
            own = {(worker * RANKS + rank, figure): track for (rank, figure), track in hour.tracks.items()}
            day.append(pack(Block(start, MINUTE, HOUR // MINUTE, own)))
    began = time.thread_time()
    joining = Joining(START, -(-DAY // POINTS // MINUTE) * MINUTE, POINTS, extremes=False)
    for data in day:
        joining.add(unpack(data, {*ON_PAGE, Figure.SAMPLES}, extremes=False))
    block = joining.block()
    for figure in ON_PAGE:
        bands(block, figure)
        outliers(block, figure)
    return time.thread_time() - began


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=200)
    workers = parser.parse_args().workers
    hours = [minutes(random.Random(seed)) for seed in range(KINDS)]
    made, agent_s = hours[0]
    size = sum(len(data) for _, data in made)
    print(
        f"agent: {agent_s / (HOUR / LOOK_S) * 1e6:.0f} us a look at {RANKS} ranks, {agent_s / HOUR:.3%} of a core"
    )
    print(f"a minute as it is sent: {size / len(made):.0f} bytes of {RANKS} ranks")
    with tempfile.TemporaryDirectory() as folder:
        before, after, fold_s = stored(Path(folder), workers, [found for found, _ in hours])
    query_s = asked([found for found, _ in hours])
    with tempfile.TemporaryDirectory() as folder:
        beside, day_s = days_made(Path(folder), [found for found, _ in hours])
    with tempfile.TemporaryDirectory() as folder:
        long_s = asked_for(Path(folder), ASKED_DAYS)
    rank_minutes = workers * RANKS * len(made)
    print(f"file: {before / rank_minutes:.1f} bytes a rank and minute while its hour lasts,", end=" ")
    print(f"{after / rank_minutes:.1f} after, {after / workers * 24 * HOSTS / 1e6:.0f} MB a day of {HOSTS:,} hosts")
    print(f"controller: {fold_s / workers * 1000:.0f} ms to put an hour of a worker together,", end=" ")
    print(f"{fold_s / workers * HOSTS / HOUR:.1%} of a core for {HOSTS:,} hosts")
    print(f"controller: {query_s * 1000:.0f} ms for a day of 64 ranks and {len(ON_PAGE)} figures, as the page asks")
    print(f"quarters of an hour beside: {beside * HOSTS / 1e6:.0f} MB a day of {HOSTS:,} hosts,", end=" ")
    print(f"{day_s * 1000:.0f} ms a worker and day, {day_s * HOSTS / DAY:.2%} of a core")
    for days, spent_s in zip(ASKED_DAYS, long_s, strict=True):
        print(f"controller: {spent_s:.2f} s for {days} days of a kept job of 64 ranks, as the page asks")


if __name__ == "__main__":
    main()
