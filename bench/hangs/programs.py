"""Programs that hang or only look like it, on a dev cluster with default thresholds.

``python -m bench.hangs.programs``. Each program of ``hung_programs``, ``healthy_programs`` and ``inner_programs`` is a
job of two ranks with action RESTART, all of them at the same time, so that the machine is loaded as well. Twice as many
go on beside them on the same host, or so many hangs at once would pass for a fault of the host. Prints the outcome of
each, beside the expected one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.hangs import healthy_programs, hung_programs, inner_programs
from bench.hangs.program_gang import Case

from holdfast import settings
from holdfast._sdk import json_view
from holdfast.client import Client

_MODULES = (hung_programs, healthy_programs, inner_programs)
CASES = hung_programs.CASES | healthy_programs.CASES | inner_programs.CASES
BYSTANDER = "import time\nfor step in range(10_000): print('step', step, flush=True); time.sleep(5)"
HOLDFAST = [sys.executable, "-m", "holdfast"]


@contextmanager
def cluster(folder: Path, hosts: int) -> Iterator[dict[str, str]]:
    """A dev cluster; yields the environment of its clients."""
    env = os.environ | {"HOLDFAST_CONFIG": str(folder / "client.toml")}
    _holdfast(env, "dev", "start", "--hosts", str(hosts), "--gpus", "0", "--dir", str(folder))
    try:
        yield env
    finally:
        _holdfast(env, "dev", "stop", "--dir", str(folder))


@contextmanager
def silent_server() -> Iterator[int]:
    """The port of a service outside every job, which accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _holdfast(env: dict[str, str], *words: str) -> str:
    done = subprocess.run([*HOLDFAST, *words], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"holdfast {' '.join(words)}: {done.stderr}")
    return done.stdout


def work_of(folder: Path, name: str) -> Path:
    """The folder that a program's ranks work in."""
    return folder / "work" / name.replace(" ", "-").replace(",", "")


def submit(env: dict[str, str], name: str, case: Case, folder: Path, port: int, pause_s: float) -> str:
    """The id of the program's job."""
    work = work_of(folder, name)
    work.mkdir(parents=True)
    options = ["--processes-per-worker", str(case.ranks), "--restart-on-hang", "--detach", "--name", name]
    values = {"WORK": work, "SILENT_PORT": port, "PAUSE_S": pause_s, "PYTHONPATH": os.getcwd()} | dict(case.env)
    for variable, value in values.items():
        options += ["--env", f"{variable}={value}"]
    if case.timeout:
        options += ["--hang-timeout", case.timeout]
    module = next(one for one in _MODULES if name in one.CASES)
    command = [sys.executable, str(module.__file__), name]
    if case.script:
        script = work / "run.sh"
        script.write_text('set -e\n"$@"\necho ended\n')
        command = ["bash", str(script), *command]
    return _holdfast(env, "run", *options, "--", *command).split()[0]


def shown(folder: Path, jobs: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Each program's job with its hangs and its health, as ``job show -o json`` prints them."""

    async def ask() -> dict[str, dict[str, Any]]:
        async with Client(settings.load(folder / "cluster" / "client.toml")) as client:
            return {case: json_view.job(await client.get_job(job), workers=False) for case, job in jobs.items()}

    return asyncio.run(ask())


def verdict(case: Case, job: dict[str, Any], health: list[str]) -> str:
    """ "right", or what is wrong."""
    hangs = job["hangs"]
    restarted = [one for one in hangs if one["outcome"] in ("RESTARTED", "BUDGET_SPENT")]
    wrong = []
    by_generation = [one["generation"] for one in hangs]
    if case.expected != "healthy" and len(set(by_generation)) < len(by_generation):
        wrong.append("more than one hang in a generation")
    match case.expected:
        case "acts" if not restarted:
            wrong.append("never acted on" if hangs else "never noticed")
        case "tells" if not hangs:
            wrong.append("never noticed")
        case "tells" if not restarted and not any("it is restarted in" in said for said in health):
            wrong.append("no word of when it is acted on")
        case "healthy" if restarted:
            wrong.append("killed")
        case "healthy" if hangs and not case.notice:
            wrong.append("noticed")
    if case.expected != "healthy" and hangs and case.guilty is not None:
        suspects = hangs[0]["suspects"]
        if suspects and suspects != [f"workerpool0-0 rank {case.guilty}"]:
            wrong.append(f"blames {', '.join(map(str, suspects))}")
    return "; ".join(wrong) or "right"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(CASES), metavar="NAME")
    parser.add_argument("--for", dest="seconds", type=float, default=420.0, help="seconds to watch")
    parser.add_argument("--pause", type=float, default=180.0, help="seconds that a healthy pause takes")
    parser.add_argument("--verbose", action="store_true", help="print each change of a job's health")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="programs") as name, silent_server() as port:
        folder = Path(name)
        folder.chmod(0o755)
        with cluster(folder / "cluster", 1) as env:
            for number in range(2 * len(arguments.only)):
                _holdfast(env, "run", "--detach", "--name", f"bystander {number}", "--", "python3", "-c", BYSTANDER)
            jobs = {case: submit(env, case, CASES[case], folder, port, arguments.pause) for case in arguments.only}
            health: dict[str, list[str]] = {case: [] for case in jobs}
            end = time.monotonic() + arguments.seconds
            while time.monotonic() < end:
                time.sleep(10)
                for case, job in shown(folder, jobs).items():
                    health[case].append(
                        f"{datetime.now(UTC):%H:%M:%S} generation {job['generation']} {job['health']}"
                    )
            print(f"load average {os.getloadavg()[1]:.0f}")
            for case, job in shown(folder, jobs).items():
                report(case, job, health[case] if arguments.verbose else health[case][-2:], work_of(folder, case))


def report(name: str, job: dict[str, Any], health: list[str], work: Path) -> None:
    """Print one line for the program, and one for each of its hangs."""
    case = CASES[name]
    print(f"{name:28} {case.expected:8} {job['state'].removeprefix('JOB_STATE_'):10} {verdict(case, job, health)}")
    for fault in sorted(work.glob("r*/fault")):
        print(f"    fault of {fault.parent.name} at {fault.read_text()}")
    for hang in job["hangs"]:
        print(
            f"    hang {hang['number']} generation {hang['generation']} {hang['rule']} since {_clock(hang['since'])}"
            f" noticed {_clock(hang['noticedAt'])} {hang['outcome'] or 'open'} {_clock(hang['judgedAt'])}"
            f" suspects {hang['suspects']}"
        )
        for words in (hang["sentence"], hang["stacks"], hang["note"]):
            print(f"        {words}")
    for said in health:
        print(f"    health {said}")
    if job["error"]:
        print(f"    error {job['error']}")


def _clock(time_or_none: str | None) -> str:
    return (time_or_none or "")[11:19]


if __name__ == "__main__":
    main()
