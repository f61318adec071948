"""The web page before what is large: a log of a GB, a list of 100,000 jobs, a job that was relaunched 500 times.

In Debian's chromium before a real controller: what a person waits for, from the click until it is drawn, and what it
takes of the tab, the controller and the agent. Needs chromium and ``pip install playwright``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from bench.hollow.cluster import HollowCluster
from bench.hollow.figures import Figures
from bench.scale_core import fill_with_ended, stage
from bench.scale_rows import RANKS_PER_HOST, gang
from bench.support.cluster import DevCluster, dev_cluster, holdfast, work_directory
from bench.support.report import framed, progress
from bench.support.usage import pss_mb

from holdfast import spec
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.commands import JobSubmission, RestartAsked
from holdfast_controller.shell.convert.gang_from_spec import gang_of

PRINTS = """
import sys, time
size, line, at = int(sys.argv[1]), 0, 0
while at < size:
    rest = "of 99999999  loss 0.1234  samples/s 18612.5  lr 0.00030  grad 1.0031  mem 71.3 GiB"
    part = "".join(f"step {n:9d} {rest}\\n" for n in range(line, line + 10000))
    if at < size // 2 <= at + len(part): part += "the one line with a NEEDLE in it\\n"
    sys.stdout.write(part); line += 10000; at += len(part)
print("all is written", flush=True)
while True:
    time.sleep(0.25); print(f"at={time.time()}", flush=True)
"""
PHRASE = "NEEDLE in it"
LAST_AT = """() => {
    const lines = [...document.querySelectorAll('.console .line')].map((each) => each.innerText.match(/at=([0-9.]+)/));
    const found = lines.filter(Boolean);
    return found.length ? Number(found.at(-1)[1]) : 0;
}"""
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
DRAWN = """async (text) => {
    const input = document.querySelector('input[type=search]');
    const began = performance.now();
    input.value = text;
    input.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - began;
}"""
ASKED = "performance.getEntriesByType('resource').map((each) => each.name)"
PAINTED = """() => new Promise((done) => {
    const seen = new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime));
    seen.observe({ type: 'largest-contentful-paint', buffered: true });
    setTimeout(() => done(-1), 3000);
})"""


class Tab:
    """A signed-in browser with one tab."""

    def __init__(self, tools: Any, address: str) -> None:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"]
        self.browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        self.context = self.browser.new_context(viewport={"width": 1280, "height": 800}, ignore_https_errors=True)
        self.context.set_default_timeout(120_000)
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

    def heap_mb(self) -> float:
        """Memory of its scripts, after the garbage is collected."""
        self.tools.send("HeapProfiler.collectGarbage")
        found = {each["name"]: each["value"] for each in self.tools.send("Performance.getMetrics")["metrics"]}
        return float(found["JSHeapUsedSize"]) / 1e6

    def rss_mb(self) -> float:
        """Proportional memory of the largest renderer: the whole of the tab's process."""
        found = [0.0]
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if b"--type=renderer" in (folder / "cmdline").read_bytes():
                    found.append(pss_mb(int(folder.name)))
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


def _cli(cluster: DevCluster, *words: str) -> str:
    command = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(command, env=cluster.env, check=True, capture_output=True, text=True).stdout.strip()


