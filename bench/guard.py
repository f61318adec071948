"""What ``holdfast guard`` adds to a command: its start, its relaunch, and what its parts take while the ranks run.

All tasks are on this machine and share its cores, so that a start on hosts of their own takes less time, but no less
CPU: that of all processes until the last rank runs is in the remark. torchrun with one launcher for each task takes
turns with it, and with Slurm's commands and root an ``srun`` loop, which starts a step again when it has failed. Starts
on many hosts are also measured with one real task and hollow others (``bench.hollow.tasks``), as on hosts of their own
all load at the same time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.relaunch import kill_one
from bench.support.cluster import work_directory
from bench.support.report import Table, framed, number, progress
from bench.support.stamps import Stamps, build
from bench.support.torchrun import WHOLE_RESTARTS, is_there, torchrun
from bench.support.usage import command, own_cpu_s, pss_mb
from tests.support import slurm_cluster

START_S = 300.0
END_S = 60.0
SETTLE_S = 5.0
MARK = "HOLDFAST_BENCH_MARK"
STEP = "srun -N{} --ntasks-per-node=1 --kill-on-bad-exit=1"
SRUN_LOOP = f"""until {STEP} sh -c 'RANK=$SLURM_PROCID exec "$@"' - "$@"; do :; done"""


@contextlib.contextmanager
def guard(arguments: list[str], tasks: int, output: Path, env: dict[str, str]) -> Iterator[list[int]]:
    """Guards of one job, as a launcher that sets the number of each task starts them; gives their pids."""
    job = {"HOLDFAST_GUARD_HOST": "127.0.0.1", "HOLDFAST_GUARD_SEED": os.urandom(32).hex()} if tasks > 1 else {}
    command_line = [
        sys.executable,
        "-m",
        "holdfast",
        "guard",
        "--max-restarts",
        "1000",
        "--record",
        f"{output}.record",
    ]
    started = []
    for task in range(tasks):
        of = {"RANK": task, "SIZE": tasks, "LOCAL_RANK": task, "LOCAL_SIZE": tasks} if tasks > 1 else {}
        numbers = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in of.items()}
        with output.open("ab") as log:
            started.append(
                subprocess.Popen(
                    [*command_line, "--", *arguments],
                    env={**os.environ, **job, **numbers, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(END_S)


def marked(mark: str) -> list[int]:
    """Every process with this mark in its environment."""
    found, text = [], f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and text in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def cpu_so_far(mark: str) -> float:
    """Seconds of CPU of all processes that live with the mark."""
    total = 0.0
    for pid in marked(mark):
        with contextlib.suppress(OSError):
            total += own_cpu_s(pid)
    return total


Launch = Callable[[list[str], int, Path, dict[str, str]], contextlib.AbstractContextManager[list[int]]]


def torchrun_as(
    arguments: list[str], tasks: int, output: Path, env: dict[str, str]
) -> contextlib.AbstractContextManager[list[int]]:
    """One launcher for each task, one rank in each."""
    return torchrun(arguments, 1, output, nodes=tasks, env={**WHOLE_RESTARTS, **env})


def start(launch: Launch, program: Path, tasks: int, directory: Path) -> tuple[float, float]:
    """Seconds from the start of the launchers to the last rank's first instruction, and of CPU until then."""
    stamps, mark = Stamps(Path(tempfile.mktemp(dir=directory))), os.urandom(8).hex()
    began = time.monotonic()
    with launch([str(program), str(stamps.path)], tasks, directory / "start.log", {MARK: mark}):
        born = stamps.wait(tasks, START_S, began)
        return max(stamp.at for stamp in born) - began, cpu_so_far(mark)


