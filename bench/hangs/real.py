"""The fault matrix and the negatives with real processes: ``python -m bench.hangs.real [NAME ...]``.

Gangs of four processes (``gang.py``) are sampled by the agent's sampler, folded, judged by the controller's
rules, and diagnosed with real stack dumps. What is left out is the network between agent and controller, and the
relaunch: a case ends with the order to act. Time is compressed: the constants are scaled as ``SCALED`` says; the
cases marked so run with the constants as shipped.

``real_cases.py`` has the cases themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.hangs.real_cases import FAULTS, GUILTY, NEGATIVES, RANKS, SCALE, SCALED, WEAKNESSES, Case

from holdfast._base.job_file.choices import HangAction
from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence import diagnosis
from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge import verdict
from holdfast.hang.judge.state import begin
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast.hang.records.recording import WorkerSample
from holdfast.hang.thresholds import HangSettings, Tuning
from holdfast.hang.worker_watch import WorkerWatch
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, log_paths, progress_dir
from holdfast_agent.core.worker.states import Running
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.evidence import Examiner
from holdfast_agent.shell.hangs import stack_watch
from holdfast_agent.shell.hangs.stack_watch import StackWatch
from holdfast_agent.shell.output.log_index import make_directories
from holdfast_agent.shell.sampling import waits as sampled_waits
from holdfast_agent.shell.sampling import worker as sampled_worker
from holdfast_agent.shell.sampling.sampler import Sampler
from holdfast_agent.shell.sampling.worker import Watched

GANG = Path(__file__).with_name("gang.py")
KEY = WorkerId("job", "workerpool0-0")
VERBOSE = bool(os.environ.get("VERBOSE"))


@dataclass
class Outcome:
    """What became of a case; times since the fault, or since the unusual began."""

    began_s: float | None = None
    noticed_s: float | None = None
    acted_s: float | None = None
    rule: str = ""
    suspects: tuple[str, ...] = ()
    sentence: str = ""
    false_notice: str = ""
    health: list[str] = field(default_factory=list)

    def since(self, at_s: float | None) -> float | None:
        return None if at_s is None or self.began_s is None else at_s - self.began_s


class Run:
    """A gang under the eyes of the detector."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        for name in ("logs", "work"):
            (folder / name).mkdir()
        user = WorkerUser("", "/", "/bin/sh")
        self.facts = HostFacts("host-0", str(folder / "logs"), str(folder), user, RANKS)
        make_directories(self.facts, KEY, 1)
        self.script = folder / "gpus.json"
        self.source = SimulatedSource("h", RANKS if case.gpus else 0, self.script)
        self.gpus = tuple(f"GPU-sim-h-{n}" for n in range(RANKS)) if case.gpus else ()
        self.tuning = Tuning() if case.real_time else SCALED
        self.tick_s = 2.0 if case.real_time else 2.0 * SCALE
        self.fold = WorkerWatch("host-0", 1, tuning=self.tuning)
        self.watch = begin(time.monotonic())
        self.examiner = Examiner(lambda: self.facts, self.source)
        self.stacks = StackWatch(self.examiner.python_frames)
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self.ended: dict[int, int] = {}
        self.newest: WorkerFeatures | None = None
        self.fresh: Diagnosis | None = None
        self.dumping: asyncio.Task[None] | None = None
        self.outcome = Outcome()
        self.tracer: subprocess.Popen[bytes] | None = None

    # --- the gang -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """All ranks, as a shim would start them."""
        fast = (
            {"STEP_S": "0.4", "LINE_EVERY": "4"}
            if not self.case.real_time
            else {"STEP_S": "0.4", "LINE_EVERY": "16"}
        )
        env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        env |= fast | {"WORLD_SIZE": str(RANKS), "LAST_S": str(self.case.lasts_s), "PYTHONPATH": os.getcwd()}
        env["HOLDFAST_PROGRESS_DIR"] = progress_dir(self.facts, KEY, 1)
        rank = 0 if self.case.rank is None else self.case.rank
        command = [sys.executable, str(GANG), self.case.what, str(rank), str(self.case.at_step)]
        for number in range(RANKS):
            out, err = log_paths(self.facts, KEY, 1, number)
            with open(out, "ab") as stdout, open(err, "ab") as stderr:
                self.ranks[number] = subprocess.Popen(
                    command,
                    env=env | {"RANK": str(number)},
                    cwd=self.folder / "work",
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )

    def watched(self) -> Iterator[Watched]:
        """What the sampler asks for."""
        for number, process in self.ranks.items():
            if number not in self.ended and (code := process.poll()) is not None:
                self.ended[number] = code
        pids = {number: process.pid for number, process in self.ranks.items()}
        yield Watched(KEY, 1, os.getpid(), pids, dict(self.ended), self.gpus, stacks=self.stacks.found(KEY))

    def close(self) -> None:
        """Leave nothing behind."""
        processes = [*([self.tracer] if self.tracer else []), *self.ranks.values()]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._free_fifos()
        for process in processes:
            process.wait()

    def _free_fifos(self) -> None:
        for fifo in (self.folder / "work").glob("*.fifo"):
            with contextlib.suppress(OSError):
                os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))

    # --- the detector -------------------------------------------------------------------------------------------

    def on_sample(self, sample: WorkerSample) -> None:
        """As the agent does: only news are sent."""
        vector = self.fold.take(sample)
        self.stacks.note(KEY, sample, vector)
        if self.fold.is_news(vector):
            self.newest = self.fold.sent = vector

    def judge(self) -> bool:
        """As the controller does; whether the case is over."""
        if self.newest is None:
            return False
        waits = self.watch.suspicion is not None and self.watch.suspicion.diagnosis is None
        taken = verdict.step(
            self.watch,
            [self.newest],
            HangSettings(HangAction.RESTART),
            time.monotonic(),
            diagnosis=self.fresh if waits else None,
            tuning=self.tuning,
        )
        self.watch = taken.watch
        if not self.outcome.health or self.outcome.health[-1] != taken.verdict.sentence:
            self.outcome.health.append(taken.verdict.sentence)
        done = [self._obey(order) for order in taken.orders]
        return any(done)

    def _obey(self, order: verdict.Order) -> bool:
        now_s = time.monotonic()
        match order:
            case verdict.Diagnose(suspects):
                self.fresh = None
                if self.dumping is None or self.dumping.done():
                    self.dumping = asyncio.get_running_loop().create_task(self._diagnose(suspects))
            case verdict.Notify(finding) if self.outcome.began_s is None:
                self.outcome.false_notice = finding.sentence
            case verdict.Notify(finding):
                if self.outcome.noticed_s is None:
                    self.outcome.noticed_s = now_s
                self.outcome.rule, self.outcome.sentence = finding.rule.value, finding.sentence
                self.outcome.suspects = finding.suspects
            case verdict.Act(finding, _):
                self.outcome.acted_s, self.outcome.rule = now_s, finding.rule.value
                self.outcome.suspects, self.outcome.sentence = finding.suspects, finding.sentence
                return True
            case verdict.WouldAct():
                pass
        return False

    async def _diagnose(self, suspects: Sequence[str]) -> None:
        numbers = frozenset(int(name.rpartition(" ")[2]) for name in suspects)
        pids = {number: process.pid for number, process in self.ranks.items() if number not in self.ended}
        worker = Worker(KEY, Running(1), pids=pids)
        interval_s = 5.0 if self.case.real_time else 5.0 * SCALE
        began_s = time.monotonic()
        found = await self.examiner.diagnose(worker, 1, numbers, native=bool(numbers), interval_s=interval_s)
        self.stacks.on_evidence(KEY, found, began_s)
        self.fresh = diagnosis([found], time.monotonic())

    # --- the case -----------------------------------------------------------------------------------------------

    async def play(self) -> Outcome:
        """From the start to the order to act, or until ``watch_s`` have passed since the fault."""
        sampler = Sampler(self.facts, self.source, self.watched, self.on_sample, tools=self.examiner.tools)
        self.source.on_xids = sampler.gpus.hear
        self._gpus_do(util_pct=97, memory_util_pct=45, power_w=520)
        self.start()
        asked_gpus_s = 0.0
        reading = asyncio.get_running_loop().create_task(self.stacks.run())
        try:
            while True:
                await asyncio.sleep(self.tick_s)
                now_s = time.monotonic()
                if self.case.gpus and now_s - asked_gpus_s >= 2.5 * self.tick_s:
                    asked_gpus_s = now_s
                    await sampler.gpus.read()
                await sampler.tick()
                self._note_beginning()
                if self.judge():
                    break
                if self.outcome.began_s is not None and now_s - self.outcome.began_s > self.case.watch_s:
                    break
                if now_s - self.watch.began_s > 180 + self.case.watch_s:
                    self.outcome.false_notice = f"it never came to it {self._errors()}"
                    break
        finally:
            for task in filter(None, (reading, self.dumping)):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            sampler.close()
            self.close()
        return self.outcome

    def _errors(self) -> str:
        return "".join(Path(log_paths(self.facts, KEY, 1, n)[1]).read_text()[-500:] for n in range(RANKS))

    def _note_beginning(self) -> None:
        told = self.folder / "work" / "began"
        if self.outcome.began_s is not None or not told.exists() or not told.read_text():
            return
        self.outcome.began_s = float(told.read_text())
        if self.case.what == "gpu_spin":
            self._gpus_do(util_pct=100, memory_util_pct=0, power_w=150)
        if self.case.what == "traced":
            pid = self.ranks[GUILTY].pid
            self.tracer = subprocess.Popen([sys.executable, "-c", _TRACER, str(pid)], start_new_session=True)

    def _gpus_do(self, **signals: float) -> None:
        if not self.case.gpus:
            return
        said = {"*": signals}
        if self.case.what == "gpu_spin" and self.outcome.began_s is not None:
            said[self.gpus[GUILTY]] = {"util_pct": 0, "memory_util_pct": 0, "power_w": 90}
        fresh = self.script.with_suffix(".new")
        fresh.write_text(json.dumps(said))
        fresh.replace(self.script)


