"""A log of a GB: its end, a search in all of it, any place, what is written meanwhile, and who waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.hollow.figures import Figures
from bench.page.tab import Peak, Tab, tab
from bench.support.cluster import DevCluster, dev_cluster, holdfast
from bench.support.report import progress
from bench.support.usage import own_cpu_s

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
                [(held := seen.held()).as_it_is_mb],
                aim=150,
                cost=held.words,
            )
            figures.add(f"{what}: memory of the daemons", "MB", [max(peak.most.values())], cost=peak.words)
            _beside(cluster, job, what, figures)
            _left(seen, cluster, f"{path}&grep=NOWHERE", what, figures)
        _cli(cluster, "cancel", job)


def _beside(cluster: DevCluster, job: str, what: str, figures: Figures) -> None:
    """Relaunches of another job on the host, alone and while the log is searched from a terminal, in turns."""
    other = _cli(cluster, "run", "--detach", "--", "sleep", "3600")
    took: dict[bool, list[float]] = {False: [], True: []}
    searches: list[float] = []
    for searching in (False, True) * 3:
        over = threading.Event()

        def search(over: threading.Event = over) -> None:
            while not over.is_set():
                began = time.monotonic()
                _cli(cluster, "logs", job, "--grep", "NOWHERE")
                searches.append(1000 * (time.monotonic() - began))

        beside = threading.Thread(target=search)
        if searching:
            beside.start()
        time.sleep(1)
        with ThreadPoolExecutor(1) as apart:  # the browser has this thread's event loop
            took[searching] += apart.submit(asyncio.run, _relaunched(cluster, other, 8)).result()
        over.set()
        if searching:
            beside.join()
    figures.add(f"{what}: search for what no line has, from a terminal", "ms", searches, aim=3000)
    figures.add(f"{what}: relaunch of another job on the host, nothing searched", "ms", took[False])
    figures.add(f"{what}: the same while the log is searched", "ms", took[True])
    _cli(cluster, "cancel", other)


async def _relaunched(cluster: DevCluster, job: str, times: int) -> list[float]:
    """Milliseconds until all ranks have started again, of so many relaunches."""
    found = []
    async with cluster.client() as client:
        cursor = (await client.get_job(job)).cursor
        for _ in range(times):
            began = time.monotonic()
            await client.restart_job(job)
            async with contextlib.aclosing(client.watch_job(job, cursor)) as events:
                async for event in events:
                    if event.type == "GangStarted":
                        cursor = event.cursor
                        break
            found.append(1000 * (time.monotonic() - began))
    return found


def _left(seen: Tab, cluster: DevCluster, path: str, what: str, figures: Figures) -> None:
    """The processor's time that the host spends after the tab with a search was closed."""
    agent = cluster.agent_pid()

    def spent(for_s: float) -> float:
        before = own_cpu_s(agent)
        time.sleep(for_s)
        return 100 * (own_cpu_s(agent) - before) / for_s

    seen.page.goto("about:blank")
    idle = spent(3)
    with seen.page.expect_request("**:logs?*"):
        seen.page.goto(seen.base + path, wait_until="commit")
    busy = spent(1)
    seen.page.close()
    time.sleep(0.5)
    after = spent(3)
    cost = f"while it searches {busy:.0f} %, idle {idle:.1f} %"
    figures.add(f"{what}: agent, half a second after the tab was closed", "% of a core", [after], cost=cost)


def _written(cluster: DevCluster, job: str) -> Iterator[Path]:
    while True:
        yield from cluster.logs(job).rglob("*.out")
        time.sleep(0.2)
