"""The row of the scale benchmark about people who look: what the controller's other work takes while fifty do.

In turns with and without viewers a gang is relaunched in place and jobs are submitted, each durable before it is
acknowledged, beside as many live jobs as are asked for: by two users, since the calls of one together have a share of
the controller's time while others call. Each turn has a gang of its own, whose page is longer with each relaunch. The
p99 that are held against each other are of all turns of a kind together: that of one turn is the worst of some dozens,
and the machine has other work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from bench.hollow.cluster import USERS
from bench.hollow.figures import quantile
from bench.hollow.host import HOLD
from bench.scale_rows import AT_ONCE, Site, gang
from bench.support.cluster import await_end, job
from bench.support.report import number, progress

from holdfast.client import Client
from holdfast.v1 import access_pb2

VIEWERS = 50
OWNER = USERS[3]
GANG_HOSTS = 8
SUBMIT_EVERY_S = 0.1
SETTLE_S = 3.0
ROWS = "view=ROW&newest=true&pageSize=50&filter=state%3D"
PAGE_OF_JOB = "foldExits=true&withoutWorkers=true&exitsOfNewest=50"
OVERVIEW = (
    "/v1/status",
    f"/v1/jobs?{ROWS}RUNNING%7CPENDING%7CCANCELLING",
    f"/v1/jobs?{ROWS}QUEUED",
    "/v1/hosts?pageSize=1000",
)


def looks(job_id: str) -> list[list[str]]:
    """What each viewer looks at: two in five the overview, the others the list of jobs, one job, the hosts."""
    kinds = (
        [*OVERVIEW],
        [f"/v1/jobs/{job_id}?{PAGE_OF_JOB}", f"/v1/jobs/{job_id}/goodput"],
        ["ask:/v1/jobs?view=ROW&newest=true&pageSize=100"],
        [*OVERVIEW],
        ["/v1/hosts?pageSize=1000"],
    )
    return [kinds[number % len(kinds)] for number in range(VIEWERS)]


@dataclass
class Turn:
    """Seconds that each took, and the controller's CPU, in one turn."""

    relaunches: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    started: list[tuple[float, int]] = field(default_factory=list)
    """When the gang was known to run again, and the position of the log then."""
    cpu: dict[str, float] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)


async def viewers(site: Site, runs: int, seconds: float, jobs: int) -> None:
    """So many turns of so many seconds each, with and without viewers, beside so many live jobs."""
    await _fill(site, jobs)
    cookies = await _signed_in(site)
    turns: dict[bool, list[Turn]] = {False: [], True: []}
    async with site.cluster.client(OWNER) as owner:
        for number_ in range(runs):
            for watched in (False, True) if number_ % 2 else (True, False):
                made = await owner.create_job(gang(GANG_HOSTS))
                await _until_started(owner, made.id, 0)
                looking = _looking(site, made.id, cookies) if watched else _nobody()
                async with looking as seen:
                    await asyncio.sleep(SETTLE_S)
                    turn = await _turn(site, owner, made.id, seconds)
                turn.seen = seen
                turns[watched].append(turn)
                progress(
                    f"{'with' if watched else 'without'} viewers: {_words(turn)}; load {os.getloadavg()[0]:.1f}"
                )
                await owner.cancel_job(made.id)
                await await_end(owner, made.id)
    _add(site, "relaunch of 64 ranks", turns, attrgetter("relaunches"))
    _add(site, "submission to its commit", turns, attrgetter("commits"))


def _add(site: Site, what: str, turns: dict[bool, list[Turn]], of: Callable[[Turn], list[float]]) -> None:
    p99 = {}
    for watched in (False, True):
        took = [1000 * each for turn in turns[watched] for each in of(turn)]
        p99[watched] = quantile(took, 0.99)
        each = [1000 * quantile(of(turn), 0.99) for turn in turns[watched]]
        beside = f"p99 of each turn {', '.join(map(number, each))}; controller {_core(turns[watched])} % of a core"
        if watched:
            beside += f"; {_seen(turns[True])}"
        who = f"with {VIEWERS} viewers" if watched else "without viewers"
        site.figures.add(f"{site.name}, {who}: {what}", "ms", took, cost=beside)
    site.figures.add("… p99 with, of that without", "", [p99[True] / p99[False]], aim=1.1)


def _core(turns: list[Turn]) -> str:
    return number(100 * sum(turn.cpu["controller"] for turn in turns) / sum(turn.cpu["wall"] for turn in turns))


def _seen(turns: list[Turn]) -> str:
    waits = [each for turn in turns for each in _waits(turn)]
    wall = sum(turn.cpu["wall"] for turn in turns)
    bad = sum(count for turn in turns for status, count in turn.seen["answers"].items() if status != "200")
    mb = sum(turn.seen["bytes"] for turn in turns) / wall / 1e6
    own = 100 * sum(turn.seen["cpu"] for turn in turns) / wall
    answers = sum(sum(turn.seen["answers"].values()) for turn in turns)
    return (
        f"{answers / wall:.0f} answers a second ({bad} refused), {mb:.1f} MB/s,"
        f" {quantile(waits, 0.5):.2f} s after a change, p95 {quantile(waits, 0.95):.2f} s;"
        f" viewers {own:.0f} % of a core"
    )