def log(directory: Path, size: int, figures: Figures) -> None:
    """One rank's output of so many bytes: its end, a search in all of it, any place, and what is written meanwhile."""
    with dev_cluster(directory) as cluster:
        settings = directory / "hosts/host-0/agent.toml"
        settings.write_text("log_limit_mb = 4096\n" + settings.read_text())
        os.kill(cluster.agent_pid(), 15)
        while Path(f"/proc/{cluster.agent_pid()}").exists():
            time.sleep(0.1)
        holdfast("dev", "start", "--dir", str(directory))
        job = _cli(cluster, "run", "--detach", "--", sys.executable, "-c", PRINTS, str(size))
        file = next(iter(_written(cluster, job)))
        while file.stat().st_size < size:
            time.sleep(1)
        progress(f"{file.stat().st_size / 1e6:,.0f} MB are written")
        address = _cli(cluster, "web", "open", "--no-browser").split()[-1]
        what = f"a log of {size / 1e9:.1f} GB"
        with tab(address) as seen, Peak(controller=cluster.controller_pid, agent=cluster.agent_pid()) as peak:
            page = seen.page
            path = f"/jobs/{job}?tab=logs"
            figures.add(
                f"{what}: opened at its end", "ms", [seen.opened(path, ".console .line") for _ in range(3)], aim=300
            )
            waits = []
            for _ in range(20):
                page.wait_for_timeout(300)
                waits.append(1000 * (time.time() - float(page.evaluate(LAST_AT))))
            figures.add(f"{what}: age of the newest line that is shown", "ms", waits, aim=1000)
            began = time.monotonic()
            page.get_by_label("Find in these lines").fill(PHRASE)
            page.keyboard.press("Enter")
            page.locator(".console .line", has_text=f"with a {PHRASE}").wait_for()
            figures.add(
                f"{what}: search, the line in its middle", "ms", [1000 * (time.monotonic() - began)], aim=3000
            )
            page.get_by_role("status").filter(has_text="1 line with").wait_for()
            figures.add(f"{what}: search, all of it", "ms", [1000 * (time.monotonic() - began)], aim=3000)
            began = time.monotonic()
            page.locator(".console .line a.from").first.click()
            page.locator(".console .line.hit").first.wait_for()
            figures.add(f"{what}: what is around it", "ms", [1000 * (time.monotonic() - began)], aim=300)
            began = time.monotonic()
            page.get_by_role("button", name="Earlier").click()
            page.locator(".console .line").first.wait_for()
            figures.add(f"{what}: earlier lines", "ms", [1000 * (time.monotonic() - began)], aim=300)
            seen.opened(f"{path}&lines=20000", ".console .line")
            page.wait_for_timeout(5000)
            figures.add(
                f"{what}: memory of the tab with 20,000 lines",
                "MB",
                [seen.rss_mb()],
                aim=150,
                cost=f"scripts {seen.heap_mb():.0f} MB",
            )
        figures.add(f"{what}: memory of the daemons", "MB", [max(peak.most.values())], cost=peak.words)
        _cli(cluster, "cancel", job)


def _written(cluster: DevCluster, job: str) -> Iterator[Path]:
    while True:
        yield from cluster.logs(job).rglob("*.out")
        time.sleep(0.2)


async def _serving(directory: Path, fill: Callable[[Path], Awaitable[None]]) -> tuple[HollowCluster, str]:
    """A controller over a store that ``fill`` made, and the address that signs in."""
    cluster = HollowCluster(directory, 0, 1, RANKS_PER_HOST)
    await asyncio.to_thread(cluster.prepare)
    cluster.database.parent.mkdir()
    await fill(cluster.database)
    cluster.start_controller()
    async with cluster.client() as client:
        await cluster.answering(client)
        return cluster, await client.web.address()


def jobs(directory: Path, count: int, figures: Figures) -> None:
    """A list of so many jobs that have ended."""
    cluster, address = asyncio.run(_serving(directory, lambda database: fill_with_ended(database, 2 * count)))
    progress(f"{count:,} jobs are there")
    what = f"{count:,} jobs"
    row = ".joblist .row:not(.head)"
    rows = "/v1/jobs?view=ROW&newest=true&pageSize=100"
    questions = {
        "the newest": f"{rows}&search=bench",
        "search for one of the oldest": f"{rows}&search=ended-{{n}}1",
        "search for what no job has": f"{rows}&search=none-{{n}}",
        "a state that no job has": f"{rows}&filter=state%3DRUNNING%20AND%20NOT%20id%3Dx{{n}}",
        "an owner's, that failed": f"{rows}&filter=owner%3Dann%20AND%20state%3DFAILED%20AND%20NOT%20id%3Dx{{n}}",
    }
    try:
        with tab(address) as seen, Peak(controller=cluster.controller_pid) as peak:
            page = seen.page
            figures.add(f"{what}: the list is opened", "ms", [seen.opened("/jobs", row) for _ in range(5)])
            for name, path in questions.items():
                took = page.evaluate(ASKS, [path, 20])
                assert all(status == 200 for _, _, status in took), took
                figures.add(
                    f"{what}: {name}",
                    "ms",
                    [each for each, _, _ in took],
                    aim=50,
                    cost=f"{max(size for _, size, _ in took) / 1e3:.0f} kB",
                )
            typed = [float(page.evaluate(DRAWN, f"ended-{n}")) for n in range(20)]
            figures.add(f"{what}: a letter is typed, until the next frame", "ms", typed, aim=100)
            seen.opened("/jobs", row)
            for _ in range(40):
                page.locator(".joblist .windowed").evaluate("(each) => each.scrollTop = each.scrollHeight")
                page.wait_for_timeout(250)
            shown = page.locator("form [role=status]").inner_text()
            figures.add(
                f"{what}: memory of the tab, scrolled through {shown}",
                "MB",
                [seen.rss_mb()],
                aim=150,
                cost=f"scripts {seen.heap_mb():.0f} MB, {page.locator(row).count()} rows drawn",
            )
        figures.add(f"{what}: memory of the controller", "MB", [peak.most["controller"]], cost=peak.words)
        _first_load(address, cluster, figures)
    finally:
        asyncio.run(cluster.close())


