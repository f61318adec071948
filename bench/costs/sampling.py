"""What sampling costs: `python -m bench.costs.sampling [SECONDS]`. In percent of one core, at the default intervals.

Eight ranks of 40 threads, each with eight loaders and 200 open files, printing ten lines a second, and eight GPUs
read through the scripted NVML where there is a C compiler (its cost is in the helper's figure: it reads its script
at every call). The sampler runs as in the agent; what an idle event loop takes is taken off.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
from tests.support.fake_nvml.library import FakeNvml, build

from holdfast._session.reports import WorkerId
from holdfast.hang.records.recording import WorkerSample
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, log_paths, progress_dir
from holdfast_agent.gpu.reader import NvmlSource
from holdfast_agent.shell.output.log_index import make_directories
from holdfast_agent.shell.sampling.sampler import Sampler
from holdfast_agent.shell.sampling.worker import Watched

RANKS, LOADERS, THREADS, FILES, GPUS = 8, 8, 40, 200, 8
RANK = f"""
import os, sys, threading, time
from holdfast.training.progress_calls import progress
held = [open("/dev/null") for _ in range({FILES})]
for _ in range({LOADERS}):
    if os.fork() == 0:
        time.sleep(3600)
        os._exit(0)
for _ in range({THREADS}):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
step = 0
while True:
    step += 1
    progress(step=step)
    print(f"step {{step}} loss 0.123", flush=True)
    time.sleep(0.1)
"""
KEY = WorkerId("job-1", "workerpool0-0")


def cpu_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return sum(map(int, stat[stat.rindex(")") + 2 :].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def start_ranks(facts: HostFacts) -> list[subprocess.Popen[bytes]]:
    make_directories(facts, KEY, 1)
    ranks = []
    for rank in range(RANKS):
        out, err = log_paths(facts, KEY, 1, rank)
        env = {**os.environ, "RANK": str(rank), "HOLDFAST_PROGRESS_DIR": progress_dir(facts, KEY, 1)}
        with open(out, "ab") as stdout, open(err, "ab") as stderr:
            command = [sys.executable, "-c", RANK]
            ranks.append(subprocess.Popen(command, env=env, stdout=stdout, stderr=stderr, start_new_session=True))
    return ranks


async def measure(sampler: Sampler | None, seconds: float) -> float:
    """Percent of one core that this process takes; the ticks' threads included."""
    async with anyio.create_task_group() as tasks:
        if sampler is not None:
            tasks.start_soon(sampler.run)
            await anyio.sleep(5)  # past the first look at everything
        began, cpu = time.monotonic(), time.process_time()
        await anyio.sleep(seconds)
        share = (time.process_time() - cpu) / (time.monotonic() - began) * 100
        tasks.cancel_scope.cancel()
    return share


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    ranks: list[subprocess.Popen[bytes]] = []
    samples: list[WorkerSample] = []
    try:
        facts = HostFacts("host-0", str(folder / "logs"), str(folder), WorkerUser("", "/", "/bin/sh"), 1)
        ranks = start_ranks(facts)
        if shutil.which("cc"):
            fake = FakeNvml(build(folder), folder / "nvml.script")
            os.environ.update(fake.env)
            fake.gpus(GPUS)
            fake.say(*(f"energy {i} 1000000" for i in range(GPUS)), *(f"util {i} 97 60" for i in range(GPUS)))
            fake.say(*(f"field {i} {field} 5" for i in range(GPUS) for field in (138, 139, 197, 198)))
            fake.say(*(f"gpm {i} {metric} 50" for i in range(GPUS) for metric in (1, 2, 10)))
        time.sleep(2)
        source = NvmlSource()

        def watched() -> Iterator[Watched]:
            yield Watched(
                KEY,
                1,
                os.getpid(),
                {rank: process.pid for rank, process in enumerate(ranks)},
                {},
                tuple(f"GPU-{i}" for i in range(GPUS)),
            )

        sampler = Sampler(facts, source, watched, samples.append)

        async def run() -> tuple[float, float, float]:
            idle = await measure(None, seconds / 4)
            await source.inventory()
            helper = source.helper_pid
            before = cpu_s(helper) if helper else 0.0
            share = await measure(sampler, seconds)
            spent = (cpu_s(helper) - before) / (seconds + 5) * 100 if helper else 0.0
            await source.aclose()
            return idle, share, spent

        idle, share, helper = anyio.run(run)
        last = samples[-1]
        print(
            f"{RANKS} ranks x ({THREADS} threads, {LOADERS} loaders, {FILES} files), {GPUS} GPUs, {seconds:.0f} s"
        )
        print(f"processes on this host           {sum(1 for name in os.listdir('/proc') if name.isdigit())}")
        print(
            f"samples, lines, last step        {len(samples)}, {sum(len(s.lines) for s in samples)},"
            f" {last.progress[0].step if last.progress else None}; GPU read: {last.ranks[0].gpu is not None}"
        )
        print(f"sampling                         {share - idle:.3f} % of a core (bound: 0.5)")
        print(f"GPU helper, scripted driver      {helper:.3f} % of a core")
    finally:
        for rank in ranks:
            os.killpg(rank.pid, 9)
            rank.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
