"""Twenty-one situations that a job can be in, staged with real processes, and what the web page shows of each.

A reader who has only the picture should be able to say whether the job is healthy, what happened, what was done about
it, and what to do now. Neither a job's name nor that of its picture says what it is about; ``jobs.json`` does, for
those who have answered. Daemons, shims and ranks are real and are killed, stopped and drained for real; GPUs are
simulated. Needs chromium and ``pip install playwright``; every picture lands in the folder that is given.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.support.cluster import work_directory
from bench.support.report import progress

TRAIN = Path(__file__).resolve().parent.parent / "examples/digits/train.py"
HOSTS, GPUS = 8, 4
QUOTA = "\n[quotas.small]\ngpus = 1\n"
SETTLE_S = 120
"""A host counts as lost after 66 s, and a hang is told of after half a minute."""
SCREENS = (("wide", 1440, 900, "light"), ("dark", 1440, 900, "dark"), ("phone", 390, 844, "light"))
TABS = ("timeline", "ranks", "logs", "exits", "hangs", "recoveries", "events", "spec")

STEPS = "import itertools,time\nfor n in itertools.count(1): print(f'step={n}', flush=True); time.sleep(0.5)\n"
AWAY = """
import os, socket, sys, time
data = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for n in range(1, 60): print(f"step={n}", flush=True); time.sleep(0.5)
data.recv(1)
"""
SLOW_START = """
import time
print("loading 840 shards", flush=True)
for n in range(900): sum(range(20000)); time.sleep(0.2)
"""
USER_ERROR = """
import json
config = json.loads("{}")
print("config read", flush=True)
print(config["learning_rate"])
"""
NO_MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
print("building the cache of samples", flush=True)
cache = bytearray(1 << 30)
"""
DISK_FULL = """
import time
for n in range(1, 8): print(f"step={n}", flush=True); time.sleep(0.5)
with open("/dev/full", "wb", buffering=0) as file: file.write(b"x" * 4096)
"""
CODE_7 = "import sys, time\nfor n in range(1, 8): print(f'step={n}', flush=True); time.sleep(0.5)\nsys.exit(7)\n"
WELL = "import time\nfor n in range(1, 9): print(f'step={n}/8 loss={1 / n:.3f}', flush=True); time.sleep(0.5)\n"


def plain(name: str) -> str:
    """A name that says nothing of the situation."""
    return f"train-{hashlib.sha256(name.encode()).hexdigest()[:4]}"


