"""Takeover: from the end of the controller that leads to the first commit of the one that stood by.

Two controllers share a database of PostgreSQL on this machine. The one that leads is killed, or gets SIGTERM, at a
random moment; a client that knows both addresses submits a job again and again until it is accepted, and an agent finds
the new controller by itself. Then the old one is started again and stands by. ``--events`` are in the log before.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import signal
import sys
import time

from bench.scale_core import fill_with_ended
from bench.support.cluster import await_end, job, work_directory
from bench.support.report import Table, framed, progress
from tests.support import postgres
from tests.support.two_controllers import NAMES, TwoControllers, two_controllers

from holdfast import settings
from holdfast._sdk.reconnect import is_away
from holdfast.client import Client
from holdfast.errors import HoldfastError

AGAIN_S = 0.02


async def accepted(client: Client) -> str:
    """Submit a job until a controller has committed it; its id."""
    while True:
        try:
            return (await client.create_job(job(["/bin/true"]))).id
        except HoldfastError as error:
            if not is_away(error):
                raise
        await asyncio.sleep(AGAIN_S)


async def led_after(client: Client, epoch: int) -> None:
    """Wait until a controller of a later term answers."""
    while True:
        try:
            if (await client.status()).epoch > epoch:
                return
        except HoldfastError as error:
            if not is_away(error):
                raise
        await asyncio.sleep(AGAIN_S)


async def turn(
    made: TwoControllers, client: Client, leader: str, end: signal.Signals
) -> tuple[float, float, float]:
    """Seconds until the other one was ready, until a job was committed, and until that job had run."""
    (standby,) = set(NAMES) - {leader}
    await asyncio.sleep(random.uniform(1.0, 2.0))
    seen = made.said(standby, "controller.ready"), made.said(leader, "controller.stands_by")
    epoch = (await client.status()).epoch
    began, began_at = time.monotonic(), time.time()
    made.daemons[leader].send_signal(end)
    await led_after(client, epoch)
    job_id = await accepted(client)
    committed = time.monotonic() - began
    await await_end(client, job_id)
    ran = time.monotonic() - began
    ready = await asyncio.to_thread(made.says, standby, "controller.ready", seen[0] + 1) - began_at
    await asyncio.to_thread(made.daemons[leader].wait)
    made.start(leader)
    await asyncio.to_thread(made.says, leader, "controller.stands_by", seen[1] + 1)
    return ready, committed, ran


async def measure(made: TwoControllers, runs: int, table: Table) -> None:
    """Both ways in which a controller ends."""
    leaders = itertools.cycle(NAMES)
    async with Client(settings.load(made.directory / "client.toml")) as client:
        await await_end(client, await accepted(client))
        for name, end in (("killed", signal.SIGKILL), ("ended by SIGTERM", signal.SIGTERM)):
            found = []
            for leader in itertools.islice(leaders, runs):
                found.append(await turn(made, client, leader, end))
                progress(f"{name}: {len(found)} of {runs}")
            ready, committed, ran = zip(*found, strict=True)
            table.add(f"{name} → the other one serves", ready)
            table.add(f"{name} → a job is committed", committed)
            table.add(f"{name} → that job has run", ran)
        table.add("Slurm's backup controller takes over", [120.0], "cited: SlurmctldTimeout, by default")
        table.add(
            "a standby of Kubernetes takes over", [15.0], "cited: the lease of its leader election, by default"
        )


def main() -> int:
    """Print the table; 1 where there is no PostgreSQL here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--events", type=int, default=0)
    options = parser.parse_args()
    if missing := postgres.missing():
        print(f"There is no {missing} here.", file=sys.stderr)
        return 1
    table = Table(f"Takeover by a second controller, {options.events:,} events in the log", "s")
    with framed(), work_directory() as folder, postgres.running() as server:
        server.sql("CREATE DATABASE bench")
        url = f"postgresql://holdfast@/bench?host={server.folder}"
        if options.events:
            from holdfast_controller.shell.store.databases.postgresql.database import (
                PostgresDatabase,  # psycopg may be missing
            )

            file = folder / "filling" / "postgresql"
            asyncio.run(fill_with_ended(PostgresDatabase(url, file), options.events))
            progress(f"{options.events:,} events are in the log")
        with two_controllers(folder / "cluster", url) as made:
            made.start("host-0")
            asyncio.run(measure(made, options.runs, table))
    table.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
