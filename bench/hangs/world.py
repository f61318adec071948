"""A job in virtual time: scripted ranks give raw samples, which are judged as by agent and controller.

A ``Doing`` says what a rank does per second; a scenario says which Doing each rank has at each time. Counters,
jitter and line times come from a seeded generator, so that a run can be repeated. The detector alone is real.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast._base.dataclass import replace
from holdfast._base.job_file.choices import HangAction
from holdfast.hang.evidence.frames import Frame
from holdfast.hang.evidence.stacks import Diagnosis, RankStack, compared
from holdfast.hang.judge.stages import Rung
from holdfast.hang.judge.state import begin, stuck
from holdfast.hang.judge.verdict import Act, Diagnose, Notify, Step, step
from holdfast.hang.pipeline import rank_baseline
from holdfast.hang.pipeline.features import OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.log_progress import LineReader
from holdfast.hang.pipeline.samples import GpuSample, ProcessSample, RankSample, State, TreeSample
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.hang.thresholds import HangSettings, Tuning

SAMPLE_S, GPU_S = 2.0, 5.0
# Two rounds 5 s apart, each of a second or more for a rank: measured with real gangs on a busy machine.
DUMPS_TAKE_S = 9.0
DUMP_WAKES = 2
STACK_AFTER_S = 10.0
RANKS_PER_WORKER = 4
IDLE_W, STEADY_W, SPIN_W = 75.0, 600.0, 152.0

PYTHON = "/usr/lib/python3.11/"
MAIN = Frame("main", "/home/u/train.py", 88)


def stack(*frames: tuple[str, str, int]) -> tuple[Frame, ...]:
    """A stack, innermost first, that ends in the program's main function."""
    return (*(Frame(function, file, line) for function, file, line in frames), MAIN)


ALL_REDUCE = stack(("all_reduce", "/usr/lib/python3.11/site-packages/torch/distributed_c10d.py", 2501))
BARRIER = stack(("barrier", "/usr/lib/python3.11/site-packages/torch/distributed_c10d.py", 4159))
SLEEPS = stack(("nap", "/home/u/train.py", 41))
LOOPS = stack(("retry", "/home/u/train.py", 57))
LOADER = stack(
    ("wait", PYTHON + "threading.py", 327),
    ("get", PYTHON + "queue.py", 171),
    ("next_batch", "/home/u/data_loader.py", 212),
)
TRAIN = stack(("forward", "/home/u/model.py", 30))


@dataclass(frozen=True)
class Doing:
    """What one rank does, per second."""

    cpu: float = 0.0
    switches: float = 0.0
    storage: float = 0.0
    faults: float = 0.0
    state: State = State.SLEEPING
    wchan: str = "futex_wait_queue"
    util: float = 0.0
    memory_util: float = 0.0
    power_w: float = IDLE_W
    links: float = 0.0
    child_cpu: float = 0.0
    child_storage: float = 0.0
    spawns: float = 0.0
    helper_cpu: float = 0.0
    frames: tuple[Frame, ...] = TRAIN
    # Whether stacks taken seconds apart differ.
    changing: bool = True
    exit_code: int | None = None
    traced: bool = False
    gpu_lost: bool = False
    gpu_blind: bool = False
    xid: int | None = None
    mount: str = ""
    # What it waits for, as the agent finds out once it has stood still for ``STACK_AFTER_S``.
    wait: Wait | None = None


TRAINING = Doing(
    0.9, 9.2, state=State.RUNNING, util=97, memory_util=45, power_w=STEADY_W, links=5e9, helper_cpu=0.8
)
IMPORTING = Doing(1.0, 20.0, storage=5e6, faults=3, state=State.RUNNING)
PEERS = Wait(WaitKind.PEER, "all_reduce")
WAITING = Doing(0.002, 0.0, util=100, memory_util=1, power_w=SPIN_W, frames=ALL_REDUCE, changing=False, wait=PEERS)
WAITING_BUSILY = replace(WAITING, cpu=1.0, state=State.RUNNING, wchan="0")
WAITING_IDLY = replace(WAITING, util=0, memory_util=0, power_w=IDLE_W, wchan="ep_poll")


@dataclass(frozen=True)
class Signals:
    """Which families of signals there are."""

    process: bool = True
    gpu: str = "all"  # all, utilisation, none
    output: bool = True
    stacks: bool = True


