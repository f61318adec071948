"""Submit to first instruction: CreateJob on a warm channel, and what a person at the command line waits for.

A gang counts from the call to the first instruction of its last worker. torchrun takes turns with it: from its
start to the same instruction, as it has no service that a job could be handed to. So does srun, where Slurm is
installed: with a Slurm of our own whose controller and four nodes wait for work, as Holdfast's do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.support.cluster import DevCluster, await_end, dev_cluster, job, work_directory
from bench.support.report import Table, framed, progress
from bench.support.stamps import Stamps, build
from bench.support.torchrun import is_there, torchrun
from tests.support import slurm_cluster
from tests.support.slurm_cluster import Slurm

from holdfast.client import Client

START_S = 60.0
PAUSE_S = 0.7
"""Between two jobs: a user's next job comes later than the moment in which a host gets its spare shim ready."""


async def submitted(client: Client, program: Path, stamps: Stamps, replicas: int) -> float:
    """Milliseconds from CreateJob to the first instruction of the last worker."""
    wanted = job([str(program), str(stamps.path), "exit"], replicas=replicas)
    asked_at = time.monotonic()
    created = await client.create_job(wanted)
    born = await asyncio.to_thread(stamps.wait, replicas, START_S, asked_at)
    await await_end(client, created.id)
    return (max(stamp.at for stamp in born) - asked_at) * 1000


def by_torchrun(program: Path, stamps: Stamps, processes: int) -> float:
    """Milliseconds from torchrun's start to the first instruction of its last process."""
    asked_at = time.monotonic()
    with torchrun([str(program), str(stamps.path)], processes, stamps.path.with_suffix(".log")):
        born = stamps.wait(processes, START_S, asked_at)
    return (max(stamp.at for stamp in born) - asked_at) * 1000


@contextlib.contextmanager
def slurm_here() -> Iterator[Slurm | None]:
    """A Slurm whose nodes wait for work; None where it isn't installed."""
    if why := slurm_cluster.missing():
        progress(f"without srun: {why}")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, slurm_cluster.running(Path(folder)) as slurm:
        yield slurm


def by_srun(slurm: Slurm, program: Path, stamps: Stamps, tasks: int) -> float:
    """Milliseconds from srun's start, which allocates, to the first instruction of its last task."""
    nodes = min(tasks, slurm_cluster.NODES)
    command = ["srun", f"--nodes={nodes}", f"--ntasks={tasks}", str(program), str(stamps.path), "exit"]
    asked_at = time.monotonic()
    step = subprocess.Popen(command, env=slurm.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    born = stamps.wait(tasks, START_S, asked_at)
    if step.wait(START_S):
        raise RuntimeError(f"srun ended with {step.returncode}")
    return (max(stamp.at for stamp in born) - asked_at) * 1000


def timed(command: Sequence[str], env: dict[str, str] | None = None) -> float:
    """Milliseconds of a whole command."""
    began = time.monotonic()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (time.monotonic() - began) * 1000


async def compare(
    cluster: DevCluster, slurm: Slurm | None, program: Path, replicas: int, runs: int, table: Table
) -> None:
    """One gang shape; Holdfast, srun and torchrun in turns."""
    stamps = Stamps(cluster.directory / f"submitted-{replicas}")
    ours: list[float] = []
    theirs: list[float] = []
    slurms: list[float] = []
    async with cluster.client() as client:
        await submitted(client, program, stamps, replicas)
        for turn in range(runs):
            await asyncio.sleep(PAUSE_S)
            ours.append(await submitted(client, program, stamps, replicas))
            if slurm is not None:
                await asyncio.sleep(PAUSE_S)
                slurms.append(await asyncio.to_thread(by_srun, slurm, program, stamps, replicas))
            if turn % 5 == 0 and is_there():
                theirs.append(await asyncio.to_thread(by_torchrun, program, stamps, replicas))
            if turn % 10 == 9:
                progress(f"{replicas} workers: {turn + 1} of {runs}")
    what = "one worker" if replicas == 1 else f"gang of {replicas} on four agents"
    table.add(f"{what}: Holdfast", ours)
    if slurms:
        table.add(f"{what}: srun", slurms, "its own allocation each time")
    table.add(f"{what}: torchrun", theirs, "started for the job, all on one node")


def command_line(cluster: DevCluster, runs: int, table: Table) -> None:
    """Whole commands, in turns."""
    script = [sys.executable, "-m", "holdfast"]
    with contextlib.suppress(FileNotFoundError):
        if (entry := Path(sys.executable).with_name("holdfast")).exists():
            script = [str(entry)]
    commands = {
        "holdfast run -- /bin/true": [*script, "run", "--", "/bin/true"],
        "holdfast --help": [*script, "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            time.sleep(PAUSE_S / 2)
            took[name].append(timed(command, cluster.env))
    for name, values in took.items():
        table.add(name, values)


async def main() -> None:
    """One worker, a gang of eight, the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="(%(default)s; torchrun has every fifth turn)")
    options = parser.parse_args()
    table = Table("From submission to the first instruction", "ms")
    whole = Table("The command line, from its start to its end", "ms")
    with framed():
        with work_directory() as directory:
            program = build(directory)
            with slurm_here() as slurm:
                with dev_cluster(directory / "one") as cluster:
                    await compare(cluster, slurm, program, 1, options.runs, table)
                    command_line(cluster, options.runs, whole)
                with dev_cluster(directory / "four", hosts=4) as cluster:
                    await compare(cluster, slurm, program, 8, options.runs, table)
        table.print()
        whole.print()


if __name__ == "__main__":
    asyncio.run(main())