@dataclass
class Stage:
    """A dev cluster in ``directory`` and the jobs that were made in it, by situation."""

    directory: Path
    jobs: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "HOLDFAST_CONFIG": str(self.directory / "client.toml")}

    def holdfast(self, *words: str) -> str:
        """The command line's output. Raises ``CalledProcessError``."""
        command = [sys.executable, "-m", "holdfast", *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, cwd=self.directory)
        if done.returncode:
            raise SystemExit(f"holdfast {words} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def run(self, name: str, host: str, *options: str, program: str = "", command: tuple[str, ...] = ()) -> str:
        """Start a job of this name on one host, or on any where ``host`` is empty."""
        where = ("--on-host", host) if host else ()
        program_or = command or ("python3", "-uc", program)
        made = self.holdfast("run", "--detach", "--name", plain(name), *where, *options, "--", *program_or)
        self.jobs[name] = made
        return made

    def submit(self, name: str, spec: dict[str, Any]) -> str:
        """Start the job of a job file."""
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps({"displayName": plain(name), "jobSpec": spec}))
        self.jobs[name] = self.holdfast("submit", str(path))
        return self.jobs[name]

    def job(self, name: str) -> Any:
        return json.loads(self.holdfast("job", "show", self.jobs[name], "-o", "json"))

    def until(self, what: str, condition: Callable[[], object], timeout_s: float = 120) -> None:
        """Wait for a condition. Ends the program when it doesn't come."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"waited in vain for {what}")
            time.sleep(1)

    def runs(self, *names: str) -> None:
        """Wait until these jobs run and have made a step."""
        for name in names:
            self.until(f"{name} to run", partial(self._is, name, "RUNNING"))

    def _is(self, name: str, state: str) -> bool:
        return bool(self.job(name)["state"] == f"JOB_STATE_{state}")

    def pid(self, host: str) -> int:
        return int((self.directory / f"hosts/{host}/agent.pid").read_text())

    def signal_host(self, number: int, host: str, *names: str) -> None:
        """Send a signal to the agent of a host, and to the shims and ranks of these jobs there."""
        for name in names:
            for worker in self.job(name)["workers"]:
                if worker["host"] == host:
                    pids = [worker["shimPid"], *(rank["pid"] for rank in worker["ranks"])]
                    for pid in filter(None, pids):
                        os.kill(pid, number)
        os.kill(self.pid(host), number)


@contextmanager
def silent_server() -> Iterator[int]:
    """A server that accepts connections and never answers, as storage that stands still does. Gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def stage(on: Stage, silent_port: int) -> None:
    """Bring about all situations; returns when those that take time have settled, the young job started last."""
    digits = ("python3", str(TRAIN), "--epochs", "100000", "--step-time", "0.1", "--report-every", "1")
    folder = on.directory / "saves"

    def saves(name: str) -> tuple[str, ...]:
        return ("--checkpoint-dir", str(folder / name))

    two = ("--replicas", "2", "--processes-per-worker", "1", "--gpus", "1")
    pair = ("--on-host", "host-1")
    hang = ("--hang-rank", "1", "--hang-step", "200")
    crash = ("--crash-rank", "1", "--crash-step", "150")
    on.run("healthy", "host-0", *two, *pair, command=(*digits, *saves("healthy")))
    on.run("hung-at-collective", "host-0", *two, *pair, command=(*digits, *saves("hung"), *hang))
    on.run("recovered", "host-0", *two, *pair, command=(*digits, *saves("recovered"), *crash))
    on.run("slow-storage", "host-6", "--gpus", "1", command=("python3", "-uc", AWAY, str(silent_port)))
    stopped = ("--replicas", "2", "--gpus", "1", "--restart-on-hang", *pair)
    stops = (*digits, *saves("stopped"), *hang, "--hang-kind", "stop")
    on.run("one-rank-stopped", "host-0", *stopped, command=stops)
    on.run("crash-loop", "host-6", "--gpus", "1", program=USER_ERROR)
    on.run("out-of-memory", "host-6", "--gpus", "1", program=NO_MEMORY)
    on.run("host-lost", "host-3", "--gpus", "2", "--processes-per-worker", "1", program=STEPS)
    on.run("host-frozen", "host-4", "--gpus", "2", "--processes-per-worker", "1", program=STEPS)
    on.run("agent-silent", "host-5", "--gpus", "2", "--processes-per-worker", "1", program=STEPS)
    on.run("drained", "host-2", "--gpus", "1", program=STEPS)
    on.run("paused", "host-6", "--gpus", "1", program=STEPS)
    on.run("within-quota", "host-6", "--gpus", "1", "--project", "small", program=STEPS)
    on.runs("within-quota")
    on.run("waits-for-quota", "host-6", "--gpus", "1", "--project", "small", program=STEPS)
    spot = {
        "replicaCount": 1,
        "processesPerWorker": 1,
        "machineSpec": {"acceleratorCount": 2},
        "processSpec": {"command": ["python3", "-uc", STEPS]},
    }
    scheduling = {"strategy": "SPOT", "hostSelector": {"hosts": ["host-7"]}}
    on.submit("preempted", {"workerPoolSpecs": [spot], "scheduling": scheduling})
    on.runs("preempted", "host-lost", "host-frozen", "agent-silent", "drained", "paused")
    on.run("preempts", "host-7", "--gpus", "4", "--processes-per-worker", "1", program=STEPS)
    on.run("disk-full", "host-6", "--gpus", "1", program=DISK_FULL)
    on.run("code-7", "host-6", "--gpus", "1", "--max-restarts", "0", program=CODE_7)
    on.run("ended-well", "host-6", program=WELL)
    on.holdfast("job", "pause", on.jobs["paused"])
    on.holdfast("host", "drain", "host-2", "--reason", "new power supply")
    on.runs("preempts")
    on.signal_host(signal.SIGKILL, "host-3", "host-lost")
    on.signal_host(signal.SIGSTOP, "host-4", "host-frozen")
    on.signal_host(signal.SIGKILL, "host-5")
    progress(f"staged; {SETTLE_S} s until lost hosts and hangs are told of")
    time.sleep(SETTLE_S)
    on.run("young", "host-6", "--gpus", "1", program=SLOW_START)
    on.runs("young")
    on.run("waits-for-hosts", "", "--gpus", "4", "--replicas", "3", program=STEPS)


