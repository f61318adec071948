"""Gangs of real processes, of which one gets slow: ``python -m bench.stragglers real [NAME ...] [--record FOLDER]``.

Four ranks of a PyTorch DDP training on gloo (``rank.py``) as if on two hosts, each host with the sampler and the fold
of an agent, and the judge of the controller over both. What is left out is the network between them. Time is
compressed five times: slots of six seconds stand for those of half a minute, and samples are as much closer.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from statistics import median

import psutil

from holdfast._session.reports import WorkerId
from holdfast.hang import worker_watch
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast.hang.records.recording import WorkerSample
from holdfast.hang.worker_watch import WorkerWatch
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, log_paths
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.output.log_index import make_directories
from holdfast_agent.shell.sampling import waits as sampled_waits
from holdfast_agent.shell.sampling import worker as sampled_worker
from holdfast_agent.shell.sampling.sampler import Sampler
from holdfast_agent.shell.sampling.worker import Watched
from holdfast_controller.core.lifecycle.slowness import LOOK_EVERY_S, is_apart, newest_step
from holdfast_controller.core.model.slowness import SlowWatch
from holdfast_controller.core.slowness.judge import judge
from holdfast_controller.core.slowness.pace import Look
from holdfast_controller.core.slowness.thresholds import TUNING

PROGRAM = Path(__file__).with_name("rank.py")
RANKS, HOSTS, GUILTY = 4, 2, 2
SCALE = 1 / 5
SCALED = replace(TUNING, slot_s=TUNING.slot_s * SCALE, pause_s=TUNING.pause_s * SCALE)
TICK_S = 2.0 * SCALE
WELL_S = 450 * SCALE
"""Long enough for a job to have shown its best."""
WATCHED_S = 420 * SCALE
CGROUP = Path("/sys/fs/cgroup/cpu")


@dataclass(frozen=True)
class Case:
    """Something done to a gang from outside, or by its own program. ``named``: the ranks that may be named."""

    name: str
    outside: str = ""
    amount: float = 0.0
    named: frozenset[int] = frozenset()
    well_s: float = WELL_S
    watched_s: float = WATCHED_S
    guilty: int = GUILTY
    shape: tuple[tuple[str, str], ...] = ()
    """Settings of ``rank.py`` by name, as its environment."""


STRAGGLERS = (
    Case("stopped for a third of its time", "stop", 0.33, frozenset({GUILTY})),
    Case("stopped for half of its time", "stop", 0.5, frozenset({GUILTY})),
    Case("a twentieth of a core", "quota", 0.05, frozenset({GUILTY})),
    Case("a thirtieth of a core", "quota", 0.033, frozenset({GUILTY})),
)
NO_STRAGGLER = tuple(
    map(Case, ("more work", "uneven data", "one rank's loader", "storage of all", "storage of one", "slow network"))
)
HEALTHY = tuple(
    Case(name, well_s=0.0, watched_s=900 * SCALE)
    for name in ("even", "evaluations", "checkpoints", "lengths", "warm-up")
)
CASES = STRAGGLERS + NO_STRAGGLER + HEALTHY


@dataclass
class Outcome:
    """The end of a case: seconds since the fault, in the job's time; by how much a step took longer."""

    slow_s: float | None = None
    named: dict[frozenset[int], float] = field(default_factory=dict)
    waited_for: set[int] = field(default_factory=set)
    slower: float | None = None
    looks: int = 0
    took_longer: float | None = None
    """The same from the steps before and after, of every case."""


