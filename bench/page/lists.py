"""A list of 100,000 jobs, of which one in ten goes on, and the overview's first load beside them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

from bench.hollow.cluster import HollowCluster
from bench.hollow.figures import Figures
from bench.page.stores import Going, Life, ended_jobs, fill, jobs_that_go_on, serving
from bench.page.tab import ASKS, PAINTED, Peak, tab
from bench.support.report import progress

HOSTS = 100
ASKED = 20
"""Times that each question is asked."""
DRAWN = """async (text) => {
    const input = document.querySelector('input[type=search]');
    const began = performance.now();
    input.value = text;
    input.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - began;
}"""


def jobs(directory: Path, count: int, figures: Figures) -> None:
    """A list of so many jobs, of which one in ten goes on."""
    now, going = time.time(), count // 10
    lives: Iterator[Life | Going] = itertools.chain(
        ended_jobs(count - going, now), jobs_that_go_on(going, now, HOSTS)
    )
    cluster, address = asyncio.run(serving(directory, lambda database: fill(database, HOSTS, lives)))
    progress(f"{count:,} jobs are there")
    what = f"{count:,} jobs"
    row = ".joblist .row:not(.head)"
    rows = "/v1/jobs?view=ROW&newest=true&pageSize=100"
    questions = {
        "the newest": f"{rows}&filter=NOT%20id%3Dx{{n}}",
        "the oldest": "/v1/jobs?view=ROW&pageSize=100&filter=NOT%20id%3Dx{n}",
        "search for one of the oldest": f"{rows}&search=ended-0000{{n}}1",
        "search for what no job has": f"{rows}&search=none-{{n}}",
        "those that run": f"{rows}&filter=state%3DRUNNING%20AND%20NOT%20id%3Dx{{n}}",
        "a state that no job has": f"{rows}&filter=state%3DQUEUED%20AND%20NOT%20id%3Dx{{n}}",
        "a label that no job has": f"{rows}&filter=labels.team%3Dx{{n}}",
        "an owner's, that failed": f"{rows}&filter=owner%3Dann%20AND%20state%3DFAILED%20AND%20NOT%20id%3Dx{{n}}",
    }
    try:
        with tab(address) as seen, Peak(controller=cluster.controller_pid) as peak:
            page = seen.page
            figures.add(f"{what}: the list is opened", "ms", [seen.opened("/jobs", row) for _ in range(5)])
            for name, path in questions.items():
                cpu_s = cluster.controller_cpu_s()
                took = page.evaluate(ASKS, [path, ASKED])
                each_ms = 1000 * (cluster.controller_cpu_s() - cpu_s) / ASKED
                assert all(status == 200 for _, _, status in took), took
                packed = seen.packed(path.replace("{n}", "0"))
                figures.add(
                    f"{what}: {name}",
                    "ms",
                    [each for each, _, _ in took],
                    aim=50,
                    cost=f"controller {each_ms:.0f} ms of CPU each, {packed / 1e3:.1f} kB compressed",
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
                [(held := seen.held()).as_it_is_mb],
                aim=150,
                cost=f"{held.words}, {page.locator(row).count()} rows drawn",
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