def shoot(on: Stage, pictures: Path, tabs: bool) -> None:
    """Take a picture of each situation's page and of the other pages, on a desktop in both themes and on a phone."""
    from playwright.sync_api import sync_playwright

    pages = {
        "overview": "/",
        "jobs": "/jobs",
        "hosts": "/hosts",
        "schedules": "/schedules",
        "goodput": "/goodput",
        "admin": "/admin",
    }
    pages |= {f"host-{host}": f"/hosts/host-{host}" for host in range(2, 6)}
    pages |= {plain(name): f"/jobs/{job_id}" for name, job_id in on.jobs.items()}
    if tabs:
        for name in ("recovered", "one-rank-stopped", "crash-loop", "hung-at-collective"):
            pages |= {f"{plain(name)}-{tab}": f"/jobs/{on.jobs[name]}?tab={tab}" for tab in TABS}
    with sync_playwright() as tools:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for screen, width, height, scheme in SCREENS:
            size = {"width": width, "height": height}
            context = browser.new_context(viewport=size, color_scheme=scheme, ignore_https_errors=True)
            page = context.new_page()
            link = re.search(r"(https://\S+?)/login#\S+", on.holdfast("web", "open", "--no-browser"))
            if link is None:
                raise SystemExit("holdfast web printed no address")
            page.goto(link[0])
            page.wait_for_url(f"{link[1]}/")
            for name, path in pages.items():
                page.goto(link[1] + path)
                page.locator("main :is(.panel, .empty, .problem, .joblist)").first.wait_for()
                page.wait_for_timeout(1500)
                page.screenshot(path=pictures / f"{name}-{screen}.png")
            context.close()
        browser.close()


def end(on: Stage) -> None:
    """Let what was stopped run on, and end the cluster with its workers."""
    if "host-frozen" in on.jobs:
        on.signal_host(signal.SIGCONT, "host-4", "host-frozen")
    on.holdfast("dev", "start", "--dir", str(on.directory))
    on.holdfast("dev", "stop", "--dir", str(on.directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures", type=Path, help="folder for the pictures")
    parser.add_argument("--tabs", action="store_true", help="also each tab of four of the jobs")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the cluster there and leave it running")
    options = parser.parse_args()
    options.pictures.mkdir(parents=True, exist_ok=True)
    with work_directory() as folder, silent_server() as port:
        on = Stage((options.keep or folder / "cluster").resolve())
        on.directory.mkdir(parents=True, exist_ok=True)
        size = ("--hosts", str(HOSTS), "--gpus", str(GPUS))
        on.holdfast("dev", "start", *size, "--dir", str(on.directory))
        settings = on.directory / "controller.toml"
        settings.write_text(settings.read_text() + QUOTA)
        os.kill(int((on.directory / "controller.pid").read_text()), signal.SIGHUP)
        try:
            stage(on, port)
            (options.pictures / "jobs.json").write_text(
                json.dumps({plain(name): name for name in on.jobs}, indent=1)
            )
            shoot(on, options.pictures, options.tabs)
            if options.keep:
                input("Enter ends it.")
        finally:
            end(on)


if __name__ == "__main__":
    main()