@dataclass(frozen=True)
class Scenario:
    """One story of a job. Times are seconds since its launch."""

    name: str
    doing: Callable[[float, int], Doing]
    ends_s: float
    # A fault is injected at this time in this rank; None: healthy throughout. Guilty None: nobody in particular.
    fault_s: float | None = None
    guilty: int | None = None
    ranks: int = 8
    # Log lines printed between two times.
    lines: Callable[[float, float], list[str]] = lambda _a, _b: []
    # The time of the last checkpoint byte, and whether the file is open.
    checkpoint: Callable[[float], tuple[float | None, bool]] = lambda _t: (None, False)
    idle: Callable[[float], str] = lambda _t: ""
    # Times at which the agents, or the controller, don't run.
    agents_away: Callable[[float], bool] = lambda _t: False
    controller_away: Callable[[float], bool] = lambda _t: False
    acts: bool = True
    may_notice: bool = False
    # Only noticed fast; acted on at the ceiling.
    at_ceiling: bool = False
    # Something outside the job may end it, so that it is acted on after the patience for that.
    external: bool = False
    unkillable: bool = False


@dataclass
class Result:
    """What the detector made of a scenario; times since launch."""

    noticed_s: float | None = None
    acted_s: float | None = None
    notices: int = 0
    dumps: int = 0
    overs: int = 0
    suspects: tuple[str, ...] = ()
    rule: str = ""
    sentence: str = ""
    rungs: list[Rung] = field(default_factory=list)
    blind: bool = False
    trace: list[Trace] = field(default_factory=list)


@dataclass(frozen=True)
class Trace:
    """What a simpler rule would have to go by, at one time."""

    at_s: float
    # Any line, progress or not.
    last_line_s: float
    utils: tuple[float, ...]
    memory_utils: tuple[float, ...]


def name_of(rank: int) -> str:
    return f"workerpool0-{rank // RANKS_PER_WORKER} rank {rank}"


