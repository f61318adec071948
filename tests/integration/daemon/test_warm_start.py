"""A program that a starter forks finds all as one that is executed, and its parent does, too."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.faults.network import joined
from tests.support.warm_start import in_shells, starts

from holdfast.dev import processes

pytestmark = pytest.mark.skipif(starts.OFF in os.environ, reason=f"{starts.OFF} is set")

TOLD = """
import atexit, gc, json, os, random, resource, signal, stat, sys, threading, time, warnings
from pathlib import Path

def stream(of):
    return [of.name, of.mode, of.encoding, of.errors, of.line_buffering, of.write_through, of.newlines, of.isatty(),
            of.fileno(), type(of.buffer).__name__, getattr(of.buffer, "raw", of.buffer).closefd, of.buffer.mode]

status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
found = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "file": __file__,
    "names": sorted(globals()), "spec": __spec__.name, "main": sys.modules["__main__"].__dict__ is globals(),
    "streams": [stream(of) for of in (sys.stdin, sys.stdout, sys.stderr)],
    "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "env": dict(os.environ), "cwd": os.getcwd(), "comm": Path("/proc/self/comm").read_text(),
    "cmdline": Path("/proc/self/cmdline").read_text(),
    "environ": str(sorted(Path("/proc/self/environ").read_bytes().split(bytes(1)))),
    "exe": os.readlink("/proc/self/exe"), "network": os.readlink("/proc/self/ns/net"),
    "leads": os.getsid(0) == os.getpid(), "parent": os.getppid(),
    "group": os.getpgid(0) == os.getpid() or os.getpgid(0), "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "fds": {name: stat.S_IFMT(os.stat(int(name)).st_mode) for name in os.listdir("/proc/self/fd") if int(name) < 100
            and os.path.exists(f"/proc/self/fd/{name}")},
    "inherited": [os.get_inheritable(number) for number in (0, 1, 2)],
    "status": {name: status[name] for name in ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapEff",
               "NoNewPrivs", "Seccomp", "Cpus_allowed", "Threads")},
    "handlers": {number: str(signal.getsignal(number)).split(" at ")[0] for number in signal.valid_signals()},
    "limits": Path("/proc/self/limits").read_text(), "cgroup": Path("/proc/self/cgroup").read_text(),
    "gc": [gc.isenabled(), gc.get_threshold()], "threads": threading.active_count(), "warnings": len(warnings.filters),
    "native": threading.get_native_id() == os.getpid(), "excepthook": sys.excepthook is sys.__excepthook__,
}
for name in sys.argv[1:]:
    if name.startswith("fd="):
        found["read"] = os.read(int(name[3:]), 100).decode()
print(json.dumps(found), flush=True)
print("said", file=sys.stderr)
end = sys.argv[1] if len(sys.argv) > 1 else ""
if end == "raise":
    raise ValueError("why")
if end == "signal":
    os.kill(os.getpid(), signal.SIGUSR1)
if end == "interrupt":
    signal.raise_signal(signal.SIGINT)
if end == "abort":
    os.abort()
if end == "read":
    print(repr(sys.stdin.read()))
if end == "random":
    print(random.random())
if end == "words":
    sys.exit("words")
if end == "late":
    atexit.register(print, "at the end")
    threading.Thread(target=lambda: (time.sleep(0.2), print("in a thread"))).start()
    print("not flushed", end="")
if end == "full":
    sys.stdout = open("/dev/full", "w")
    print("in vain")
sys.exit(int(end[5:]) if end.startswith("exit=") else 0)
"""


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "on", True)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program that tells all that it finds; starters know it."""
    (tmp_path / "told").mkdir()
    (tmp_path / "told/__main__.py").write_text(TOLD)
    monkeypatch.setattr(starts, "PROGRAMS", (*starts.PROGRAMS, "told"))
    return tmp_path


Run = subprocess.CompletedProcess[str]


def both(folder: Path, *words: str, before: Sequence[str] = (), **options: Any) -> tuple[Run, Run]:
    """How the program, with ``before`` before it, ends when it is executed, and when it is forked."""
    command = [*before, sys.executable, "-m", "told", *words]
    settings: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "timeout": 60} | options
    with starts.cold():
        cold = subprocess.run(command, **settings)
    with forks() as made:
        warm = subprocess.run(command, **settings)
    assert len(made) == 1
    return cold, warm


@contextlib.contextmanager
def forks() -> Iterator[list[dict[str, Any]]]:
    """What starters were told within it."""
    made: list[dict[str, Any]] = []

    def start(self: starts.Starter, request: dict[str, Any], descriptors: Any) -> int:
        made.append(request)
        return original(self, request, descriptors)

    with pytest.MonkeyPatch.context() as patch:
        original = starts.Starter.start
        patch.setattr(starts.Starter, "start", start)
        yield made