def starts(program: Path, tasks: int, runs: int, directory: Path, table: Table) -> None:
    """Starts of each side, in turns."""
    sides: dict[str, Launch] = {"holdfast guard": guard} | ({"torchrun": torchrun_as} if is_there() else {})
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(runs):
        for name, launch in sides.items():
            found[name].append(start(launch, program, tasks, directory))
        progress(f"start of {tasks}: {turn + 1} of {runs}")
    for name, took in found.items():
        cpu = sorted(each[1] for each in took)[len(took) // 2]
        what = f"{tasks} task{'s' * (tasks != 1)}: {name}"
        table.add(what, [each[0] for each in took], f"{number(cpu / tasks)} s of CPU a task")


def hollow_guard(program: Path, tasks: int, directory: Path) -> float:
    """Seconds from the start of task 0 and of hollow others until the last rank has started."""
    stamps = Stamps(Path(tempfile.mktemp(dir=directory)))
    command_line = [str(program), str(stamps.path)]
    env = {"HOLDFAST_GUARD_HOST": "127.0.0.1", "HOLDFAST_GUARD_SEED": os.urandom(32).hex()}
    env |= {**os.environ, "HOLDFAST_GUARD_TASKS": str(tasks), "HOLDFAST_GUARD_TASK": "0"}
    others = [*(sys.executable, "-m", "bench.hollow.tasks", "guests", "--tasks", str(tasks))]
    others += ["--directory", tempfile.mkdtemp(dir=directory), "--", *command_line]
    record = tempfile.mktemp(dir=directory)
    first = [*(sys.executable, "-m", "holdfast", "guard", "--record", record, "--"), *command_line]
    began = time.monotonic()
    with (directory / "hollow.log").open("ab") as log:
        task_0 = subprocess.Popen(first, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        guests = subprocess.Popen(others, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            assert guests.stdout is not None
            last = float(guests.stdout.readline())
            return max(last, stamps.wait(1, START_S, began)[0].at) - began
        finally:
            task_0.send_signal(signal.SIGTERM)
            guests.terminate()
            guests.communicate(timeout=END_S)
            task_0.wait(END_S)


def hollow_torchrun(program: Path, tasks: int, directory: Path) -> float:
    """Seconds from the start of a process until so many launchers in it have met; no ``program`` is started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    arguments = ("torchrun", "--tasks", str(tasks), "--port", str(port))
    with (directory / "hollow.log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-m", "bench.hollow.tasks", *arguments], stdout=subprocess.PIPE, stderr=log, check=True
        )
    return float(done.stdout) - began


def hollow_starts(program: Path, tasks: int, runs: int, directory: Path, table: Table) -> None:
    """Starts of many hosts, all but the first of which are hollow, in turns."""
    sides = {"holdfast guard, until the last rank has started": hollow_guard}
    if is_there():
        sides["torchrun, until all launchers have met"] = hollow_torchrun
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(runs):
        for name, measure in sides.items():
            found[name].append(measure(program, tasks, directory))
        progress(f"start of {tasks} hollow hosts: {turn + 1} of {runs}")
    for name, took in found.items():
        table.add(f"{tasks} hollow hosts: {name}", took)


@contextlib.contextmanager
def srun_loop(arguments: list[str], tasks: int, env: dict[str, str]) -> Iterator[None]:
    """A Slurm of our own, and a step that is started again whenever it fails."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    with slurm_cluster.running(folder) as slurm:
        loop = subprocess.Popen(
            ["sh", "-c", SRUN_LOOP.format(tasks), "-", *arguments],
            env={**slurm.environment, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(loop.pid, signal.SIGKILL)
            loop.wait()
    shutil.rmtree(folder)


def relaunch_guarded(program: Path, tasks: int, directory: Path) -> float:
    """One relaunch of a gang that runs the first time: a rank that fails again and again waits before each restart."""
    stamps = Stamps(Path(tempfile.mktemp(dir=directory)))
    with guard([str(program), str(stamps.path)], tasks, directory / "guard.log", {}):
        stamps.wait(tasks, START_S)
        time.sleep(0.5)
        return kill_one(stamps, tasks, START_S)


def relaunches(program: Path, tasks: int, runs: int, directory: Path, table: Table) -> None:
    """A rank is killed; each side in turns, the guard with a new gang each time."""
    took: dict[str, list[float]] = {"holdfast guard": []}
    with contextlib.ExitStack() as stack:
        stamps: dict[str, Stamps] = {}

        def command_of(name: str) -> list[str]:
            stamps[name] = Stamps(directory / f"relaunch-{name.split()[0]}")
            return [str(program), str(stamps[name].path)]

        if is_there():
            stack.enter_context(torchrun_as(command_of("torchrun"), tasks, directory / "torchrun.log", {}))
        if not slurm_cluster.missing():
            stack.enter_context(srun_loop(command_of("srun loop"), tasks, {}))
        for each in stamps.values():
            each.wait(tasks, START_S)
        for turn in range(runs):
            took["holdfast guard"].append(relaunch_guarded(program, tasks, directory))
            for name, each in stamps.items():
                time.sleep(0.5)
                took.setdefault(name, []).append(kill_one(each, tasks, START_S))
            progress(f"relaunch: {turn + 1} of {runs}")
    for name, values in took.items():
        table.add(f"{tasks} tasks: {name}", values)


def part(arguments: str) -> str:
    """The part of a guard that a command line is; empty for a rank."""
    names = {"holdfast_controller": "controller, beside task 0", "holdfast_agent --": "agent"}
    names |= {"template": "shims and their template", "shim": "shims and their template"}
    names |= {"guard/scratch.py": "cleaner of the scratch folder"}
    return next((name for word, name in names.items() if word in arguments), "")


def costs(program: Path, seconds: float, directory: Path) -> list[tuple[str, str, str]]:
    """Memory and CPU of the parts of two tasks while their ranks do nothing; only task 0 has a controller."""
    stamps, mark = Stamps(directory / "cost"), os.urandom(8).hex()
    with guard([str(program), str(stamps.path)], 2, directory / "cost.log", {MARK: mark}) as guards:
        born = stamps.wait(2, START_S)
        time.sleep(SETTLE_S)
        ranks = {stamp.pid for stamp in born}
        pids = {pid: part(command(pid)) or "watchers" for pid in marked(mark) if pid not in ranks}
        pids |= {pid: f"guard of task {task}" for task, pid in enumerate(guards)}
        before = {pid: own_cpu_s(pid) for pid in pids}
        progress(f"watching for {seconds:g} s")
        time.sleep(seconds)
        rows = []
        for name in dict.fromkeys(pids.values()):
            own = [pid for pid, each in pids.items() if each == name]
            cpu = sum(own_cpu_s(pid) - before[pid] for pid in own) / seconds * 100
            tasks = 1 if "task " in name else 2
            rows.append((name, f"{sum(pss_mb(pid) for pid in own) / tasks:.1f}", f"{cpu / tasks:.2f} %"))
        return rows


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each side (%(default)s)")
    parser.add_argument("--tasks", type=int, nargs="*", default=[1, 4], help="to start (%(default)s)")
    parser.add_argument(
        "--hollow", type=int, nargs="*", default=[4, 64], help="hosts to start, all but one hollow (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="to watch what it takes (%(default)s)")
    parser.add_argument("--only", choices=("starts", "relaunches", "costs"), help="one of the tables")
    options = parser.parse_args()
    with framed(), work_directory() as directory:
        program = build(directory)
        begun = Table("From the start of the launchers to the last rank's first instruction", "s")
        again = Table("From a rank's death to the first instruction of all ranks of the next generation", "ms")
        if options.only in (None, "starts"):
            for tasks in options.tasks:
                starts(program, tasks, options.runs, directory, begun)
            for tasks in options.hollow:
                hollow_starts(program, tasks, options.runs, directory, begun)
            begun.print()
        if options.only in (None, "relaunches"):
            relaunches(program, max(options.tasks), options.runs, directory, again)
            again.print()
        if options.only not in (None, "costs"):
            return
        cost = costs(program, options.seconds, directory)
        print(f"\n### While two tasks run, for each, over {options.seconds:g} s\n")
        print("|  | PSS in MB | CPU of a core |\n| --- | --- | --- |")
        for row in cost:
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