def steady_lines(every_s: float, until_s: float = 1e9, from_s: float = 60.0) -> Callable[[float, float], list[str]]:
    """A training log: a step count and a loss, every so often between the two times."""

    def lines(after_s: float, before_s: float) -> list[str]:
        first, last = int((after_s - from_s) // every_s), int((before_s - from_s) // every_s)
        wanted = [n for n in range(first + 1, last + 1) if n >= 0 and from_s + n * every_s <= until_s]
        return [f"[2026-01-01 10:{n % 60:02d}:11] step {n * 20} loss {2.5 / (1 + n / 50):.4f}" for n in wanted]

    return lines


class World:
    """One run of one scenario."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        signals: Signals | None = None,
        settings: HangSettings | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self.scenario = scenario
        self.signals = signals or Signals()
        self.settings = settings or HangSettings(action=HangAction.RESTART)
        self.tuning = tuning or Tuning()
        self.random = random.Random(f"{seed}/{scenario.name}")
        self.samples = [RankSample(0.0, rank, ProcessSample(main_switches=0)) for rank in range(scenario.ranks)]
        self.gpus: list[GpuSample] = [GpuSample(0.0, 0.0, 0.0, 0.0, 0.0) for _ in range(scenario.ranks)]
        self.baselines: list[rank_baseline.Baseline | None] = [None] * scenario.ranks
        self.features: dict[int, RankFeatures] = {}
        self.sent: dict[int, WorkerFeatures] = {}
        self.reader = LineReader()
        self.progress_s: float | None = None
        self.line_s = 0.0
        self.diagnosis_due_s: float | None = None
        self.first_dump: list[RankStack] = []
        # Ranks that are being dumped with their C frames, which stops them for moments.
        self.dumped: frozenset[int] = frozenset()
        self.did: list[tuple[Doing | None, float]] = [(None, 0.0)] * scenario.ranks
        self.result = Result()

    def run(self) -> Result:
        """Plays the scenario to its end, or to the first act."""
        watch = begin(0.0)
        heard: Mapping[int, WorkerFeatures] = {}
        at_s = next_gpu_s = 0.0
        while at_s < self.scenario.ends_s:
            elapsed_s = SAMPLE_S
            before_s, at_s = at_s, at_s + elapsed_s
            with_gpu = at_s >= next_gpu_s
            next_gpu_s = next_gpu_s + GPU_S if with_gpu else next_gpu_s
            self._live(at_s, elapsed_s, with_gpu)
            self._read_lines(before_s, at_s)
            if not self.scenario.agents_away(at_s):
                heard = self._observe(at_s)
            if self.scenario.controller_away(at_s):
                continue
            taken = step(
                watch,
                list(heard.values()),
                self.settings,
                at_s,
                diagnosis=self._diagnosis(at_s),
                tuning=self.tuning,
            )
            watch = taken.watch
            self._note(taken, at_s)
            if self.result.acted_s is not None:
                if self.scenario.unkillable:
                    self.result.rungs.append(stuck(watch).rung)
                break
        return self.result

    def _jitter(self, value: float) -> float:
        return value * self.random.uniform(0.95, 1.05)

    def _live(self, at_s: float, elapsed_s: float, with_gpu: bool) -> None:
        """Lets every rank do what it does for one sample's time."""
        for rank, old in enumerate(self.samples):
            doing = self.scenario.doing(at_s, rank)
            dumped = rank in self.dumped and doing.exit_code is None
            process = self._process(old.process or ProcessSample(), doing, elapsed_s, dumped=dumped)
            children = _tree(old.children, doing.child_cpu, doing.child_storage, doing.spawns, elapsed_s)
            helpers = _tree(old.helpers, doing.helper_cpu, 0.0, 0.0, elapsed_s)
            gpu = self._gpu(rank, doing, at_s, elapsed_s, with_gpu)
            self.samples[rank] = RankSample(
                at_s,
                rank,
                process,
                doing.exit_code,
                children,
                helpers,
                gpu,
                doing.gpu_blind,
                paused_by_us=dumped,
                mount=doing.mount,
                wait=self._wait(rank, doing, at_s),
            )
        self.result.trace.append(self._trace(at_s))

    def _wait(self, rank: int, doing: Doing, at_s: float) -> Wait | None:
        """As the agent sees it: nothing of a rank that moves, and where it is only once its stack was taken."""
        known, since_s = self.did[rank]
        if known is not doing and known != doing:
            since_s = at_s
        self.did[rank] = doing, since_s
        if doing.wait is None or not self.signals.process:
            return None
        wait = replace(doing.wait, since_s=since_s)
        if wait.until_s is not None:
            wait = replace(wait, until_s=since_s + wait.until_s)
        by_call = wait.kind in (WaitKind.SLEEP, WaitKind.FILE)
        if not by_call and (not self.signals.stacks or at_s - since_s < STACK_AFTER_S):
            return replace(wait, kind=WaitKind.UNKNOWN, what="", place="")
        return wait

    def _process(self, old: ProcessSample, doing: Doing, elapsed_s: float, *, dumped: bool) -> ProcessSample:
        # What is stopped for its C frames wakes when it is let go.
        switches = doing.switches * elapsed_s + (DUMP_WAKES if dumped else 0)
        whole = int(switches) + (self.random.random() < switches % 1)
        return ProcessSample(
            doing.state,
            old.cpu_s + self._jitter(doing.cpu) * elapsed_s,
            (old.main_switches or 0) + whole,
            old.storage_bytes + int(self._jitter(doing.storage) * elapsed_s),
            old.major_faults + int(doing.faults * elapsed_s),
            doing.wchan,
            doing.traced,
        )

    def _gpu(self, rank: int, doing: Doing, at_s: float, elapsed_s: float, read: bool) -> GpuSample | None:
        old = self.gpus[rank]
        energy = (old.energy_j or 0.0) + self._jitter(doing.power_w) * elapsed_s
        links = (old.link_bytes or 0.0) + self._jitter(doing.links) * elapsed_s
        # A working GPU's utilisation wanders by a point or two; a spinning or idle one's doesn't.
        util = min(100.0, doing.util + self.random.uniform(-2, 2)) if 5 < doing.util < 99 else doing.util
        self.gpus[rank] = GpuSample(at_s, energy, util, doing.memory_util, links, doing.xid, doing.gpu_lost)
        if self.signals.gpu == "none":
            return None
        if not read:
            return self.samples[rank].gpu
        if self.signals.gpu == "utilisation":
            return GpuSample(at_s, util_pct=util, fatal_xid=doing.xid, lost=doing.gpu_lost)
        return self.gpus[rank]

    def _trace(self, at_s: float) -> Trace:
        gpus = self.gpus
        utils = tuple(gpu.util_pct or 0.0 for gpu in gpus)
        return Trace(at_s, self.line_s, utils, tuple(gpu.memory_util_pct or 0.0 for gpu in gpus))

    def _read_lines(self, before_s: float, at_s: float) -> None:
        for line in self.scenario.lines(before_s, at_s):
            self.line_s = at_s
            if self.signals.output and self.reader.is_progress(line):
                self.progress_s = at_s

    def _observe(self, at_s: float) -> dict[int, WorkerFeatures]:
        """The agents' part: samples to features."""
        for rank, sample in enumerate(self.samples):
            seen = sample if self.signals.process else replace(sample, process=None, exit_code=None)
            base = self.baselines[rank]
            if base is None:
                self.baselines[rank], self.features[rank] = rank_baseline.begin(seen)
            else:
                self.baselines[rank], self.features[rank] = rank_baseline.observe(base, seen, self.tuning)
        grew_s, is_open = self.scenario.checkpoint(at_s)
        for worker in range((self.scenario.ranks + RANKS_PER_WORKER - 1) // RANKS_PER_WORKER):
            ranks = range(worker * RANKS_PER_WORKER, min(self.scenario.ranks, (worker + 1) * RANKS_PER_WORKER))
            output = OutputFeatures()
            if worker == 0:
                output = OutputFeatures(self.progress_s, None, grew_s, is_open)
            vector = WorkerFeatures(
                f"workerpool0-{worker}",
                f"host-{worker}",
                at_s,
                tuple(self.features[rank] for rank in ranks),
                output,
                self.scenario.idle(at_s),
            )
            # Only changes travel; a heartbeat says that the last one still holds.
            sent = self.sent.get(worker)
            changed = sent is None or vector.changed_since(sent)
            self.sent[worker] = vector if changed or sent is None else sent.confirmed(at_s)
        return dict(self.sent)

    def _dump(self, at_s: float) -> list[RankStack]:
        stacks = []
        for rank in range(self.scenario.ranks):
            doing = self.scenario.doing(at_s, rank)
            if doing.exit_code is None:
                moved = int(at_s) if doing.changing else 0
                inner = replace(doing.frames[0], line=doing.frames[0].line + moved, file="/home/u/model.py")
                frames = (inner, *doing.frames[1:]) if doing.changing else doing.frames
                stacks.append(RankStack(f"workerpool0-{rank // RANKS_PER_WORKER}", rank, frames))
        return stacks

    def _diagnosis(self, at_s: float) -> Diagnosis | None:
        if self.diagnosis_due_s is None or at_s < self.diagnosis_due_s:
            return None
        self.diagnosis_due_s, self.dumped = None, frozenset()
        return compared(self.first_dump, self._dump(at_s), at_s)

    def _note(self, taken: Step, at_s: float) -> None:
        result = self.result
        if not result.rungs or result.rungs[-1] is not taken.verdict.rung:
            result.rungs.append(taken.verdict.rung)
        result.blind = result.blind or taken.verdict.blind
        result.overs += bool(taken.verdict.over)
        for order in taken.orders:
            match order:
                case Diagnose(suspects) if self.signals.stacks:
                    result.dumps += 1
                    self.first_dump, self.diagnosis_due_s = self._dump(at_s), at_s + DUMPS_TAKE_S
                    self.dumped = frozenset(int(name.rpartition(" ")[2]) for name in suspects)
                case Notify():
                    result.notices += 1
                    result.noticed_s = at_s if result.noticed_s is None else result.noticed_s
                    result.suspects, result.rule = order.finding.suspects, order.finding.rule.value
                    result.sentence = taken.verdict.sentence
                case Act():
                    result.acted_s, result.suspects = at_s, order.finding.suspects
                    result.rule, result.sentence = order.finding.rule.value, taken.verdict.sentence
                case _:
                    pass


def _tree(old: TreeSample, cpu: float, storage: float, spawns: float, elapsed_s: float) -> TreeSample:
    if cpu == storage == spawns == 0:
        return old
    stored, spawned = old.storage_bytes + int(storage * elapsed_s), old.spawned + int(spawns * elapsed_s)
    return TreeSample(old.cpu_s + cpu * elapsed_s, stored, 0, spawned)