def finds(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[0])
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start_new_session": True},
        {"stdin": subprocess.DEVNULL},
        {"input": "a\r\nb"},
        {"env": {"A": "1", "PATH": "/bin", "ODD": "a=b\nc\udcff"}},
        {"env": {"A": "1", "PATH": "/bin"}},
        {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "capture_output": False},
    ],
    ids=["plain", "session", "no stdin", "stdin", "environment", "bare environment", "one stream"],
)
def test_a_fork_finds_what_an_executed_program_finds(told: Path, options: dict[str, Any]) -> None:
    if "ODD" in options.get("env", {}):
        kept = {name: value for name, value in os.environ.items() if name.startswith(starts.STARTING)}
        options = {"env": options["env"] | kept}
    cold, warm = both(told, "read", **options)
    assert finds(warm) == finds(cold)
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


@pytest.mark.require("netns")
def test_a_fork_is_in_the_network_namespace_that_nsenter_brings_a_program_into(told: Path) -> None:
    with joined(["one"]) as network:
        cold, warm = (finds(run) for run in both(told, before=network.inside("one")))
    assert warm == cold
    assert warm["network"] != os.readlink("/proc/self/ns/net")


def test_descriptors_that_are_passed_have_their_numbers(told: Path) -> None:
    with (told / "file").open("w+") as file:
        file.write("text")
        for number in (3, 4, 5, 60):  # where a starter may hold something of its own
            with contextlib.suppress(OSError):
                os.fstat(number)
                continue
            os.dup2(file.fileno(), number)
            try:
                file.seek(0)
                os.lseek(number, 0, os.SEEK_SET)
                cold, warm = (finds(run) for run in both(told, f"fd={number}", pass_fds=[number]))
            finally:
                os.close(number)
            assert cold.pop("read") == "text"
            assert warm.pop("read") == "", "the file's position is shared, as after an exec"
            assert warm == cold


@pytest.mark.parametrize("end", ["", "exit=1", "exit=255", "signal", "interrupt", "abort"])
def test_a_fork_ends_as_an_executed_program_ends(told: Path, end: str) -> None:
    with_core = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, with_core[1]))
    try:
        command = [sys.executable, "-m", "told", end]
        ends = []
        for on in (False, True):
            with contextlib.nullcontext() if on else starts.cold():
                ends.append(subprocess.run(command, cwd=told, capture_output=True, timeout=180).returncode)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, with_core)
    assert ends[0] == ends[1]


@pytest.mark.parametrize("end", ["words", "late", "full", "exit=256", "exit=-1"])
def test_a_fork_says_at_its_end_what_an_executed_program_says(told: Path, end: str) -> None:
    cold, warm = both(told, end)
    said = [(run.returncode, run.stdout.splitlines()[1:], run.stderr) for run in (cold, warm)]
    assert said[0] == said[1]


def test_a_traceback_of_a_fork_names_the_same_error(told: Path) -> None:
    cold, warm = both(told, "raise")
    assert (warm.returncode, warm.stderr.splitlines()[-4:]) == (cold.returncode, cold.stderr.splitlines()[-4:])


def test_forks_draw_different_random_numbers(told: Path) -> None:
    assert len({run.stdout.splitlines()[1] for _ in range(2) for run in both(told, "random")}) == 4


async def test_a_fork_is_a_child_that_asyncio_can_wait_for(told: Path) -> None:
    with forks() as made:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "told", "exit=7"), cwd=told, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
    assert (process.returncode, json.loads(said)["parent"], len(made)) == (7, os.getpid(), 1)