def _waits(turn: Turn) -> list[float]:
    """Seconds from each relaunch until a browser had a page of the job with it, for each browser that shows it."""
    pages = [found for path, found in turn.seen["shown"].items() if PAGE_OF_JOB in path]
    waits = []
    for at, cursor in turn.started:
        for page in pages:
            waits += next(([came - at] for came, shown in page if shown >= cursor), [])
    return waits


def _words(turn: Turn) -> str:
    parts = [
        f"{name} p50 {1000 * quantile(took, 0.5):.0f}, p99 {1000 * quantile(took, 0.99):.0f} ms of {len(took)}"
        for name, took in (("relaunch", turn.relaunches), ("commit", turn.commits))
    ]
    return f"{', '.join(parts)}, controller {100 * turn.cpu['controller'] / turn.cpu['wall']:.0f} %"


async def _turn(site: Site, owner: Client, job_id: str, seconds: float) -> Turn:
    found = Turn()
    until = time.monotonic() + seconds

    async def submit() -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            made = await site.client.create_job(job([HOLD]))
            found.commits.append(time.monotonic() - began)
            await site.client.cancel_job(made.id)
            await asyncio.sleep(SUBMIT_EVERY_S)

    async def relaunch() -> None:
        cursor = (await owner.get_job(job_id)).cursor
        while time.monotonic() < until:
            began = time.monotonic()
            await owner.restart_job(job_id)
            cursor = await _until_started(owner, job_id, cursor)
            found.relaunches.append(time.monotonic() - began)
            found.started.append((time.monotonic(), cursor))
            await asyncio.sleep(SUBMIT_EVERY_S)

    async def other() -> None:
        """Calls of another user: who calls alone has no share that is bounded."""
        async with site.cluster.client(USERS[1]) as client:
            while time.monotonic() < until:
                await client.newest_jobs(1)
                await asyncio.sleep(SUBMIT_EVERY_S)

    with site.cpu(found.cpu):
        await asyncio.gather(submit(), relaunch(), other())
    return found


async def _until_started(client: Client, job_id: str, cursor: int) -> int:
    async with contextlib.aclosing(client.watch_job(job_id, cursor)) as events:
        async for event in events:
            if event.type == "GangStarted":
                return int(event.cursor)
    raise SystemExit(f"{job_id} ended")


async def _fill(site: Site, jobs: int) -> None:
    left, room = iter(range(jobs)), asyncio.Semaphore(AT_ONCE)

    async def submit() -> None:
        for number_ in left:
            async with room:
                await site.client.create_job(job([HOLD, "--seed", str(number_)]))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(submit())
    while (tally := await site.cluster.tally())["living"] < jobs:
        await asyncio.sleep(1.0)
        progress(f"{tally['living']:,} of {jobs:,} jobs run")


async def _signed_in(site: Site) -> list[str]:
    """A cookie for each viewer; they are two users who may see the same."""
    *lookers, owner = USERS[1:]
    for user, role in zip((*lookers, owner), ("VIEWER", "USER", "USER"), strict=True):
        await site.client.access.add_user(user, access_pb2.Role.Value(f"ROLE_{role}"))
    tls = ssl.create_default_context(cafile=str(site.cluster.pki / "ca.pem"))
    found = []
    for user in lookers:
        async with site.cluster.client(user) as client:
            for _ in range(VIEWERS // len(lookers)):
                address = await client.web.address()
                found.append(await _cookie(site.cluster.web_port, tls, address.rpartition("#")[2]))
    return found


async def _cookie(port: int, tls: ssl.SSLContext, code: str) -> str:
    reader, writer = await asyncio.open_connection("localhost", port, ssl=tls)
    body = json.dumps({"code": code}).encode()
    head = (
        f"POST /web/login HTTP/1.1\r\nHost: localhost:{port}\r\nX-Holdfast: page\r\nSec-Fetch-Site: same-origin\r\n"
    )
    head += f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = (await reader.read()).decode("latin-1")
    writer.close()
    return next(
        line[12:].partition(";")[0] for line in answer.split("\r\n") if line.lower().startswith("set-cookie: ")
    )


@contextlib.asynccontextmanager
async def _looking(site: Site, job_id: str, cookies: list[str]) -> AsyncIterator[dict[str, Any]]:
    ca, port = site.cluster.pki / "ca.pem", site.cluster.web_port
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.hollow.viewers", "--port", str(port), "--ca", str(ca)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    assert process.stdin is not None
    for cookie, look in zip(cookies, looks(job_id), strict=True):
        process.stdin.write(json.dumps({"cookie": cookie, "look": look}).encode() + b"\n")
    process.stdin.write(b"\n")
    seen: dict[str, Any] = {}
    try:
        yield seen
    finally:
        process.stdin.close()
        said, _ = await process.communicate()
        seen |= json.loads(said)


@contextlib.asynccontextmanager
async def _nobody() -> AsyncIterator[dict[str, Any]]:
    yield {}