_TRACER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT = 0x4206, 0x4207
for request in (SEIZE, INTERRUPT):
    if libc.ptrace(request, int(sys.argv[1]), None, None):
        sys.exit(os.strerror(ctypes.get_errno()))
time.sleep(600)
"""


# --- Many cases at once ------------------------------------------------------------------------------------------


class Cores:
    """What burns CPU takes turns, so that cases don't disturb each other on a small machine."""

    def __init__(self, cores: float) -> None:
        self.left = cores
        self.freed = asyncio.Condition()

    async def run(
        self, case: Case, root: Path, told: Callable[[Case, Outcome], None], kind: type[Run] = Run
    ) -> Outcome:
        """The outcome of a case, once there is room for it."""
        async with self.freed:
            await self.freed.wait_for(lambda: self.left >= case.burns)
            self.left -= case.burns
        try:
            folder = Path(tempfile.mkdtemp(dir=root))
            outcome = await kind(case, folder).play()
        finally:
            async with self.freed:
                self.left += case.burns
                self.freed.notify_all()
        told(case, outcome)
        return outcome


def slow_down() -> None:
    """Make the agent look at files and stacks as often as at all the rest, in scale."""
    sampled_worker.FILES_EVERY_S = 10.0 * SCALE
    sampled_waits.RECHECK_S = 10.0 * SCALE
    sampled_waits.CHILD_RECHECK_S = 4.0 * SCALE
    stack_watch.STILL_S = 10.0 * SCALE
    stack_watch.SILENT_S = 30.0 * SCALE
    stack_watch.AGAIN_S = tuple(pause * SCALE for pause in stack_watch.AGAIN_S)