def _first_load(address: str, cluster: HollowCluster, figures: Figures) -> None:
    """The overview in a browser that was never here, with a quarter of the processor's speed and 20 ms of network."""

    async def again() -> str:
        async with cluster.client() as client:
            return str(await client.web.address())

    painted, sizes = [], []
    for _ in range(5):
        with tab(asyncio.run(again())) as seen:
            seen.tools.send("Network.enable")
            got: list[float] = []
            seen.tools.on("Network.loadingFinished", lambda event, got=got: got.append(event["encodedDataLength"]))
            seen.tools.send("Network.clearBrowserCache")
            limits = {"offline": False, "latency": 20, "downloadThroughput": -1, "uploadThroughput": -1}
            seen.tools.send("Network.emulateNetworkConditions", limits)
            seen.tools.send("Emulation.setCPUThrottlingRate", {"rate": 4})
            seen.page.goto(f"{seen.base}/")
            seen.page.locator(".summary").wait_for()
            seen.page.wait_for_timeout(500)
            painted.append(float(seen.page.evaluate(PAINTED)))
            sizes.append(sum(got) / 1e3)
    figures.add(
        "overview, first load at a quarter of the speed: largest paint",
        "ms",
        painted,
        aim=1000,
        cost=f"{max(sizes):.0f} kB in all",
    )


def relaunched(directory: Path, times: int, figures: Figures) -> None:
    """A job of 64 ranks that was relaunched so often: its page."""

    async def fill(database: Path) -> None:
        job_file = spec.job_from_proto(gang(8))
        async with stage(database) as on:
            for number in range(8):
                on.join(f"host-{number}")
            asked = gang_of(job_file.job_spec)
            await on.driver.ask(lambda token: JobSubmission(token, "ann", "", "train", "train", {}, asked, "{}"))
            await on.until("train", JobState.RUNNING, 1)
            for generation in range(2, 2 + times):
                await on.driver.ask(lambda token: RestartAsked(token, "ann", "train"))
                await on.until("train", JobState.RUNNING, generation)

    cluster, address = asyncio.run(_serving(directory, fill))
    what = f"{times} relaunches of 64 ranks"
    progress(what)
    try:
        with tab(address) as seen:
            opened = [seen.opened("/jobs/train", ".strip svg > rect") for _ in range(5)]
            figures.add(f"{what}: the timeline is opened", "ms", opened, aim=1000)
            asked = [path for path in seen.page.evaluate(ASKED) if path.startswith(f"{seen.base}/v1/jobs/train?")]
            took = seen.page.evaluate(ASKS, [asked[0], 5])
            figures.add(
                f"{what}: its answer",
                "ms",
                [each for each, _, _ in took],
                aim=150,
                cost=f"{max(size for _, size, _ in took) / 1e3:,.0f} kB",
            )
            figures.add(
                f"{what}: exits are opened", "ms", [seen.opened("/jobs/train?tab=exits", "[data-tab=exits] td")]
            )
            figures.add(
                f"{what}: memory of the tab",
                "MB",
                [seen.rss_mb()],
                aim=150,
                cost=f"scripts {seen.heap_mb():.0f} MB",
            )
    finally:
        asyncio.run(cluster.close())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log-mb", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--relaunches", type=int, default=500)
    parser.add_argument("--only", action="append", choices=("log", "jobs", "relaunched"))
    options = parser.parse_args()
    figures = Figures()
    wanted = options.only or ["log", "jobs", "relaunched"]
    with framed(), work_directory() as folder:
        for name in wanted:
            place = folder / name
            place.mkdir()
            match name:
                case "log":
                    log(place, options.log_mb * 10**6, figures)
                case "jobs":
                    jobs(place, options.jobs, figures)
                case _:
                    relaunched(place, options.relaunches, figures)
        print()
        figures.print()


if __name__ == "__main__":
    main()
