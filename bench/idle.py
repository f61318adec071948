"""What a host pays while nothing happens: memory and CPU of the agent with 8 idle workers, and of the controller.

torchrun's launcher with 8 idle workers stands beside it. Memory is PSS, so pages that processes share are counted
once; MB are 10^6 bytes. CPU is of one core, over the time that --seconds says.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from bench.support.cluster import DevCluster, dev_cluster, job, running, work_directory
from bench.support.report import framed, number, progress
from bench.support.stamps import Stamps, build
from bench.support.torchrun import is_there, torchrun
from bench.support.usage import children, command, own_cpu_s, pss_mb

WORKERS = 8
SETTLE_S = 5.0
START_S = 60.0
ROUNDS = 5


def parts_of(cluster: DevCluster, worker_pids: list[int]) -> dict[str, list[int]]:
    """The cluster's processes by what they are."""
    agent = cluster.agent_pid()
    helpers = [pid for pid in children(agent) if "gpu.helper" in command(pid)]
    template = [pid for pid in children(agent) if pid not in helpers]
    spares = [pid for parent in template for pid in children(parent)]
    shims = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in worker_pids}
    return {
        "agent": [agent],
        "shims, 8 of them": sorted(shims),
        "shims' template and spares": [*template, *(pid for pid in spares if pid not in shims)],
        "GPU helper": helpers,
        "controller": [cluster.controller_pid],
    }


def rows(parts: dict[str, list[int]], seconds: float) -> list[tuple[str, str, str, str]]:
    """One for each part: processes, MB at the end of each of some rounds, CPU over all of them."""
    before = {name: sum(own_cpu_s(pid) for pid in pids) for name, pids in parts.items()}
    memory: dict[str, list[float]] = {name: [] for name in parts}
    began = time.monotonic()
    for turn in range(ROUNDS):
        time.sleep(max(0.0, began + (turn + 1) * seconds / ROUNDS - time.monotonic()))
        for name, pids in parts.items():
            memory[name].append(sum(pss_mb(pid) for pid in pids))
    took = time.monotonic() - began
    made = []
    for name, pids in parts.items():
        cpu = (sum(own_cpu_s(pid) for pid in pids) - before[name]) / took * 100
        values = sorted(memory[name])
        spread = f"{number(values[ROUNDS // 2])} ({number(values[0])}–{number(values[-1])})"
        made.append((name, str(len(pids)), spread if pids else "none runs", f"{cpu:.2f} %"))
    return made


async def main() -> None:
    """Both at once, since both are idle."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0, help="to watch (%(default)s)")
    parser.add_argument("--gpus", type=int, default=0, help="simulated ones; with 0 the GPU helper runs if it can")
    options = parser.parse_args()
    with framed():
        with work_directory() as directory:
            program, stamps = build(directory), Stamps(directory / "stamps")
            with dev_cluster(directory / "cluster", gpus=options.gpus) as cluster:
                async with cluster.client() as client:
                    wanted = job([str(program), str(stamps.path)], replicas=WORKERS)
                    async with running(client, wanted):
                        born = await asyncio.to_thread(stamps.wait, WORKERS, START_S)
                        await asyncio.sleep(SETTLE_S)
                        progress(f"watching for {options.seconds:g} s")
                        parts = parts_of(cluster, [stamp.pid for stamp in born])
                        found = await asyncio.to_thread(rows, parts, options.seconds)
            if is_there():
                theirs = Stamps(directory / "theirs")
                arguments = [str(program), str(theirs.path)]
                with torchrun(arguments, WORKERS, directory / "torchrun.log") as launchers:
                    await asyncio.to_thread(theirs.wait, WORKERS, START_S)
                    await asyncio.sleep(SETTLE_S)
                    progress(f"watching torchrun for {options.seconds:g} s")
                    found += rows({"torchrun's launcher": launchers}, options.seconds)
        print(f"\n### Idle, {WORKERS} workers on one host, over {options.seconds:g} s\n")
        print("|  | processes | PSS in MB: median (min–max) of 5 | CPU of a core |\n| --- | --- | --- | --- |")
        for row in found:
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    asyncio.run(main())
