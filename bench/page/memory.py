"""What a tab holds: each page beside an empty one, after 200 ways between them, and after an hour of changes."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from bench.hollow.figures import Figures
from bench.page.stores import Life, ended_jobs, fill, serving
from bench.page.tab import Tab, tab
from bench.support.report import progress

PAGES = {
    "overview": ("/", ".summary"),
    "jobs": ("/jobs", ".joblist .row:not(.head)"),
    "job": ("/jobs/train", ".strip g > rect"),
    "ranks": ("/jobs/train?tab=ranks", "[data-tab=ranks] .row:not(.head)"),
    "exits": ("/jobs/train?tab=exits", "[data-tab=exits] td"),
    "events": ("/jobs/train?tab=events", "[data-tab=events] > *"),
    "hosts": ("/hosts", "main .page a[href^='/hosts/']"),
    "host": ("/hosts/node-0001", "main .page h1"),
    "goodput": ("/goodput", "main .page h1"),
    "schedules": ("/schedules", "main .page h1"),
    "admin": ("/admin", "main .page h1"),
}
GOES = """(path) => {
    history.pushState(null, '', path);
    dispatchEvent(new Event('holdfast:route'));
}"""
"""As a link does it."""
ENDS_AT_ONCE = {"status": 200, "content_type": "text/event-stream", "body": ": nothing yet\n\n"}
"""The stream of changes, cut: the page then asks for all it shows anew, and for the stream a second later."""


def memory(directory: Path, ways: int, updates: int, figures: Figures) -> None:
    """A cluster of eight hosts, a job of 64 ranks that was relaunched 20 times, and 2,000 that have ended."""
    now = time.time()
    lives = [*ended_jobs(2_000, now), Life("train", now - 7200, 8, [now - 7000 + 300 * n for n in range(20)])]
    cluster, address = asyncio.run(serving(directory, lambda database: fill(database, 8, iter(lives))))
    progress("the store is there")
    try:
        with tab(address) as seen:
            seen.page.goto("about:blank")
            seen.page.wait_for_timeout(1000)
            _add(figures, "about:blank", seen)
            for name, (path, shows) in PAGES.items():
                seen.page.goto("about:blank")
                seen.opened(path, shows)
                seen.page.wait_for_timeout(1000)
                _add(figures, name, seen)
        with tab(_again(cluster)) as seen:
            _ways(seen, ways, figures)
        with tab(_again(cluster)) as seen:
            _updates(seen, updates, figures)
    finally:
        asyncio.run(cluster.close())


def _again(cluster: object) -> str:
    async def address() -> str:
        async with cluster.client() as client:  # type: ignore[attr-defined]
            return str(await client.web.address())

    return asyncio.run(address())


def _add(figures: Figures, what: str, seen: Tab) -> None:
    held = seen.held()
    figures.add(f"tab: {what}", "MB", [held.as_it_is_mb], cost=held.words, aim=150)
    progress(f"{what}: {held.as_it_is_mb:.0f} MB, {held.words}")


def _ways(seen: Tab, ways: int, figures: Figures) -> None:
    """Go from page to page within one document."""
    order = itertools.cycle(PAGES.values())
    for number in range(ways):
        path, shows = next(order)
        seen.page.evaluate(GOES, path)
        seen.page.locator(shows).first.wait_for()
        if number + 1 in (2 * len(PAGES), ways):
            seen.page.evaluate(GOES, "/schedules")
            seen.page.wait_for_timeout(1500)
            _add(figures, f"after {number + 1} ways", seen)


def _updates(seen: Tab, updates: int, figures: Figures) -> None:
    """A job's page and the overview, each told to show all anew once a second of a clock that runs by itself."""
    for name in ("job", "overview", "jobs"):
        path, shows = PAGES[name]
        seen.page.clock.install()
        seen.page.route("**/v1/changes*", lambda route: route.fulfill(**ENDS_AT_ONCE))
        seen.opened(path, shows)
        for number in range(updates):
            seen.page.clock.run_for(1000)
            seen.page.wait_for_load_state("networkidle") if number % 50 == 49 else seen.page.wait_for_timeout(20)
            if number + 1 in (60, updates):
                _add(figures, f"{name}, after {number + 1} seconds of changes", seen)
