"""A store in a file of SQLite beside one in PostgreSQL: both engines in turns, each with all that it syncs to disk.

Two clusters run side by side, one on each engine, and are asked in turns; the one that isn't asked is idle. PostgreSQL
is a server of its own on this machine, with ``fsync`` on, so its rows are those without a network. Hollow hosts come
last, a cluster at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench.hollow.cluster import HollowCluster, hollow_cluster
from bench.relaunch import kill_one
from bench.submit import PAUSE_S, START_S, submitted
from bench.support.cluster import DevCluster, dev_cluster, job, running, work_directory
from bench.support.report import Table, framed, progress
from bench.support.stamps import Stamps, build
from bench.throughput import drain
from tests.support import postgres
from tests.unit.controller.examples import EVENTS

from holdfast.client import Client
from holdfast.dev import layout as files
from holdfast.dev import ports
from holdfast.dev.layout import Layout
from holdfast_controller.core import events as ev
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.databases.engine import Engine
from holdfast_controller.shell.store.databases.sqlite import SqliteFile
from holdfast_controller.shell.store.store import Store

ENGINES = ("SQLite", "PostgreSQL")
RELAUNCH_AIM_MS = 5.0
STEADY_S = 10.0


def url_of(server: postgres.Server, database: str) -> str:
    """The address of a new database."""
    server.sql(f"CREATE DATABASE {database}")
    return server.url(database)


def commits(folder: Path, server: postgres.Server, runs: int, table: Table) -> None:
    """One commit, of one event and of a hundred."""
    from holdfast_controller.shell.store.databases.postgresql.database import (
        PostgresDatabase,  # psycopg may be missing
    )

    engines: dict[str, Engine] = {
        ENGINES[0]: SqliteFile(folder / "commits" / "holdfast.db"),
        ENGINES[1]: PostgresDatabase(url_of(server, "commits"), folder / "commits" / "postgresql"),
    }
    stores = {name: Store(engine) for name, engine in engines.items()}
    joined = next(event for event in EVENTS if isinstance(event, ev.HostJoined))
    for store in stores.values():
        store.call(store.open).result()
    for size in (1, 100):
        took: dict[str, list[float]] = {name: [] for name in stores}
        for _ in range(runs):
            for name, store in stores.items():
                first = store.sequence + 1
                batch = [codec.record(first + number, joined, "", "joined") for number in range(size)]
                began = time.perf_counter()
                store.call(store.commit, batch).result()
                took[name].append((time.perf_counter() - began) * 1000)
        for name, values in took.items():
            table.add(f"a commit, {size} event{'s' if size > 1 else ''}: {name}", values)
    for store in stores.values():
        store.close()


@contextlib.contextmanager
def on_postgres(folder: Path, url: str) -> Iterator[DevCluster]:
    """A dev cluster whose controller has its store there."""
    folder.mkdir(mode=0o700)
    layout = Layout(folder)
    with ports.Reserved() as reserved:
        planned = ports.choose(None, reserved, hosts=1, gpus=0, port=None)
        files.complete(layout, planned, as_root=os.geteuid() == 0, labels={})
        files.save(layout, planned)
    settings = layout.config("controller")
    settings.write_text(f'database_url = "{url}"\n{settings.read_text()}')
    with dev_cluster(folder) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def relaunching(cluster: DevCluster, client: Client, program: Path) -> AsyncIterator[Stamps]:
    """A gang of two that may fail as often as it likes; the moments of its first instructions."""
    stamps = Stamps(cluster.directory / "relaunched")
    async with running(client, job([str(program), str(stamps.path)], processes=2)):
        await asyncio.to_thread(stamps.wait, 2, START_S)
        yield stamps


async def in_turns(
    clusters: dict[str, DevCluster], program: Path, options: argparse.Namespace, table: Table
) -> None:
    """Whole clusters: a relaunch, a submission, small jobs."""
    rates = Table(f"Rounds of {options.jobs} durable one-worker jobs on one agent", "jobs/s")
    async with contextlib.AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(each.client()) for name, each in clusters.items()}
        took: dict[str, list[float]] = {name: [] for name in clusters}
        async with contextlib.AsyncExitStack() as gangs:
            made = {
                name: await gangs.enter_async_context(relaunching(each, clients[name], program))
                for name, each in clusters.items()
            }
            for turn in range(options.relaunches):
                for name in random.sample(list(made), len(made)):
                    await asyncio.sleep(random.uniform(0.3, 0.5))
                    took[name].append(await asyncio.to_thread(kill_one, made[name], 2))
                if turn % 10 == 9:
                    progress(f"relaunch {turn + 1} of {options.relaunches}")
        for name, values in took.items():
            table.add(f"relaunch in place, 2 ranks: {name}", values)
        more = statistics.median(took[ENGINES[1]]) - statistics.median(took[ENGINES[0]])
        verdict = "met" if more <= RELAUNCH_AIM_MS else "missed"
        table.add("PostgreSQL's relaunch beyond SQLite's", [more], f"aim ≤ {RELAUNCH_AIM_MS:g}: {verdict}")
        starts = {name: Stamps(each.directory / "submitted") for name, each in clusters.items()}
        first: dict[str, list[float]] = {name: [] for name in clusters}
        for _ in range(options.submissions):
            for name, stamps in starts.items():
                await asyncio.sleep(PAUSE_S)
                first[name].append(await submitted(clients[name], program, stamps, 1))
        for name, values in first.items():
            table.add(f"submit → first instruction, one worker: {name}", values)
        rounds: dict[str, list[float]] = {name: [] for name in clusters}
        for turn in range(options.rounds):
            for name, each in clusters.items():
                done = await drain(each, clients[name], program, Stamps(each.directory / "drained"), options.jobs)
                rounds[name].append(done["rate"])
            progress(f"round {turn + 1} of {options.rounds}")
        for name, values in rounds.items():
            rates.add(f"until the queue is empty: {name}", values)
    table.print()
    rates.print()


async def hollow(name: str, folder: Path, url: str, hosts: int, table: Table) -> None:
    """Many hosts, all connected, and the largest gang on them."""
    began = time.monotonic()
    async with hollow_cluster(folder, hosts, fleets=2, database_url=url) as (cluster, client):
        progress(f"{name}: {hosts:,} hollow hosts after {time.monotonic() - began:.0f} s")
        await asyncio.sleep(STEADY_S / 2)
        table.add(f"all are idle, the controller's CPU in % of a core: {name}", [await steady(cluster)])
        epoch = (await client.status()).epoch + 1
        cluster.kill_controller()
        began = time.monotonic()
        cluster.start_controller()
        await cluster.answering(client)
        await cluster.all_connected(epoch=epoch)
        table.add(f"killed and started → all have a session, s: {name}", [time.monotonic() - began])


async def steady(cluster: HollowCluster) -> float:
    """The controller's CPU, in % of a core."""
    before, began = cluster.controller_cpu_s(), time.monotonic()
    await asyncio.sleep(STEADY_S)
    return (cluster.controller_cpu_s() - before) / (time.monotonic() - began) * 100


