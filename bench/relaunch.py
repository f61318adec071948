"""In-place relaunch: from a rank's death to the first instruction of every rank of the next generation.

A rank, chosen at random, is killed at a random moment. Holdfast, torchrun and the bare kernel (kill, reap, spawn)
take turns, each with its own idle gang of the same static program.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.support.cluster import DevCluster, dev_cluster, job, running, work_directory
from bench.support.report import Table, framed, progress
from bench.support.stamps import Stamps, TooSlow, build
from bench.support.torchrun import WHOLE_RESTARTS, is_there, torchrun

START_S = 60.0
RELAUNCH_S = 60.0
DEAF_GRACE_S = 1.0


@dataclass
class Side:
    """One contender: how to relaunch, and what it took each time, in milliseconds."""

    name: str
    relaunch: Callable[[], float]
    took_ms: list[float] = field(default_factory=list)


def kill_one(stamps: Stamps, world: int, within_s: float = RELAUNCH_S) -> float:
    """Kill a rank of the newest generation and await the next; milliseconds until all of it had begun."""
    victim = random.choice(list(stamps.newest().values()))
    killed_at = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)
    born = stamps.wait(world, within_s, killed_at)
    return (max(stamp.at for stamp in born) - killed_at) * 1000


class Bare:
    """The floor: nobody decides or remembers anything; kill all, reap all, start all."""

    def __init__(self, program: Path, stamps: Stamps, world: int) -> None:
        self.program, self.stamps, self.world = program, stamps, world
        self.pids: list[int] = []
        self._spawn()

    def _spawn(self) -> None:
        for rank in range(self.world):
            arguments = [str(self.program), str(self.stamps.path)]
            self.pids.append(os.posix_spawn(self.program, arguments, {"RANK": str(rank)}))

    def end(self) -> None:
        """Of all ranks."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)
        self.pids.clear()

    def relaunch(self) -> float:
        """Milliseconds."""
        began = time.monotonic()
        self.end()
        self._spawn()
        born = self.stamps.wait(self.world, START_S, began)
        return (max(stamp.at for stamp in born) - began) * 1000


async def compare(cluster: DevCluster, program: Path, ranks: int, hosts: int, runs: int, table: Table) -> None:
    """One gang shape, all sides in turns."""
    world = ranks * hosts
    shape = f"{ranks} ranks on one host" if hosts == 1 else f"{hosts}×{ranks} on {hosts} agents"
    files = {name: cluster.directory / f"{name}-{hosts}x{ranks}" for name in ("ours", "torchrun", "bare")}
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(cluster.client())
        ours, theirs = Stamps(files["ours"]), Stamps(files["torchrun"])
        await stack.enter_async_context(
            running(client, job([str(program), str(ours.path)], processes=ranks, replicas=hosts))
        )
        await asyncio.to_thread(ours.wait, world, START_S)
        sides = [Side("Holdfast", lambda: kill_one(ours, world))]
        if is_there():
            stack.enter_context(
                torchrun(
                    [str(program), str(theirs.path)],
                    ranks,
                    cluster.directory / "torchrun.log",
                    nodes=hosts,
                    env=WHOLE_RESTARTS,
                )
            )
            await asyncio.to_thread(theirs.wait, world, START_S)
            sides.append(Side("torchrun", lambda: kill_one(theirs, world)))
        bare = Bare(program, Stamps(files["bare"]), world)
        stack.callback(bare.end)
        sides.append(Side("kill, reap, spawn", bare.relaunch))
        for turn in range(runs):
            for side in sides:
                await asyncio.sleep(random.uniform(0.3, 0.5))
                side.took_ms.append(await asyncio.to_thread(side.relaunch))
            if turn % 10 == 9:
                progress(f"{shape}: {turn + 1} of {runs}")
    for side in sides:
        table.add(f"{shape}: {side.name}", side.took_ms)


async def deaf(cluster: DevCluster, program: Path, runs: int, table: Table) -> None:
    """Survivors that ignore SIGTERM."""
    ours, theirs = Stamps(cluster.directory / "deaf"), Stamps(cluster.directory / "deaf-torchrun")
    wanted = job([str(program), str(ours.path), "deaf"], processes=2, grace_s=DEAF_GRACE_S)
    took: list[float] = []
    async with cluster.client() as client, running(client, wanted):
        await asyncio.to_thread(ours.wait, 2, START_S)
        for _ in range(runs):
            await asyncio.sleep(random.uniform(0.3, 0.5))
            took.append(await asyncio.to_thread(kill_one, ours, 2))
    table.add(f"2 ranks, the survivor ignores SIGTERM: Holdfast, grace {DEAF_GRACE_S:g} s", took)
    if not is_there():
        return
    progress("torchrun with a survivor that ignores SIGTERM, once: about 30 s")
    log = cluster.directory / "torchrun.log"
    with torchrun([str(program), str(theirs.path), "deaf"], 2, log, env=WHOLE_RESTARTS):
        await asyncio.to_thread(theirs.wait, 2, START_S)
        try:
            once = [await asyncio.to_thread(kill_one, theirs, 2)]
        except TooSlow:
            once = []
    table.add("2 ranks, the survivor ignores SIGTERM: torchrun", once, "its grace can't be set")


async def main() -> None:
    """All shapes, or those that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="of each side and shape (%(default)s)")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8], help="gang sizes on one host")
    parser.add_argument("--no-pair", action="store_true", help="leave the two agents out")
    parser.add_argument("--no-deaf", action="store_true", help="leave the survivors that ignore SIGTERM out")
    options = parser.parse_args()
    table = Table("From a rank's death to the first instruction of every rank of the next generation", "ms")
    with framed():
        with work_directory() as directory:
            program = build(directory)
            with dev_cluster(directory / "one") as cluster:
                for ranks in options.ranks:
                    await compare(cluster, program, ranks, 1, options.runs, table)
                if not options.no_deaf:
                    await deaf(cluster, program, 5, table)
            if not options.no_pair:
                with dev_cluster(directory / "two", hosts=2) as cluster:
                    await compare(cluster, program, 2, 2, options.runs, table)
        table.print()


if __name__ == "__main__":
    asyncio.run(main())
