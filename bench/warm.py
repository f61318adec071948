"""What a warm start saves when a rank dies: from the last step to the next new one, cold, warm and in process in turns.

The same real PyTorch DDP training as in ddp_recovery.py. Two jobs take turns on one cluster, the one paused while the
other's ranks are killed. A warm one is killed once its page says that its next ranks wait.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time

from bench.ddp_recovery import TRAIN, Steps, rank_pids, recover, training
from bench.support.cluster import DevCluster, dev_cluster, job, running, work_directory
from bench.support.report import Table, framed, progress
from bench.support.stamps import TooSlow
from bench.support.torchrun import is_there

from holdfast.client import Client
from holdfast.v1 import job_pb2, spec_pb2

START_S, RECOVER_S = 300.0, 300.0
PREPARED_S = 300.0
"""Preparing runs at the lowest priority, beside ranks that leave no processor idle."""


async def is_prepared(client: Client, job_id: str) -> None:
    """Wait until the ranks of the job's next generation are parked. Raises ``TooSlow``."""
    deadline = time.monotonic() + PREPARED_S
    said: list[str] = []
    while time.monotonic() < deadline:
        said = [worker.warm for worker in (await client.get_job(job_id)).workers]
        if all(" wait in " in each for each in said):
            return
        await asyncio.sleep(0.5)
    raise TooSlow(f"nothing was prepared within {PREPARED_S:g} s: {said}")


MODES = {
    "cold": spec_pb2.WARM_MODE_OFF,
    "warm": spec_pb2.WARM_MODE_AUTO,
    "in process": spec_pb2.WARM_MODE_IN_PROCESS,
}


async def measure(cluster: DevCluster, ranks: int, hosts: int, runs: int, *, kind: str, table: Table) -> None:
    """``runs`` recoveries of one job; a warm one's are checked to be so."""
    warm = kind != "cold"
    shape = f"{hosts}×{ranks}"
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(cluster.client())
        command = [sys.executable, *training(cluster.directory / f"{kind.replace(' ', '-')}-{shape}")]
        if kind == "in process":
            command[1] = str(TRAIN.with_name("restartable.py"))
        env = {"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
        wanted = job(command, processes=ranks, replicas=hosts, env=env)
        wanted.job_spec.fault_tolerance.warm.mode = MODES[kind]
        job_id = await stack.enter_async_context(running(client, wanted))
        steps = Steps(lambda: cluster.logs(job_id) / "latest" / "workerpool0-0.r0.out")
        await steps.reach(1, START_S)
        took: list[float] = []
        memory = ""
        for turn in range(runs):
            if warm:
                await is_prepared(client, job_id)
                memory = (await client.get_job(job_id)).workers[0].warm
            progress(f"{shape} {kind}: {turn + 1} of {runs}")
            took.append(await recover(steps, lambda: rank_pids(client, job_id), RECOVER_S))
        recoveries: list[job_pb2.Recovery] = list((await client.get_job(job_id)).recoveries)
        was_warm = sum(each.warm for each in recoveries)
        went_on = sum(each.in_process_ranks for each in recoveries)
        how = f"{was_warm} of {len(recoveries)} warm; " + (f"{went_on} ranks went on; " if went_on else "")
        table.add(f"{shape}: {kind}", took, how + memory if warm else "")


async def main() -> None:
    """One host, then two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each kind and shape (%(default)s)")
    parser.add_argument("--one", action="store_true", help="one host alone")
    parser.add_argument("--warm", action="store_true", help="without cold starts")
    options = parser.parse_args()
    if not is_there():
        raise SystemExit("This needs torch: pip install torch==2.13.0")
    table = Table("PyTorch DDP on gloo, a rank killed: last step to next new step", "s")
    with framed():
        with work_directory() as directory:
            for hosts, ranks in ((1, 4),) if options.one else ((1, 4), (2, 2)):
                with dev_cluster(directory / f"on-{hosts}", hosts=hosts) as cluster:
                    for kind in list(MODES)[options.warm :]:
                        await measure(cluster, ranks, hosts, options.runs, kind=kind, table=table)
        table.print()


if __name__ == "__main__":
    asyncio.run(main())
