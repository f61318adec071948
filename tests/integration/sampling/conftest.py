"""A sampler over real processes, ticked by hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast._session.reports import WorkerId
from holdfast.hang.pipeline.frame_waits import StackWait
from holdfast.hang.pipeline.samples import RankSample
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.hang.records.recording import WorkerSample
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, log_paths, progress_dir
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.output.log_index import make_directories
from holdfast_agent.shell.sampling import holders
from holdfast_agent.shell.sampling import waits as sampling_waits
from holdfast_agent.shell.sampling.sampler import Sampler
from holdfast_agent.shell.sampling.tree import NO_TOOLS, DumpTools
from holdfast_agent.shell.sampling.worker import Watched

KEY = WorkerId("job-1", "workerpool0-0")
SAY_UP = (
    "import multiprocessing, os, signal, socket, sqlite3, subprocess, sys, threading, time, urllib.request\n"
    "os.write(1, b'up\\n')\n"
)
"""What takes long to import is loaded before: on a busy machine that is a wait for files."""


@dataclass
class Stage:
    """One worker whose ranks this process starts, as a shim would."""

    facts: HostFacts
    gpus: tuple[str, ...] = ()
    deadline_s: float = 5.0
    ranks: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    samples: list[WorkerSample] = field(default_factory=list)
    generation: int = 1
    running: bool = True
    peers: tuple[str, ...] = ()
    world_size: int = 1
    stacks: dict[int, StackWait] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_directories(self.facts, KEY, self.generation)
        self.sampler = self.make_sampler()

    def make_sampler(self, tools: DumpTools = NO_TOOLS) -> Sampler:
        source = SimulatedSource("h", len(self.gpus))
        sampler = Sampler(
            self.facts,
            source,
            self.watched,
            self.samples.append,
            tools=tools,
            deadline_s=self.deadline_s,
        )
        source.on_xids = sampler.gpus.hear
        return sampler

    def watched(self) -> Iterator[Watched]:
        if self.running:
            pids = {rank: process.pid for rank, process in self.ranks.items()}
            yield Watched(
                KEY,
                self.generation,
                os.getpid(),
                pids,
                dict(self.ended),
                self.gpus,
                peers=self.peers,
                stacks=self.stacks,
                world_size=self.world_size,
            )

    def start(self, code: str = "", *, rank: int = 0, command: Sequence[str] = (), up: bool = True) -> int:
        """A rank that runs ``code`` after it has said so; returns its pid."""
        out, err = log_paths(self.facts, KEY, self.generation, rank)
        env = {**os.environ, "RANK": str(rank), "HOLDFAST_PROGRESS_DIR": self.progress_dir}
        argv = list(command) or [sys.executable, "-c", SAY_UP + code]
        with open(out, "ab") as stdout, open(err, "ab") as stderr:
            self.ranks[rank] = subprocess.Popen(argv, env=env, stdout=stdout, stderr=stderr, start_new_session=True)
        return self.ranks[rank].pid

    @property
    def progress_dir(self) -> str:
        return progress_dir(self.facts, KEY, self.generation)

    def output(self, rank: int = 0) -> Path:
        return Path(log_paths(self.facts, KEY, self.generation, rank)[0])

    async def up(self, rank: int = 0) -> None:
        await self.until(lambda: self.output(rank).read_bytes().startswith(b"up\n"), "the rank's first word")

    async def tick(self) -> WorkerSample:
        """One more sample."""
        before = len(self.samples)
        await self.sampler.tick()
        assert len(self.samples) == before + 1
        return self.samples[-1]

    async def rank(self, rank: int = 0) -> RankSample:
        """One more sample of one rank."""
        return next(one for one in (await self.tick()).ranks if one.rank == rank)

    async def sampled(self, found: Callable[[WorkerSample], bool], what: str) -> WorkerSample:
        """Sample until one is ``found``."""
        for _ in range(200):
            sample = await self.tick()
            if found(sample):
                return sample
            await asyncio.sleep(0.05)
        raise AssertionError(f"never sampled {what}; the last was {self.samples[-1]}")

    async def pause(self) -> None:
        await asyncio.sleep(0.05)

    async def until(self, found: Callable[[], bool], what: str) -> None:
        for _ in range(400):
            with contextlib.suppress(FileNotFoundError):
                if found():
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never saw {what}")

    def close(self) -> None:
        self.sampler.close()
        for process in self.ranks.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what was read for moments only: a test's programs get from one wait into the next."""
    monkeypatch.setattr(sampling_waits, "RECHECK_S", 0.5)
    monkeypatch.setattr(sampling_waits, "CHILD_RECHECK_S", 0.5)
    monkeypatch.setattr(holders, "KEPT_S", 0.5)


@pytest.fixture
def facts(tmp_path: Path) -> HostFacts:
    (tmp_path / "logs").mkdir()
    return HostFacts("host-0", str(tmp_path / "logs"), str(tmp_path), WorkerUser("", "/", "/bin/sh"), 1)


@pytest.fixture
async def stage(facts: HostFacts) -> AsyncIterator[Stage]:
    made = Stage(facts)
    yield made
    made.close()


async def waits(stage: Stage, kind: WaitKind, rank: int = 0) -> Wait:
    """A wait of that kind that the rank has got into, seen twice the same."""
    before: list[Wait | None] = [None]

    def settled(sample: WorkerSample) -> bool:
        wait = next(one.wait for one in sample.ranks if one.rank == rank)
        same = (
            wait is not None
            and before[0] is not None
            and (wait.kind, wait.what) == (before[0].kind, before[0].what)
        )
        before[0] = wait
        return same and wait is not None and wait.kind is kind

    await stage.sampled(settled, kind.value)
    wait = before[0]
    assert wait is not None
    assert wait.since_s is not None and wait.since_s <= time.monotonic()
    return wait


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server on loopback that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []
        threading.Thread(target=lambda: _accept(server, kept), daemon=True).start()
        yield server.getsockname()[1]
        for one in kept:
            one.close()
        server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, kept: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while True:
            kept.append(server.accept()[0])
