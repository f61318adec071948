"""Cost of seeing what ranks wait for: `python -m bench.costs.waits [RANKS] [SECONDS]`. In percent of one core.

Ranks that all hang at once, the dearest case: a third receives from its neighbour, a third waits for a lock, a third
sleeps in a loop. Sampled as in the agent, without waits and with them; then their frames are read as the agent does.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from holdfast._session.reports import WorkerId
from holdfast.hang.records.recording import WorkerSample
from holdfast.hang.worker_watch import WorkerWatch
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.evidence import Examiner
from holdfast_agent.shell.hangs.stack_watch import StackWatch
from holdfast_agent.shell.output.log_index import make_directories
from holdfast_agent.shell.sampling.sampler import Sampler
from holdfast_agent.shell.sampling.waits import WaitReader
from holdfast_agent.shell.sampling.worker import Watched

KEY = WorkerId("job-1", "workerpool0-0")
RANK = """
import os, socket, sys, threading, time
rank, port = int(sys.argv[1]), int(sys.argv[2])
if rank % 3 == 0:
    server = socket.create_server(("127.0.0.1", port + rank))
    server.accept()[0].recv(1)
elif rank % 3 == 1:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port + rank - 1)).recv(1)
        except OSError:
            time.sleep(0.2)
elif rank % 6 == 2:
    threading.Event().wait()
while True:
    time.sleep(0.5)
"""
PORT = 21000


class Host:
    """Ranks that hang, and the agent's parts that look at them."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.facts = HostFacts("host-0", str(folder), str(folder), WorkerUser("", "/", "/bin/sh"), 2)
        make_directories(self.facts, KEY, 1)
        command = [sys.executable, "-S", "-E", "-c", RANK]
        self.ranks = [
            subprocess.Popen([*command, str(rank), str(PORT)], env={"RANK": str(rank)}, start_new_session=True)
            for rank in range(ranks)
        ]
        self.source = SimulatedSource("h", 0)
        self.stacks = StackWatch(Examiner(lambda: self.facts, self.source).python_frames)
        self.watch = WorkerWatch("host-0", 1)
        self.kinds: dict[str, int] = {}

    def watched(self) -> Iterator[Watched]:
        """One worker with all ranks."""
        pids = {rank: process.pid for rank, process in enumerate(self.ranks)}
        yield Watched(KEY, 1, os.getpid(), pids, {}, stacks=self.stacks.found(KEY))

    def on_sample(self, sample: WorkerSample) -> None:
        """Fold a sample in, as the agent does."""
        self.stacks.note(KEY, sample, self.watch.take(sample))
        self.kinds = {}
        for rank in sample.ranks:
            name = rank.wait.kind.name if rank.wait else "NONE"
            self.kinds[name] = self.kinds.get(name, 0) + 1

    async def measure(self, seconds: float, *, frames: bool) -> tuple[float, float]:
        """Percent of a core of this process and of the tools that it runs."""
        sampler = Sampler(self.facts, self.source, self.watched, self.on_sample)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sampler.run)
            await anyio.sleep(8)  # past the first look at everything
            if frames:
                tasks.start_soon(self.stacks.run)
            began, cpu, tools = time.monotonic(), time.process_time(), _children_s()
            await anyio.sleep(seconds)
            elapsed = (time.monotonic() - began) / 100
            shares = (time.process_time() - cpu) / elapsed, (_children_s() - tools) / elapsed
            tasks.cancel_scope.cancel()
        return shares


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def main(ranks: int, seconds: float) -> None:
    """Print the three shares."""
    with tempfile.TemporaryDirectory() as folder:
        host = Host(Path(folder), ranks)
        try:
            await anyio.sleep(min(30.0, 2 + ranks * 0.15))
            read = WaitReader.read
            WaitReader.read = lambda *_: None  # type: ignore[method-assign]
            without, _ = await host.measure(seconds, frames=False)
            WaitReader.read = read  # type: ignore[method-assign]
            with_waits, _ = await host.measure(seconds, frames=False)
            print(f"{ranks} ranks, all still: {host.kinds}")
            each_us = (with_waits - without) / 100 * 2.0 / ranks * 1e6
            print(f"sampling {without:.2f} %, with waits {with_waits:.2f} %: {each_us:.0f} µs per rank and sample")
            for part in ("first", "second", "third"):
                own, tools = await host.measure(seconds, frames=True)
                print(f"frames, {part} {seconds:.0f} s: agent {own:.2f} %, tools {tools:.2f} %; {host.kinds}")
        finally:
            for process in host.ranks:
                process.kill()
                process.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the ranks are in sessions of their own
    anyio.run(
        main, int(sys.argv[1]) if len(sys.argv) > 1 else 128, float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    )
