"""Evidence taken from real processes: deadlocked, stopped, spinning, gone midway, not Python; tools that fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.support.digits_modules import DIGITS
from tests.support.rank_gang import free_port

from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence import Evidence, Movement, RankEvidence, diagnosis
from holdfast.hang.evidence.evidence_json import decode, encode
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, log_paths
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.core.worker.states import Running
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.gpu.reader import SimulatedSource
from holdfast_agent.shell.evidence import Examiner, Limits
from holdfast_agent.shell.evidence.tools import Tools

pytestmark = pytest.mark.anyio
KEY = WorkerId("job-1", "workerpool0-0")
PAUSE_S = 0.3


@dataclass
class Gang:
    """Ranks of this test, and what an agent knows of them."""

    root: Path
    ranks: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def facts(self) -> HostFacts:
        return HostFacts("host-0", str(self.root), str(self.root), WorkerUser("ada", "/", "/bin/sh"), 2)

    @property
    def worker(self) -> Worker:
        return Worker(KEY, Running(1), pids={rank: process.pid for rank, process in enumerate(self.ranks)})

    def start(self, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        rank = len(self.ranks)
        out, err = (Path(path) for path in log_paths(self.facts, KEY, 1, rank))
        out.parent.mkdir(parents=True, exist_ok=True)
        base = {"PATH": os.environ["PATH"], "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONUNBUFFERED": "1"}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(argv, env=base | env, stdout=stdout, stderr=stderr, start_new_session=True)
        self.ranks.append(process)
        return process

    def python(self, program: str, **env: str) -> subprocess.Popen[bytes]:
        """A program that prints "ready" when it is; returns then."""
        process = self.start(sys.executable, "-c", program, **env)
        until(lambda: "ready" in self.out(len(self.ranks) - 1))
        return process

    def digits(self, world_size: int, *arguments: str) -> None:
        env = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        options = ("--checkpoint-dir", str(self.root / "checkpoints"), "--checkpoint-every", "1000000")
        for _ in range(world_size):
            self.start(sys.executable, str(DIGITS / "train.py"), *options, *arguments, OMP_NUM_THREADS="1", **env)

    def out(self, rank: int) -> str:
        return Path(log_paths(self.facts, KEY, 1, rank)[0]).read_text()

    def end(self) -> None:
        for process in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path)
    yield made
    made.end()


def until(true: Callable[[], bool], patience_s: float = 180.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def compiled(folder: Path, body: str) -> str:
    """A static program without an interpreter."""
    (folder / "rank.c").write_text(f"#include <unistd.h>\nint main(void) {{ {body} }}\n")
    subprocess.run(["cc", "-static", "-o", str(folder / "rank"), str(folder / "rank.c")], check=True)
    return str(folder / "rank")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


async def examine(
    gang: Gang, *suspects: int, tools: Tools | None = None, native: bool = False, budget_s: float = 30.0
) -> Evidence:
    examiner = Examiner(lambda: gang.facts, SimulatedSource("h", 1), tools, Limits(PAUSE_S, budget_s))
    found = await examiner.diagnose(gang.worker, 1, suspects, native=native)
    assert decode(encode(found)).ranks[0].rank == found.ranks[0].rank
    await anyio.to_thread.run_sync(until, lambda: not examiner.tools.at_work, 5.0)
    return found


def only(found: Evidence) -> RankEvidence:
    (rank,) = found.ranks
    return rank


def functions(rank: RankEvidence, look: int = 0) -> list[str]:
    main = rank.process.looks[look].python.main
    return [frame.function for frame in main.frames] if main else []


@pytest.mark.require("ptrace")
async def test_a_deadlocked_data_loader_is_named_and_so_is_what_its_peers_wait_in(gang: Gang) -> None:
    gang.digits(4, "--hang-rank", "2", "--hang-step", "60")
    with anyio.fail_after(60):
        while True:
            found = await examine(gang, 2, native=True)
            said = diagnosis([found], 0.0)
            if "3 ranks wait in all_reduce" in said.words and said.same:
                break
    assert said.words.startswith("workerpool0-0 rank 2 is in data_loader.py:")
    assert "`queue.get`" in said.words
    guilty = next(rank for rank in found.ranks if rank.suspect)
    assert guilty.rank == 2
    assert guilty.process.movement is Movement.SAME
    assert guilty.stdout[0].startswith("rank=2 world_size=4")
    last = guilty.process.looks[-1]
    assert any("_refresh" in [f.function for f in t.frames] for t in last.python.threads if t.name == "loader")
    assert last.vector.syscall == "futex"
    assert last.native is not None
    assert last.native.main is not None
    assert any(frame.function.startswith("PyThread_acquire_lock") for frame in last.native.main.frames)
    assert guilty.process.native_compared
    assert all(rank.process.looks[-1].native is None for rank in found.ranks if not rank.suspect)
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-sim-h-0"]


@pytest.mark.require("ptrace")
async def test_a_stopped_rank_is_dumped_and_stays_stopped(gang: Gang) -> None:
    process = gang.python("import time\ndef guilty():\n    time.sleep(600)\nprint('ready')\nguilty()")
    process.send_signal(signal.SIGSTOP)
    until(lambda: state(process.pid) == "T")
    rank = only(await examine(gang, 0, native=True))
    assert functions(rank)[0] == "guilty"
    assert [look.vector.state for look in rank.process.looks] == ["T", "T"]
    native = rank.process.looks[-1].native
    assert native is not None
    assert native.threads or native.problem
    assert state(process.pid) == "T"


@pytest.mark.require("ptrace")
async def test_a_livelock_in_pure_python_is_dumped_while_it_runs(gang: Gang) -> None:
    process = gang.python("def livelock():\n    while True: pass\nprint('ready')\nlivelock()")
    rank = only(await examine(gang, 0, native=True))
    assert "livelock" in functions(rank)
    assert rank.process.looks[0].vector.state == "R"
    assert (rank.process.cores or 0.0) > 0.05
    assert state(process.pid) == "R"


@pytest.mark.require("ptrace")
async def test_a_call_that_holds_the_interpreters_lock_is_dumped(gang: Gang) -> None:
    gang.python("def hold():\n    pow(3, 10**9)\nprint('ready')\nhold()")
    rank = only(await examine(gang, 0, native=True))
    assert functions(rank)[0] == "hold"
    native = rank.process.looks[-1].native
    assert native is not None
    assert native.main is not None
    assert any("long_pow" in frame.function or "k_mul" in frame.function for frame in native.main.frames)


@pytest.mark.require("ptrace")
async def test_children_are_looked_at_of_suspects_only(gang: Gang) -> None:
    program = (
        "import os, time\ndef helper():\n    time.sleep(600)\nif os.fork() == 0:\n    helper()\n"
        "print('ready')\ntime.sleep(600)"
    )
    gang.python(program)
    gang.python(program)
    suspect, other = (await examine(gang, 0)).ranks
    (child,) = suspect.children
    assert child.last is not None
    assert child.last.python.main is not None
    assert child.last.python.main.frames[0].function == "helper"
    assert other.children == ()


@pytest.mark.require("ptrace")
async def test_the_rank_under_a_shell_is_found(gang: Gang) -> None:
    program = "import time\ndef inner(): time.sleep(600)\nprint('ready', flush=True)\ninner()"
    gang.start("/bin/bash", "-c", f'{sys.executable} -c "{program}" && echo done')
    until(lambda: "ready" in gang.out(0))
    rank = only(await examine(gang))
    assert rank.process.pid != gang.ranks[0].pid
    assert functions(rank)[0] == "inner"


@pytest.mark.require("ptrace")
async def test_a_stack_too_deep_for_py_spy_is_read_by_the_other_tool_and_cut(gang: Gang) -> None:
    gang.python(
        "import sys, time\nsys.setrecursionlimit(20000)\ndef deep(n):\n    if n: deep(n - 1)\n"
        "    else:\n        print('ready')\n        time.sleep(600)\ndeep(5000)"
    )
    rank = only(await examine(gang))
    main = rank.process.looks[0].python.main
    assert main is not None, rank.process.looks[0].python.problem
    assert (main.frames[0].function, main.frames[-1].function) == ("deep", "<module>")
    assert main.frames_cut > 4000


@pytest.mark.require("cc")
async def test_a_program_that_is_not_python_says_so_and_has_its_vector(gang: Gang, tmp_path: Path) -> None:
    process = gang.start(compiled(tmp_path, "for (;;) pause();"))
    until(lambda: state(process.pid) == "S")
    rank = only(await examine(gang, 0, native=True))
    look = rank.process.looks[-1]
    assert look.python.problem == "not a Python program, or one that can't be recognised"
    assert look.native is not None
    assert look.native.problem
    assert (look.vector.state, look.vector.syscall) in (("S", "pause"), ("S", ""))
    assert rank.process.movement is Movement.UNKNOWN


@pytest.mark.require("cc")
async def test_a_rank_in_the_kernel_is_not_stopped_for_a_native_dump(gang: Gang, tmp_path: Path) -> None:
    # The parent of a vfork waits in state D until its child lets go.
    process = gang.start(compiled(tmp_path, "if (vfork() == 0) { pause(); _exit(0); } return 0;"))
    until(lambda: state(process.pid) == "D")
    rank = only(await examine(gang, 0, native=True))
    look = rank.process.looks[-1]
    assert look.vector.state == "D"
    assert look.native is not None
    assert look.native.problem == "in state D, where it can't be stopped for a native dump"
    assert len(rank.children) == 1


async def test_ranks_that_end_midway_or_are_long_gone_say_so(gang: Gang) -> None:
    gang.python("import time\nprint('ready')\ntime.sleep(600)")
    gang.python("print('ready')").wait()
    ended = threading.Event()

    async def pause(_: float) -> None:
        gang.ranks[0].kill()
        gang.ranks[0].wait()
        ended.set()

    examiner = Examiner(lambda: gang.facts, SimulatedSource("h", 0), limits=Limits(30.0), sleep=pause)
    found = await examiner.diagnose(gang.worker, 1, [0], native=True)
    assert ended.is_set()
    killed, gone = found.ranks
    assert killed.process.looks[1].python.problem == "the process has ended"
    assert [look.vector.problem for look in gone.process.looks] == ["the process has ended"] * 2
    assert gone.stdout == ("ready",)
    assert found.took_s < 25


async def test_another_generation_is_not_examined(gang: Gang) -> None:
    gang.python("import time\nprint('ready')\ntime.sleep(600)")
    found = await Examiner(lambda: gang.facts, SimulatedSource("h", 0)).diagnose(gang.worker, 2, [], native=False)
    assert (found.ranks, found.notes) == ((), ("generation 2 is not running here",))


async def test_gpus_that_cannot_be_read_are_a_note(gang: Gang) -> None:
    class Unread(SimulatedSource):
        async def inventory(self) -> Blind:
            return Blind("the GPU driver did not answer within 5 s")

    gang.python("import time\nprint('ready')\ntime.sleep(600)")
    examiner = Examiner(lambda: gang.facts, Unread("h", 1), limits=Limits(0.0))
    found = await examiner.diagnose(gang.worker, 1, [], native=False)
    assert found.notes == ("GPUs: the GPU driver did not answer within 5 s",)


# -- Tools -------------------------------------------------------------------------------------------------------


@dataclass
class Box:
    """A folder of tools, instead of the real ones."""

    folder: Path
    deadline_s: float = 1.0

    def tools(self, monkeypatch: pytest.MonkeyPatch) -> Tools:
        monkeypatch.setenv("PATH", str(self.folder))
        return Tools(search=str(self.folder), deadline_s=self.deadline_s, output_max_bytes=1 << 20)

    def add(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    (tmp_path / "tools").mkdir()
    return Box(tmp_path / "tools")


@pytest.fixture
def sleeper(gang: Gang) -> Gang:
    gang.python("import time\nprint('ready')\ntime.sleep(600)")
    return gang


async def test_missing_tools_leave_the_vector_and_a_sentence(
    sleeper: Gang, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = only(await examine(sleeper, 0, native=True, tools=box.tools(monkeypatch))).process.looks[-1]
    assert look.python.problem == "py-spy is not installed beside the agent"
    assert look.native is not None
    assert look.native.problem == "pystack is not installed beside the agent"
    assert look.vector.state == "S"


@pytest.mark.require("ptrace")
async def test_without_py_spy_the_other_tool_is_asked(
    sleeper: Gang, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    (box.folder / "pystack").symlink_to(Path(sys.executable).with_name("pystack"))
    box.deadline_s = 20.0
    look = only(await examine(sleeper, tools=box.tools(monkeypatch))).process.looks[-1]
    assert look.python.tool == "pystack"
    assert look.python.main is not None


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exec sleep 600", "py-spy did not answer within 1 s and was killed"),
        ("trap '' TERM; sleep 600 & exec >&-; wait", "py-spy did not answer within 1 s and was killed"),
        ("echo 'Error: Permission denied (os error 13)' >&2; exit 1", "py-spy may not read the process"),
        ("echo 'Error: strange' >&2; exit 1", "py-spy: strange"),
        ("exit 3", "py-spy ended with 3 and said nothing"),
        ("echo nonsense", "py-spy: Expecting value"),
        ("exec cat /dev/zero", "py-spy printed more than 1 MiB and was killed"),
        ("exec cat /dev/zero >&2", "py-spy did not answer within 1 s and was killed"),
        ("kill -9 $$", "py-spy ended with -9 and said nothing"),
    ],
)
async def test_tools_that_hang_fail_or_flood(
    sleeper: Gang, box: Box, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    box.add("py-spy", f"PATH=/usr/bin:/bin\n{script}\n")
    look = only(await examine(sleeper, tools=box.tools(monkeypatch))).process.looks[-1]
    assert problem.removeprefix("py-spy: Expecting") in look.python.problem
    assert look.vector.state == "S"


async def test_a_tool_that_cannot_be_started_says_why(
    sleeper: Gang, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    (box.folder / "py-spy").write_text("#!/no/such/program\n")
    (box.folder / "py-spy").chmod(0o755)
    look = only(await examine(sleeper, tools=box.tools(monkeypatch))).process.looks[-1]
    assert look.python.problem == "py-spy can't be started: No such file or directory"


async def test_a_target_left_stopped_by_a_killed_tool_goes_on(
    sleeper: Gang, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.add("pystack", 'PATH=/usr/bin:/bin\nfor pid; do :; done\nkill -STOP "$pid"\nexec sleep 600\n')
    look = only(await examine(sleeper, 0, native=True, tools=box.tools(monkeypatch))).process.looks[-1]
    assert look.native is not None
    assert look.native.problem == "pystack did not answer within 1 s and was killed"
    until(lambda: state(sleeper.ranks[0].pid) == "S")


async def test_the_budget_ends_a_diagnosis_and_keeps_what_is_there(
    gang: Gang, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        gang.start(shutil.which("sleep") or "sleep", "600")
    until(lambda: all(state(rank.pid) == "S" for rank in gang.ranks))
    box.add("py-spy", "PATH=/usr/bin:/bin\nexec sleep 600\n")
    found = await examine(gang, tools=box.tools(monkeypatch), budget_s=1.9)
    assert found.notes == ("not everything could be read within 1.9 s",)
    problems = [rank.process.looks[0].python.problem for rank in found.ranks]
    assert sorted(problems) == ["not in time"] * 2 + ["py-spy did not answer within 1 s and was killed"] * 2
    assert all(rank.process.looks[0].vector.state == "S" for rank in found.ranks)