def test_a_fork_can_be_killed_and_leaves_nothing(told: Path) -> None:
    with forks() as made:
        process = subprocess.Popen(
            [sys.executable, "-m", "told", "read"], cwd=told, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            process.kill()
    assert (process.returncode, len(made)) == (-signal.SIGKILL, 1)


TYPED = """
cd sub; holdfast --version | tr a-z A-Z; holdfast nonsense; echo $?
for file in job.yaml "a b.yaml"; do HOLDFAST_CONFIG=/nowhere holdfast submit --dry-run "$file" 2>&1; echo $?; done
"""


def test_a_command_in_a_shell_does_what_an_executed_one_does(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/job.yaml").write_text("jobSpec: 1")

    def type_at(commands: Path) -> Run:
        env = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
        return subprocess.run(["bash", "-c", TYPED], cwd=tmp_path, env=env, capture_output=True, text=True)

    executed = type_at(Path(sys.executable).parent)
    with in_shells.command(tmp_path / "commands") as commands, forks() as made:
        forked = type_at(commands)
    assert (forked.stdout, forked.stderr) == (executed.stdout, executed.stderr)
    assert len(made) == 4 and "jobSpec" in forked.stdout


def test_a_command_ends_when_it_is_killed_in_its_shell(tmp_path: Path) -> None:
    with in_shells.command(tmp_path / "commands") as commands, forks() as made:
        killed = subprocess.Popen(
            [commands / "holdfast", "submit", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with killed:
            while not made:
                time.sleep(0.01)
            killed.kill()
            assert killed.stdout is not None and killed.stdout.read() == b"", "open until the command has ended"


def ignore_a_signal() -> Callable[[], object]:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    return lambda: signal.signal(signal.SIGUSR2, before)


def lower_a_limit() -> Callable[[], object]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, before)


def change_the_umask() -> Callable[[], object]:
    before = os.umask(0o137)
    return lambda: os.umask(before)


@pytest.mark.parametrize("change", [ignore_a_signal, lower_a_limit, change_the_umask])
def test_what_a_starter_has_not_inherited_is_executed(
    told: Path, change: Callable[[], Callable[[], object]]
) -> None:
    both(told)  # there is a starter from here on
    undo = change()
    try:
        with forks() as made:
            subprocess.run([sys.executable, "-m", "told"], cwd=told, check=True, capture_output=True)
    finally:
        undo()
    assert made == []


@pytest.mark.parametrize(
    "options",
    [
        {"env": {**os.environ, "PYTHONPATH": "/"}},
        {"env": {**os.environ, "LD_PRELOAD": ""}},
        {"env": {**os.environ, "HOLDFAST_FAILPOINTS": "/nowhere"}},
        {"preexec_fn": os.getpid},
        {"close_fds": False},
        {"restore_signals": False},
        {"umask": 0o77},
        {"process_group": 0},
        {"executable": sys.executable},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_start_that_asks_for_more_is_executed(told: Path, options: dict[str, Any]) -> None:
    with forks() as made:
        subprocess.run([sys.executable, "-m", "told"], cwd=told, check=True, capture_output=True, **options)
    assert made == []


@pytest.mark.parametrize("before", [["-P"], ["-I"], ["-X", "importtime"]])
def test_other_options_of_python_are_executed(before: list[str]) -> None:
    with forks() as made:
        subprocess.run([sys.executable, *before, "-m", "holdfast", "--version"], check=True, capture_output=True)
    assert made == []


def test_a_folder_that_is_not_there_is_said_as_ever(told: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        subprocess.run([sys.executable, "-m", "told"], cwd=told / "nowhere")


@pytest.mark.parametrize("words", [["--version"], ["ps", "--nonsense"], ["job", "show", "x"]])
@pytest.mark.parametrize(
    "first", [[sys.executable, "-m", "holdfast"], [str(Path(sys.executable).with_name("holdfast"))]]
)
def test_a_command_says_the_same(tmp_path: Path, first: list[str], words: list[str]) -> None:
    env = {**os.environ, "HOLDFAST_CONFIG": str(tmp_path / "client.toml")}
    with starts.cold():
        cold = subprocess.run([*first, *words], env=env, capture_output=True, text=True)
    with forks() as made:
        warm = subprocess.run([*first, *words], env=env, capture_output=True, text=True)
    assert len(made) == 1
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_a_daemon_of_a_dev_cluster_is_forked_as_it_is_executed(told: Path) -> None:
    found = []
    for warm in (False, True):
        log = told / f"log-{warm}"
        (told / "here").unlink(missing_ok=True)
        command = (sys.executable, "-m", "holdfast_agent", "--config", str(told / "agent.toml"))
        with forks() as made, contextlib.nullcontext() if warm else starts.cold():
            process = processes.spawn(command, log, os.environ)
            _, status = os.waitpid(process.pid, 0)
        assert len(made) == warm
        found.append((os.waitstatus_to_exitcode(status), log.read_text(), log.stat().st_mode))
    assert found[0] == found[1]
    assert found[0][0] == 2


@pytest.mark.parametrize("refused", ["syscall", "prctl"])
def test_where_the_kernel_refuses_a_fork_none_is_tried(tmp_path: Path, refused: str) -> None:
    """The starter's own lines, with a number of that call that no kernel knows."""
    wrong = {
        "syscall": ("CLONE3 = 435", "CLONE3 = 99_435"),
        "prctl": ("PR_SET_MM_MAP = 15, 35, 14", "PR_SET_MM_MAP = 15, 35, 99"),
    }
    starter = tmp_path / "starter.py"
    text = Path(starts.STARTER).read_text()
    starter.write_text(text.replace(*wrong[refused]))
    assert starter.read_text() != text
    assert starts.possible() and not starts.possible(str(starter))


def test_a_starter_ends_with_who_started_it(told: Path) -> None:
    code = (
        "import subprocess, sys; from tests.support.warm_start import starts; starts.install(); starts.on = True\n"
        "subprocess.run([sys.executable, '-m', 'holdfast', '--version'], check=True, capture_output=True)\n"
        "print(starts.starter('holdfast', starts.circumstances(), bare=False)._process.pid)"
    )
    root = Path(__file__).parents[3]
    said = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    starter = int(said.stdout)
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(starter)
        try:
            assert select.select([descriptor], [], [], 20)[0]
        finally:
            os.close(descriptor)
