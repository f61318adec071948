"""Debian's chromium before the page: what a person waits for, and what it takes of the tab."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.support.usage import is_of, private_mb, pss_mb

ASKS = """async ([path, times]) => {
    const found = [];
    for (let n = 0; n < times; n++) {
        const began = performance.now();
        const answer = await fetch(path.replace('{n}', n), { headers: { 'X-Holdfast': 'page' } });
        const size = (await answer.arrayBuffer()).byteLength;
        found.push([performance.now() - began, size, answer.status]);
    }
    return found;
}"""
PACKED = """async (path) => {
    performance.clearResourceTimings();
    const answer = await fetch(path, { headers: { 'X-Holdfast': 'page' } });
    await answer.arrayBuffer();
    await new Promise((done) => setTimeout(done, 50));
    return performance.getEntriesByName(new URL(path, location).href).at(-1).encodedBodySize;
}"""
PAINTED = """() => new Promise((done) => {
    const seen = new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime));
    seen.observe({ type: 'largest-contentful-paint', buffered: true });
    setTimeout(() => done(-1), 3000);
})"""


PAINTS = """async () => {
    const tasks = await new Promise((done) => {
        new PerformanceObserver((list) => done(list.getEntries())).observe({ type: 'longtask', buffered: true });
        setTimeout(() => done([]), 500);
    });
    const first = performance.getEntriesByName('first-contentful-paint')[0];
    return [first ? first.startTime : -1, Math.max(0, ...tasks.map((each) => each.duration))];
}"""
SCROLLS = """async (what) => {
    const box = document.querySelector(what);
    const frame = () => new Promise(requestAnimationFrame);
    const took = [];
    for (let n = 0, last = await frame(); n < 120; n++) {
        box.scrollTop += 240;
        const now = await frame();
        took.push(now - last);
        last = now;
    }
    return took;
}"""


@dataclass(frozen=True)
class Held:
    """What a tab holds: memory of its process in MB, with its share of what others have too, and what it is made of."""

    as_it_is_mb: float
    pss_mb: float
    private_mb: float
    heap_mb: float
    nodes: int
    listeners: int

    @property
    def words(self) -> str:
        """All but the first, to stand beside it."""
        return (
            f"without garbage {self.pss_mb:.0f}, its own {self.private_mb:.0f} MB, scripts {self.heap_mb:.1f} MB,"
            f" {self.nodes:,} nodes, {self.listeners:,} listeners"
        )


class Tab:
    """A signed-in browser with one tab."""

    def __init__(self, tools: Any, address: str) -> None:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"]
        self.browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        self.context = self.browser.new_context(viewport={"width": 1280, "height": 800}, ignore_https_errors=True)
        self.context.set_default_timeout(60_000)
        self.page = self.context.new_page()
        self.base = address.partition("/login")[0]
        self.page.goto(address)
        self.page.wait_for_url(f"{self.base}/")
        self.tools = self.context.new_cdp_session(self.page)
        self.tools.send("Performance.enable")

    def opened(self, path: str, shows: str) -> float:
        """Milliseconds from the navigation until ``shows`` is there."""
        began = time.monotonic()
        self.page.goto(self.base + path, wait_until="commit")
        self.page.locator(shows).first.wait_for()
        return 1000 * (time.monotonic() - began)

    def painted_ms(self) -> tuple[float, float]:
        """Of the page that was opened last: its first paint, and the longest time that its scripts held it up."""
        first, longest = self.page.evaluate(PAINTS)
        return float(first), float(longest)

    def packed(self, path: str) -> int:
        """Bytes of the answer to a path as they come over the network."""
        return int(self.page.evaluate(PACKED, path))

    def scrolled_ms(self, what: str) -> list[float]:
        """The time that each frame took while ``what`` was scrolled through."""
        return [float(each) for each in self.page.evaluate(SCROLLS, what)]

    def held(self) -> Held:
        """What the tab holds as it is, and once its garbage is collected."""
        as_it_is = self._process_mb()[0]
        for _ in range(2):
            self.tools.send("HeapProfiler.collectGarbage")
        found = {each["name"]: each["value"] for each in self.tools.send("Performance.getMetrics")["metrics"]}
        counted = self.tools.send("Memory.getDOMCounters")
        heap_mb = float(found["JSHeapUsedSize"]) / 1e6
        return Held(as_it_is, *self._process_mb(), heap_mb, counted["nodes"], counted["jsEventListeners"])

    def _process_mb(self) -> tuple[float, float]:
        """Memory of the tab's process, the largest renderer: with its share of what others have too, and its own."""
        found = [(0.0, 0.0)]
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if b"--type=renderer" in (folder / "cmdline").read_bytes() and is_of(os.getpid(), int(folder.name)):
                    found.append((pss_mb(int(folder.name)), private_mb(int(folder.name))))
        return max(found)


@contextlib.contextmanager
def tab(address: str) -> Iterator[Tab]:
    """Ends the browser afterwards."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        made = Tab(tools, address)
        yield made
        made.browser.close()


class Peak:
    """The most memory of some processes while it is open."""

    def __init__(self, **pids: int) -> None:
        self._pids, self.before = pids, {name: pss_mb(pid) for name, pid in pids.items()}
        self.most = dict(self.before)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for name, pid in self._pids.items():
                self.most[name] = max(self.most[name], pss_mb(pid))

    @property
    def words(self) -> str:
        return ", ".join(f"{name} {self.before[name]:.0f} → {self.most[name]:.0f} MB" for name in self._pids)
