"""A thousand hosts: what the controller does with them, each figure beside its aim.

Hosts are hollow: the agent's own core, links and wire code with connections and a certificate for each, above ranks
that exist only in memory and seem to train. With ``--bare`` hosts tell nothing of that, neither features nor minutes.
The controller is a real one in a process of its own; it and all hollow hosts share this machine, so CPU seconds stand
beside wall-clock times.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import scale_core, scale_rows, scale_viewers
from bench.hollow.cluster import hollow_cluster
from bench.hollow.figures import Figures
from bench.scale_rows import Site
from bench.support.cluster import work_directory
from bench.support.report import framed, progress

from holdfast_controller.shell.main.cycles import look_at_what_is_new

Row = Callable[[Site], Awaitable[None]]


def hollow_rows(options: argparse.Namespace) -> dict[str, Row]:
    """By name, in the order in which they are measured."""
    runs = options.runs
    return {
        "steady": lambda site: scale_rows.steady(site, options.seconds / 3),
        "work": lambda site: scale_rows.at_work(site, options.seconds),
        "gang": lambda site: scale_rows.gangs(site, 2 * runs),
        "exits": lambda site: scale_rows.exits(site, runs),
        "restart": lambda site: scale_rows.restarts(site, runs),
        "storm": lambda site: scale_rows.storm(site, runs),
        "jobs": lambda site: scale_rows.jobs(site, options.seconds),
        "viewers": lambda site: scale_viewers.viewers(site, runs, options.seconds / 2, options.jobs),
    }


async def measure(options: argparse.Namespace, directory: Path, figures: Figures) -> None:
    """Every row that is wanted."""
    hollow = hollow_rows(options)
    wanted = options.only or [*hollow, *CORE]
    if mine := {name: row for name, row in hollow.items() if name in wanted}:
        place = directory / "hollow"
        place.mkdir()
        async with hollow_cluster(place, options.hosts, fleets=options.fleets, bare=options.bare) as (
            cluster,
            client,
        ):
            progress(f"{options.hosts:,} hollow hosts are connected")
            for name, row in mine.items():
                await row(Site(cluster, client, figures))
                progress(f"{name}: {'; '.join(figures.rows[-1][:4])}")
        scale_rows.recorded_once(cluster.database)
    look_at_what_is_new()  # as seldom as the daemon does
    if "relaunch" in wanted:
        await scale_core.relaunches(directory, options.runs, figures)
    if "start" in wanted:
        place = directory / "start"
        place.mkdir()
        await scale_core.starts(place, options.jobs, options.runs, figures)


CORE = ("relaunch", "start")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000, help="(%(default)s)")
    parser.add_argument("--fleets", type=int, default=2, help="processes that they live in (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=10_000, help="in the store at a start, live beside viewers (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of submitting jobs (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="of each row; gangs twice as often (%(default)s)")
    parser.add_argument("--bare", action="store_true", help="hosts tell nothing of what their ranks do")
    names = ("steady", "work", "gang", "exits", "restart", "storm", "jobs", "viewers", *CORE)
    parser.add_argument("--only", metavar="ROW", action="append", choices=names, help=f"one of {', '.join(names)}")
    options = parser.parse_args()
    figures = Figures()
    # Told to end, it takes its processes and files with it, as upon Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with framed(), work_directory() as directory:
        asyncio.run(measure(options, directory, figures))
        print()
        figures.print()


if __name__ == "__main__":
    main()
