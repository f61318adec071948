"""Programs that hang or only look like it, on a dev cluster with default thresholds.

``python -m bench.hangs.programs``. Each program of ``program_cases`` is a job of two ranks with action RESTART, all of
them at the same time, so that the machine is loaded as well. Prints the outcome of each, beside the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.hangs.program_cases import CASES, Case

SCRIPT = Path(__file__).with_name("program_cases.py")
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


def submit(env: dict[str, str], name: str, case: Case, folder: Path, port: int, pause_s: float) -> str:
    """The id of the program's job."""
    work = folder / "work" / name.replace(" ", "-").replace(",", "")
    work.mkdir(parents=True)
    options = ["--processes-per-worker", "2", "--restart-on-hang", "--detach", "--cpus", "0", "--name", name]
    values = {"WORK": work, "SILENT_PORT": port, "PAUSE_S": pause_s, "PYTHONPATH": os.getcwd()}
    for variable, value in values.items():
        options += ["--env", f"{variable}={value}"]
    if case.timeout:
        options += ["--hang-timeout", case.timeout]
    said = _holdfast(env, "run", *options, "--", sys.executable, str(SCRIPT), name)
    return said.split()[0].rstrip(":,.") if said.split() else ""


def shown(env: dict[str, str], job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_holdfast(env, "job", "show", job, "-o", "json"))
    return found


def verdict(case: Case, job: dict[str, Any], health: list[str]) -> str:
    """ "right", or what is wrong."""
    hangs = job.get("hangs", [])
    restarted = [one for one in hangs if one.get("outcome") == "RESTARTED"]
    wrong = []
    by_generation = [one["generation"] for one in hangs]
    if len(set(by_generation)) < len(by_generation):
        wrong.append("more than one hang in a generation")
    match case.expected:
        case "acts" if not restarted:
            wrong.append("never acted on" if hangs else "never noticed")
        case "tells" if not hangs:
            wrong.append("never noticed")
        case "tells" if not restarted and not any("restarted in" in said for said in health):
            wrong.append("no word of when it is acted on")
        case "healthy" if restarted:
            wrong.append("killed")
        case "healthy" if hangs and not case.notice:
            wrong.append("noticed")
    if case.expected != "healthy" and hangs and case.guilty is not None:
        suspects = hangs[0].get("suspects", [])
        if suspects and suspects != [f"workerpool0-0 rank {case.guilty}"]:
            wrong.append(f"blames {', '.join(map(str, suspects))}")
    return "; ".join(wrong) or "right"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(CASES), metavar="NAME")
    parser.add_argument("--for", dest="seconds", type=float, default=420.0, help="seconds to watch")
    parser.add_argument("--pause", type=float, default=180.0, help="seconds that a healthy pause takes")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="programs") as name, silent_server() as port:
        folder = Path(name)
        folder.chmod(0o755)
        with cluster(folder / "cluster", 2) as env:
            jobs = {case: submit(env, case, CASES[case], folder, port, arguments.pause) for case in arguments.only}
            health: dict[str, list[str]] = {case: [] for case in jobs}
            end = time.monotonic() + arguments.seconds
            while time.monotonic() < end:
                time.sleep(15)
                for case, job in jobs.items():
                    said = shown(env, job).get("health", "")
                    if said and (not health[case] or health[case][-1] != said):
                        health[case].append(said)
            print(f"load average {os.getloadavg()[1]:.0f}")
            for case, job in jobs.items():
                report(case, shown(env, job), health[case])


def report(name: str, job: dict[str, Any], health: list[str]) -> None:
    """Print one line for the program, and one for each of its hangs."""
    case = CASES[name]
    print(f"{name:28} {case.expected:8} {job['state'].removeprefix('JOB_STATE_'):10} {verdict(case, job, health)}")
    for hang in job.get("hangs", []):
        print(
            f"    hang {hang.get('number')} g{hang['generation']} {hang['rule']} since {hang['since'][11:19]}"
            f" noticed {hang['noticedAt'][11:19]} {hang.get('outcome', 'open')} at {hang.get('judgedAt', '')[11:19]}"
            f" suspects {hang.get('suspects', [])}\n        {hang['sentence']}\n        {hang.get('stacks', '')}"
        )
    for said in health[-3:]:
        print(f"    health: {said}")


if __name__ == "__main__":
    main()
