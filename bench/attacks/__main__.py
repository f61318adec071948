"""What a second user feels of attacks: `python -m bench.attacks [NAME ...] [--seconds S] [--turns N]`.

A dev cluster with a hundred jobs that wait. A second user looks at the newest jobs forty times a second, in turns
without an attack and during one; a look that is late counts from when it was due. An attacker has a machine of its own:
it runs on the last core, and the cluster and the second user on the others, in both turns. The attacks are those of
``bench.attacks.MODULES``; see there how to add one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
from pathlib import Path

from bench.attacks import CLUSTER, Attack, Site, load
from bench.attacks.calls import spec
from bench.support.cluster import dev_cluster, work_directory
from bench.support.report import framed, number, progress

from holdfast.client import Client
from holdfast.v1 import access_pb2, job_pb2

WAITING = 100
ROLES = {"viewer": access_pb2.ROLE_VIEWER, "user": access_pb2.ROLE_USER, "admin": access_pb2.ROLE_ADMIN}


async def prepare(client: Client) -> None:
    """The second user, who sees one project, an attacker of each role, and jobs to look at."""
    await client.access.add_user("bob", access_pb2.ROLE_USER, "default")
    for role, granted in ROLES.items():
        await client.access.add_user(f"mallory-{role}", granted)
    for count in range(WAITING):
        await client.create_job(job_pb2.CustomJob(display_name=f"waits {count}", job_spec=spec()))


def leave_a_core() -> int:
    """Keep to all cores but the last, with all that is started from here on; returns the last, an attacker's."""
    *ours, last = sorted(os.sched_getaffinity(0))
    if not ours:
        raise SystemExit("An attacker needs a core of its own, and there is but one.")
    os.sched_setaffinity(0, ours)
    return last


async def party(what: str, directory: Path, seconds: float) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "bench.attacks.party", what, str(directory), str(seconds))
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def looks(directory: Path, seconds: float) -> list[float]:
    """Milliseconds of the second user's looks."""
    looking = await party("look", directory, seconds)
    printed, _ = await looking.communicate()
    if looking.returncode:
        raise SystemExit("the second user got no answer")
    return list(json.loads(printed))


async def measure(
    found: Attack, directory: Path, seconds: float, turns: int, core: int
) -> tuple[list[float], list[float]]:
    """The second user's looks without the attack and during it, in turns."""
    quiet: list[float] = []
    during: list[float] = []
    for turn in range(turns):
        progress(f"{found.name}: {turn + 1} of {turns}")
        quiet += await looks(directory, seconds)
        attacker = await party(found.name, directory, 10 * seconds + 60)
        os.sched_setaffinity(attacker.pid, {core})  # before it has a second thread
        await asyncio.sleep(found.lead_s)
        during += await looks(directory, seconds)
        ended = attacker.returncode
        if ended is None:
            attacker.kill()
        await attacker.communicate()
        if ended:
            raise SystemExit(f"the attack {found.name} failed")
    return quiet, during


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


async def main() -> None:
    """Run the attacks that were named, or all, and print a table."""
    attacks = {found.name: found for found in load()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(attacks)}; all unless given")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn (%(default)s)")
    parser.add_argument("--turns", type=int, default=2, help="(%(default)s)")
    options = parser.parse_args()
    if unknown := set(options.names) - attacks.keys():
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    rows = []
    core = leave_a_core()
    with framed(), work_directory() as directory:
        with dev_cluster(directory / CLUSTER) as cluster:
            async with cluster.client() as client:
                await prepare(client)
            Site(cluster.directory, "user/bob").files()
            for name in options.names or attacks:
                quiet, during = await measure(
                    attacks[name], cluster.directory, options.seconds, options.turns, core
                )
                rows.append((attacks[name].title, quiet, during))
        print("\n### A second user's look at the list of jobs, ms\n")
        print("| attack | looks | quiet: median | p99 | during it: median | p99 | worst | p99 to p99 |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for title, quiet, during in rows:
            figures = (statistics.median(quiet), p99(quiet), statistics.median(during), p99(during), max(during))
            cells = " | ".join(map(number, figures))
            print(f"| {title} | {len(during)} | {cells} | {p99(during) / p99(quiet):.1f} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