async def play(cases: Iterable[Case], root: Path, cores: float = 2.0) -> list[tuple[Case, Outcome]]:
    """All cases, as many at once as ``cores`` bear."""
    slow_down()
    shared = Cores(cores)
    cases = tuple(cases)
    outcomes = await asyncio.gather(*(shared.run(case, root, _tell) for case in cases))
    return list(zip(cases, outcomes, strict=True))


def _tell(case: Case, outcome: Outcome) -> None:
    noticed, acted = _seconds(outcome.since(outcome.noticed_s)), _seconds(outcome.since(outcome.acted_s))
    print(f"  … {case.name}: noticed {noticed}, acted {acted}", file=sys.stderr, flush=True)
    if VERBOSE:
        print("\n".join(["", case.name, *outcome.health[-25:]]), file=sys.stderr, flush=True)


def named_right(case: Case, outcome: Outcome) -> bool:
    """Whether exactly the guilty rank was named."""
    return outcome.suspects == (f"{KEY.worker} rank {case.rank}",)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def table(results: Sequence[tuple[Case, Outcome]]) -> None:
    """Faults, then negatives."""
    faults = [(c, o) for c, o in results if c.fault]
    if faults:
        print(f"{'fault':38} {'noticed s':>9} {'acted s':>8} {'rule':>5}  suspect")
    for case, outcome in faults:
        noticed, acted = _seconds(outcome.since(outcome.noticed_s)), _seconds(outcome.since(outcome.acted_s))
        who = "right" if named_right(case, outcome) else ("wrong: " if outcome.suspects else "nobody")
        who += ", ".join(outcome.suspects) if who.startswith("wrong") else ""
        print(f"{case.name:38} {noticed:>9} {acted:>8} {outcome.rule:>13}  {who}")
    healthy = [(c, o) for c, o in results if not c.fault]
    if healthy:
        print(f"\n{'negative':44} {'watched s':>9}  verdict")
    for case, outcome in healthy:
        noticed = _seconds(outcome.since(outcome.noticed_s))
        told = "left alone" if outcome.noticed_s is None else f"noticed after {noticed} s ({outcome.rule})"
        if outcome.acted_s is not None:
            told = f"ACTED ON after {_seconds(outcome.since(outcome.acted_s))} s ({outcome.rule})"
        print(f"{case.name:44} {case.watch_s:9.0f}  {told}")
    for case, outcome in results:
        if outcome.false_notice:
            print(f"! {case.name}: noticed before anything was wrong: {outcome.false_notice}")


def _leave(*_: object) -> None:
    """Upon SIGTERM end the gangs as well, which are in sessions of their own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only cases whose name has one of these in it")
    options = parser.parse_args()
    every = (*FAULTS, *NEGATIVES, *WEAKNESSES)
    cases = [c for c in every if not options.names or any(n in c.name for n in options.names)]
    began = time.monotonic()
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="hang-real-") as root:
        results = asyncio.run(play(cases, Path(root)))
    table(results)
    print(f"\n{len(results)} cases in {time.monotonic() - began:.0f} s; times scaled by 1/{1 / SCALE:.0f}")


if __name__ == "__main__":
    main()