class Gang:
    """A gang of real processes under the eyes of two agents."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        (folder / "work").mkdir()
        user = WorkerUser("", "/", "/bin/sh")
        self.facts = [HostFacts(f"host-{n}", str(folder / f"logs{n}"), str(folder), user, 2) for n in range(HOSTS)]
        self.keys = [WorkerId("job", f"workerpool0-{n}") for n in range(HOSTS)]
        self.folds = [WorkerWatch(facts.name, 1) for facts in self.facts]
        self.newest: dict[int, WorkerFeatures] = {}
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self._well = (0.0, 0.0)

    def start(self) -> None:
        """All ranks, as shims would start them; each host has a core of its own."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        env |= {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1"}
        for facts, key in zip(self.facts, self.keys, strict=True):
            Path(facts.log_dir).mkdir()
            make_directories(facts, key, 1)
        for number in range(RANKS):
            host = self.host(number)
            out, err = log_paths(self.facts[host], self.keys[host], 1, number)
            with open(out, "ab") as stdout, open(err, "ab") as stderr:
                self.ranks[number] = subprocess.Popen(
                    [sys.executable, str(PROGRAM), self.case.name, str(self.case.guilty)],
                    env=env | {"RANK": str(number)} | dict(self.case.shape),
                    cwd=self.folder / "work",
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            os.sched_setaffinity(self.ranks[number].pid, self.cores(host))

    @staticmethod
    def host(rank: int) -> int:
        return rank * HOSTS // RANKS

    @staticmethod
    def cores(host: int) -> set[int]:
        every = sorted(os.sched_getaffinity(0))
        return set(every[host::HOSTS]) or set(every)

    def watched(self, host: int) -> Iterator[Watched]:
        """The ranks of a host, for its sampler."""
        pids = {n: process.pid for n, process in self.ranks.items() if self.host(n) == host}
        yield Watched(self.keys[host], 1, os.getpid(), pids, {}, world_size=RANKS)

    def on_sample(self, host: int, sample: WorkerSample) -> None:
        """Send news only, like the agent."""
        fold = self.folds[host]
        vector = fold.take(sample)
        if fold.is_news(vector):
            self.newest[host] = fold.sent = vector

    def look(self) -> Look | None:
        """The controller's next look, once it has heard of all."""
        vectors = list(self.newest.values())
        if len(vectors) < HOSTS:
            return None
        at_s, step = newest_step(vectors)
        times = {
            rank.rank: (vector.host, vector.at_s, rank.times)
            for vector in vectors
            for rank in vector.ranks
            if rank.times is not None
        }
        return Look(at_s, step, any(map(is_apart, vectors)), times)

    def check(self) -> None:
        """Raise what a rank said, if one has ended."""
        for number, process in self.ranks.items():
            if process.poll() is not None:
                err = log_paths(self.facts[self.host(number)], self.keys[self.host(number)], 1, number)[1]
                raise RuntimeError(f"rank {number} has ended: {Path(err).read_text()[-2000:]}")

    def close(self) -> None:
        """Leave nothing behind."""
        for process in self.ranks.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # --- What is done to it from outside ------------------------------------------------------------------------

    @asynccontextmanager
    async def harm(self) -> AsyncIterator[None]:
        """Do it while within."""
        (self.folder / "work" / "began").touch()
        match self.case.outside:
            case "stop":
                stopping = asyncio.get_running_loop().create_task(self._stop_and_go())
                try:
                    yield
                finally:
                    stopping.cancel()
                    await asyncio.gather(stopping, return_exceptions=True)
            case "quota" | "slowed":
                group = CGROUP / f"straggler{os.getpid()}-{id(self)}"
                group.mkdir()
                try:
                    period_us, share = self._quota()
                    (group / "cpu.cfs_period_us").write_text(str(period_us))
                    (group / "cpu.cfs_quota_us").write_text(str(round(share * period_us)))
                    (group / "cgroup.procs").write_text(str(self.ranks[self.case.guilty].pid))
                    yield
                finally:
                    (CGROUP / "cgroup.procs").write_text(str(self.ranks[self.case.guilty].pid))
                    group.rmdir()
            case _:
                yield

    def _quota(self) -> tuple[int, float]:
        """A period, and the part of it that the guilty rank may have a core."""
        if self.case.outside == "quota":
            return 100_000, self.case.amount
        # What it computes takes so much of a step longer; a step less, since a rank that is late waits less for
        # others. The period is shorter than what it computes at a stretch.
        cpu_s, at_s = (now - before for now, before in zip(self._spent(), self._well, strict=True))
        return 10_000, max(cpu_s / (cpu_s + self.case.amount * at_s), 0.1)

    def _spent(self) -> tuple[float, float]:
        """The processor's time of the guilty rank so far, and when."""
        times = psutil.Process(self.ranks[self.case.guilty].pid).cpu_times()
        return times.user + times.system, time.monotonic()

    def mark(self) -> None:
        """Note that it trains from now on."""
        self._well = self._spent()

    async def _stop_and_go(self) -> None:
        pid, rng = self.ranks[self.case.guilty].pid, random.Random(1)
        try:
            while True:
                period_s = rng.uniform(0.3, 0.9)
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(period_s * self.case.amount)
                os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(period_s * (1 - self.case.amount))
        finally:
            os.kill(pid, signal.SIGCONT)


async def play(case: Case, folder: Path, record: Path | None) -> Outcome:
    """One case: a time in which all is well, then what it is about."""
    gang, outcome = Gang(case, folder), Outcome()
    samplers = [
        Sampler(
            gang.facts[host],
            SimulatedSource("h", 0),
            lambda host=host: gang.watched(host),  # type: ignore[misc]
            lambda sample, host=host: gang.on_sample(host, sample),  # type: ignore[misc]
        )
        for host in range(HOSTS)
    ]
    watch, looks = SlowWatch(), []
    gang.start()
    try:
        while gang.look() is None or gang.look().step is None:  # type: ignore[union-attr]
            await _tick(samplers)
            gang.check()
        start_s = time.monotonic()
        gang.mark()
        async with contextlib.AsyncExitStack() as harmed:
            began_s: float | None = None
            looked_s = 0.0
            while began_s is None or time.monotonic() < began_s + case.watched_s:
                await _tick(samplers)
                gang.check()
                if began_s is None and time.monotonic() >= start_s + case.well_s:
                    await harmed.enter_async_context(gang.harm())
                    began_s = time.monotonic()
                if time.monotonic() - looked_s < LOOK_EVERY_S * SCALE:
                    continue
                looked_s = time.monotonic()
                look = gang.look()
                assert look is not None
                looks.append((began_s is not None, look))
                _note(outcome, watch, look, began_s)
        outcome.looks, outcome.took_longer = len(looks), _took_longer(looks)
    finally:
        for sampler in samplers:
            sampler.close()
        gang.close()
    if record is not None:
        write(file_of(record, case), looks)
    return outcome


def _took_longer(looks: Sequence[tuple[bool, Look]]) -> float | None:
    """By how much a step took longer once the fault had begun."""
    paces = []
    for began in (False, True):
        steps = [(look.at_s, look.step) for is_after, look in looks if is_after is began and look.step is not None]
        # From the second quarter on: torch compiles, and a fault takes its time to be felt.
        steps = steps[len(steps) // 4 :]
        if len(steps) < 2 or steps[-1][1] <= steps[0][1]:
            return None
        paces.append((steps[-1][0] - steps[0][0]) / (steps[-1][1] - steps[0][1]))
    return paces[1] / paces[0] - 1


async def _tick(samplers: Sequence[Sampler]) -> None:
    await asyncio.sleep(TICK_S)
    for sampler in samplers:
        await sampler.tick()


def _note(outcome: Outcome, watch: SlowWatch, look: Look, began_s: float | None) -> None:
    found = judge(watch, look, 1, SCALED)
    if not found.news:
        return
    since_s = (time.monotonic() - (began_s if began_s is not None else time.monotonic())) / SCALE
    if began_s is not None and watch.best_ms:
        after = [slot.step_ms for slot in watch.slots if slot.start_s >= began_s]
        outcome.slower = median(after) / watch.best_ms - 1 if after else None
    if found.slow is None:
        return
    outcome.slow_s = since_s if outcome.slow_s is None else outcome.slow_s
    if found.slow.waited_for is not None:
        outcome.waited_for.add(found.slow.waited_for)
    if found.slow.named:
        outcome.named.setdefault(frozenset(each.rank for each in found.slow.named), since_s)


def file_of(folder: Path, case: Case) -> Path:
    """The file with the recording of a case."""
    return folder / f"{case.name.replace(' ', '-').replace(chr(39), '')}.jsonl.gz"


def write(path: Path, looks: Sequence[tuple[bool, Look]]) -> None:
    """One line for each look: whether the fault has begun, and what was seen."""
    with gzip.open(path, "wt") as file:
        for began, look in looks:
            times = {rank: [host, at_s, *astuple(of_rank)] for rank, (host, at_s, of_rank) in look.times.items()}
            file.write(json.dumps([began, look.at_s, look.step, look.apart, times]) + "\n")


def read(path: Path) -> list[tuple[bool, Look]]:
    """The looks that ``write`` wrote."""
    looks = []
    for line in gzip.decompress(path.read_bytes()).splitlines():
        began, at_s, step, apart, times = json.loads(line)
        found = {int(rank): (host, at, RankTimes(*of_rank)) for rank, (host, at, *of_rank) in times.items()}
        looks.append((began, Look(at_s, step, apart, found)))
    return looks


def row(case: Case, outcome: Outcome) -> str:
    """A line of the table."""
    slower = "" if outcome.slower is None or case in HEALTHY else f"{100 * outcome.slower:.0f} %"
    slow = "never" if outcome.slow_s is None else f"{outcome.slow_s:.0f}"
    who = ", ".join(f"{sorted(ranks)} after {at_s:.0f}" for ranks, at_s in outcome.named.items()) or "no one"
    waited = ", ".join(map(str, sorted(outcome.waited_for)))
    return f"| {case.name} | {slower} | {slow} | {who} | {waited} | {os.getloadavg()[0]:.1f} |"


HEAD = (
    "| case | a step takes longer | called slow after s | named, after s | waited for | load average |\n"
    + "|---" * 6
    + "|"
)


def compress_time() -> None:
    """Have the agent's clockwork run as much faster as the slots are shorter; and end like Ctrl-C on SIGTERM."""
    worker_watch.REPEAT_S *= SCALE
    sampled_worker.FILES_EVERY_S = 10.0 * SCALE
    sampled_waits.RECHECK_S = 10.0 * SCALE
    sampled_waits.CHILD_RECHECK_S = 4.0 * SCALE
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def main(words: Sequence[str]) -> None:
    """Play the cases whose names have one of the words in them, one after the other."""
    record = None
    words = list(words)
    if "--record" in words:
        at = words.index("--record")
        record = Path(words[at + 1])
        record.mkdir(parents=True, exist_ok=True)
        del words[at : at + 2]
    compress_time()
    print(HEAD, flush=True)
    for case in CASES:
        if case.outside == "quota" and not os.access(CGROUP / "cgroup.procs", os.W_OK):
            continue
        if not words or any(word in case.name for word in words):
            with tempfile.TemporaryDirectory(prefix="straggler-") as folder:
                print(row(case, asyncio.run(play(case, Path(folder), record))), flush=True)