def main() -> int:
    """Print the tables; 1 where there is no PostgreSQL here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=200, help="of each size (%(default)s)")
    parser.add_argument("--relaunches", type=int, default=40, help="on each engine (%(default)s)")
    parser.add_argument("--submissions", type=int, default=20, help="on each engine (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of small jobs, on each engine (%(default)s)")
    parser.add_argument("--jobs", type=int, default=100, help="of each round (%(default)s)")
    parser.add_argument("--hosts", type=int, default=1000, help="that are hollow; 0 leaves them out (%(default)s)")
    options = parser.parse_args()
    if missing := postgres.missing():
        print(f"There is no {missing} here.", file=sys.stderr)
        return 1
    with framed(), work_directory() as folder, postgres.running() as server:
        server.sql("ALTER SYSTEM SET fsync = on")
        server.sql("SELECT pg_reload_conf()")
        table = Table("One after the other, both engines in turns", "ms")
        commits(folder, server, options.commits, table)
        progress("commits are done")
        program = build(folder)
        url = url_of(server, "cluster")
        with dev_cluster(folder / "sqlite") as one, on_postgres(folder / "postgresql", url) as other:
            asyncio.run(in_turns(dict(zip(ENGINES, (one, other), strict=True)), program, options, table))
        if options.hosts:
            large = Table(f"{options.hosts:,} hollow hosts, one cluster after the other", "as said")
            for name, address in zip(ENGINES, ("", url_of(server, "hollow")), strict=True):
                place = folder / f"hollow-{name}"
                place.mkdir()
                asyncio.run(hollow(name, place, address, options.hosts, large))
            large.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
