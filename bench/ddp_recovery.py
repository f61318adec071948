"""What a user feels when a rank dies: from the last step to the next new one, of a real PyTorch DDP training.

The example examples/ddp_torch trains on gloo and checkpoints each step. A rank is killed; the gang starts again,
reads the checkpoint, and goes on. A step is new when no generation before has done it. Most of the time is the
import of torch by all ranks at once, which is the program's own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.support.cluster import DevCluster, dev_cluster, job, running, work_directory
from bench.support.report import Table, framed, progress
from bench.support.stamps import TooSlow
from bench.support.torchrun import WHOLE_RESTARTS, is_there, torchrun
from bench.support.usage import children

from holdfast.client import Client

TRAIN = Path(__file__).parents[1] / "examples" / "ddp_torch" / "train.py"
START_S, RECOVER_S = 120.0, 60.0
DEFAULT_BOUND_S = 45.0
"""How long torchrun with its default store may take to train again."""
STEADY_STEPS = 10
LOOK_S = 0.01
STEP = re.compile(rb"^step=(\d+) ", re.MULTILINE)


def training(checkpoints: Path) -> list[str]:
    """The command, for ever, at about ten steps a second."""
    options = ["--epochs", "100000", "--step-time", "0.1", "--log-every", "1", "--checkpoint-every", "1"]
    return [str(TRAIN), *options, "--checkpoint-dir", str(checkpoints)]


@dataclass
class Steps:
    """Follows rank 0's output, wherever the newest of it lies, and notes when each new step was first seen."""

    output: Callable[[], Path]
    highest: int = 0
    at: float = 0.0
    _path: Path | None = None
    _offset: int = 0
    _rest: bytes = field(default=b"")

    def look(self) -> None:
        """Read what has come."""
        path = self.output()
        with contextlib.suppress(FileNotFoundError):
            path = path.resolve(strict=True)
            if path != self._path:
                self._path, self._offset, self._rest = path, 0, b""
            with path.open("rb") as file:
                file.seek(self._offset)
                data = self._rest + file.read()
                self._offset = file.tell()
            whole, newline, self._rest = data.rpartition(b"\n")
            steps = [int(step) for step in STEP.findall(whole + newline)]
            if steps and max(steps) > self.highest:
                self.highest, self.at = max(steps), time.monotonic()

    async def reach(self, step: int, within_s: float) -> None:
        """Wait for a step. Raises ``TooSlow``."""
        deadline = time.monotonic() + within_s
        while self.highest < step:
            if time.monotonic() > deadline:
                raise TooSlow(f"no step {step} within {within_s:g} s")
            await asyncio.sleep(LOOK_S)
            self.look()


async def recover(steps: Steps, pids: Callable[[], Awaitable[list[int]]], within_s: float = RECOVER_S) -> float:
    """Kill a rank of a training that goes on; seconds from its last step to the next new one."""
    await steps.reach(steps.highest + STEADY_STEPS, START_S)
    await asyncio.sleep(random.uniform(0.0, 0.3))
    os.kill(random.choice(await pids()), signal.SIGKILL)
    # Rank 0 may yet finish the step that all ranks had given their part to.
    settled = time.monotonic() + 0.3
    while time.monotonic() < settled:
        await asyncio.sleep(LOOK_S)
        steps.look()
    last = steps.at
    await steps.reach(steps.highest + 1, within_s)
    return steps.at - last


async def rank_pids(client: Client, job_id: str) -> list[int]:
    """Of our job's living generation."""
    return [rank.pid for worker in (await client.get_job(job_id)).workers for rank in worker.ranks]


async def compare(cluster: DevCluster, hosts: int, ranks: int, runs: int, in_a_row: int, table: Table) -> None:
    """One gang shape, ``runs`` times in turns, then ours alone until it has restarted ``in_a_row`` times."""
    shape = f"{hosts}×{ranks}"
    theirs: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(cluster.client())
        command = [sys.executable, *training(cluster.directory / f"ours-{shape}")]
        env = {"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
        wanted = job(command, processes=ranks, replicas=hosts, env=env)
        job_id = await stack.enter_async_context(running(client, wanted))
        steps = Steps(lambda: cluster.logs(job_id) / "latest" / "workerpool0-0.r0.out")
        await steps.reach(1, START_S)
        ours: list[float] = []
        async with their_training(cluster.directory, shape, hosts, ranks) as their_recovery:
            for turn in range(runs):
                progress(f"{shape}: {turn + 1} of {runs}")
                ours.append(await recover(steps, lambda: rank_pids(client, job_id)))
                theirs.append(await their_recovery())
        alone: list[float] = []
        while runs + len(alone) < in_a_row:
            progress(f"{shape}: restart {runs + len(alone) + 1} of {in_a_row} in a row")
            alone.append(await recover(steps, lambda: rank_pids(client, job_id)))
    table.add(f"{shape}: Holdfast", ours)
    table.add(f"{shape}: torchrun", theirs, "with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
    if alone:
        remark = f"the same job: {runs + len(alone)} of {in_a_row} restarts in a row trained again"
        table.add(f"{shape}: Holdfast, then alone", alone, remark)


@contextlib.asynccontextmanager
async def their_training(
    directory: Path, shape: str, nodes: int, ranks: int
) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """torchrun, training; gives what kills a rank of it and measures the recovery."""
    output = directory / f"torchrun-{shape}.log"
    steps = Steps(lambda: output)
    command = training(directory / f"theirs-{shape}")
    with torchrun(command, ranks, output, nodes=nodes, python=True, env=WHOLE_RESTARTS) as launchers:
        await steps.reach(1, START_S)

        async def pids() -> list[int]:
            return [pid for launcher in launchers for pid in children(launcher)]

        yield lambda: recover(steps, pids)


async def by_default(directory: Path, table: Table) -> None:
    """torchrun with its shared store, once, bounded."""
    output = directory / "default.log"
    steps = Steps(lambda: output)
    progress(f"torchrun with its default store, once, for at most {DEFAULT_BOUND_S:g} s")
    with torchrun(training(directory / "default"), 4, output, python=True) as launchers:

        async def pids() -> list[int]:
            return children(launchers[0])

        try:
            table.add("1×4: torchrun with its defaults", [await recover(steps, pids, DEFAULT_BOUND_S)])
        except TooSlow:
            remark = f"had not trained again after {DEFAULT_BOUND_S:g} s"
            table.add("1×4: torchrun with its defaults", [], remark)


async def main() -> None:
    """One host, two hosts, the default store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="in turns with torchrun (%(default)s)")
    parser.add_argument("--in-a-row", type=int, default=20, help="restarts of ours on two hosts (%(default)s)")
    parser.add_argument("--no-default", action="store_true", help="leave torchrun's default store out")
    options = parser.parse_args()
    if not is_there():
        raise SystemExit("This needs torch: pip install torch==2.13.0")
    table = Table("PyTorch DDP on gloo, a rank killed: last step to next new step", "s")
    with framed():
        with work_directory() as directory:
            with dev_cluster(directory / "one") as cluster:
                await compare(cluster, 1, 4, options.runs, 0, table)
            with dev_cluster(directory / "two", hosts=2) as cluster:
                await compare(cluster, 2, 2, options.runs, options.in_a_row, table)
            if not options.no_default:
                await by_default(directory, table)
        table.print()


if __name__ == "__main__":
    asyncio.run(main())
