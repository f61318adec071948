"""Pages of large jobs: relaunched 500 times within 90 days, with their series, and one of 8,192 ranks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from bench.hollow.figures import Figures
from bench.page.stores import Life, fill, serving, write_series
from bench.page.tab import ASKS, Tab, tab
from bench.support.report import progress

from holdfast_controller.shell.store.series.file import DAY

ASKED = "performance.getEntriesByType('resource').map((each) => each.name)"
RANKS = "[data-tab=ranks] .row:not(.head)"
DRAWN = ".strip g > rect"


def long(directory: Path, times: int, days: int, figures: Figures) -> None:
    """A job of 64 ranks that has run for so many days, and was relaunched so often: its page."""
    now = time.time()
    begin = now - days * DAY
    life = Life(
        "train", begin, workers=8, relaunches=[begin + (n + 1) * days * DAY / (times + 1) for n in range(times)]
    )

    def made(database: Path) -> None:
        fill(database, 8, iter([life]))
        progress(f"{times} relaunches are in the store")
        write_series(database.with_name("series.db"), life, now, days)

    what = f"{times} relaunches of 64 ranks in {days} days"

    def looked(seen: Tab) -> None:
        _opened(seen, figures, f"{what}: timeline and charts", "/jobs/train", ".charts figure")
        _answers(seen, figures, what)
        figures.add(
            f"{what}: memory of the tab", "MB", [(held := seen.held()).as_it_is_mb], aim=150, cost=held.words
        )
        _opened(seen, figures, f"{what}: exits", "/jobs/train?tab=exits", "[data-tab=exits] td")
        _opened(seen, figures, f"{what}: all exits", "/jobs/train?tab=exits&exits=all", "[data-tab=exits] td")
        held = seen.held()
        figures.add(f"{what}: memory of the tab with all exits", "MB", [held.as_it_is_mb], aim=150, cost=held.words)

    _before(directory, made, looked)


def wide(directory: Path, workers: int, figures: Figures) -> None:
    """A job on so many hosts, eight ranks on each, that was relaunched twice: its page."""
    now = time.time()
    life = Life("train", now - 7200, workers=workers, relaunches=[now - 5000, now - 3000])
    what = f"{8 * workers:,} ranks"

    def looked(seen: Tab) -> None:
        _opened(seen, figures, f"{what}: the job", "/jobs/train", DRAWN)
        _answers(seen, figures, what)
        _opened(seen, figures, f"{what}: its ranks", "/jobs/train?tab=ranks", RANKS)
        took = seen.scrolled_ms("[data-tab=ranks] .windowed")
        figures.add(f"{what}: a frame, while ranks are scrolled through", "ms", took, aim=100)
        figures.add(
            f"{what}: memory of the tab", "MB", [(held := seen.held()).as_it_is_mb], aim=150, cost=held.words
        )
        _opened(seen, figures, f"{what}: exits", "/jobs/train?tab=exits", "[data-tab=exits] td")

    _before(directory, lambda database: fill(database, workers, iter([life])), looked)


def _before(directory: Path, made: Callable[[Path], None], looked: Callable[[Tab], None]) -> None:
    cluster, address = asyncio.run(serving(directory, made))
    try:
        with tab(address) as seen:
            looked(seen)
    finally:
        asyncio.run(cluster.close())


def _opened(seen: Tab, figures: Figures, what: str, path: str, shows: str) -> None:
    took, paints = [], []
    for _ in range(5):
        took.append(seen.opened(path, shows))
        paints.append(seen.painted_ms())
    first, longest = (max(each) for each in zip(*paints, strict=True))
    beside = f"first paint {first:.0f} ms, longest task {longest:.0f} ms"
    figures.add(f"{what}: opened", "ms", took, aim=1000, cost=beside)


def _answers(seen: Tab, figures: Figures, what: str) -> None:
    """What the controller takes for each answer that the page asked for."""
    asked = dict.fromkeys(path for path in seen.page.evaluate(ASKED) if "/v1/jobs/" in path)
    for path in asked:
        took = seen.page.evaluate(ASKS, [path, 5])
        kilobytes = max(size for _, size, _ in took) / 1e3
        name = path.removeprefix(seen.base).partition("?")[0]
        figures.add(f"{what}: {name}", "ms", [each for each, _, _ in took], aim=150, cost=f"{kilobytes:,.0f} kB")
