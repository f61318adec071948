"""``make demo-ha``: two controllers; the one that leads is killed in the middle of a training, and nobody notices.

The log is in a server of PostgreSQL that is made for this run. Commands are typed as users type them, and timed.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from examples.demo import DIM, RESET, TRAIN, Demo
from tests.support import postgres
from tests.support.two_controllers import NAMES, TwoControllers, two_controllers

HOSTS, RANKS = 2, 4
EPOCHS, REPORT_EVERY, STEP_TIME_S = 200, 10, 0.002
KILLED_AT = 0.3
"""The share of the training that is done when the controller is killed."""
WITHIN_S = 120
INSTALL = {
    "PostgreSQL": "apt-get install postgresql, whose own server is left alone",
    "psycopg": "pip install 'holdfast[postgresql]'",
}
LEADER, STANDBY = NAMES
_REPORT = re.compile(r"step=(\d+) epoch=(\d+)/")


class Followed:
    """A training whose log is followed and printed, with the seconds since its start."""

    def __init__(self, command: list[str], env: dict[str, str], due_epoch: int) -> None:
        self.began = time.monotonic()
        self.due = threading.Event()
        """Set once ``due_epoch`` was printed, or the log has ended."""
        self.steps: list[int] = []
        """Of the training's reports, as they were printed."""
        self._due_epoch = due_epoch
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def tell(self, text: str) -> None:
        """A line, with its time."""
        print(f"{time.monotonic() - self.began:7.2f}  {text}", flush=True)

    def end(self) -> int:
        """Its exit status, once all of the log is printed."""
        status = self.process.wait()
        self._reader.join()
        return status

    def _read(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.tell(line.rstrip())
            if found := _REPORT.search(line):
                self.steps.append(int(found[1]))
                if int(found[2]) >= self._due_epoch:
                    self.due.set()
        self.due.set()


class DemoOfTwo(Demo):
    """The story of two controllers."""

    def __init__(self, directory: Path, made: TwoControllers, epochs: int) -> None:
        super().__init__(made.directory)
        self.made = made
        self.epochs = epochs
        self.checkpoints = directory / "checkpoints"

    def play(self) -> None:
        """The story from start to end."""
        self.tell(f"A server of PostgreSQL, two controllers, {HOSTS} hosts. One leads, the other one stands by.")
        for host in range(HOSTS):
            self.made.start(f"host-{host}")
            self.made.says(f"host-{host}", "session.opened")
        self.type("status")
        self.train()
        self.tell("The job's own record of it.")
        self.type("job", "show", self.jobs[-1])
        self.tell("The killed controller is started again, and stands by.")
        before = self.made.said(LEADER, "controller.stands_by")
        self.made.start(LEADER)
        self.made.says(LEADER, "controller.stands_by", before + 1)
        self.type("status")

    def train(self) -> None:
        """A training, in the middle of which the controller that leads is killed."""
        self.tell(
            f"Train a network on real digits over {RANKS} ranks. The log is followed; seconds since its start:"
        )
        every = ("--report-every", str(REPORT_EVERY), "--step-time", str(STEP_TIME_S))
        options = ["--epochs", str(self.epochs), *every]
        size = ("--replicas", str(HOSTS), "--processes-per-worker", str(RANKS // HOSTS))
        run = ["run", "--name", "digits", *size, "--"]
        print(f"{DIM}$ holdfast {shlex.join([*run, 'python', 'train.py', *options])}{RESET}", flush=True)
        training = [sys.executable, str(TRAIN), *options, "--checkpoint-dir", str(self.checkpoints)]
        command = [sys.executable, "-m", "holdfast", *run, *training]
        followed = Followed(command, self.env, round(self.epochs * KILLED_AT))
        try:
            followed.due.wait()
            self.jobs.append(self.newest_job())
            ranks = self.ranks()
            led_after_s = self.kill(followed)
            again = {pid: started(pid) for pid in ranks}
            status = followed.end()
        except BaseException:
            followed.process.kill()
            self.ask("job", "cancel", self.newest_job(), "--wait")
            raise
        self.tell("What was noticed of it.")
        reports = list(range(0, (self.epochs // REPORT_EVERY + 1) * followed.steps[0], followed.steps[0]))[1:]
        self.say(f"the other controller led after {led_after_s:.1f} s")
        self.say(f"ranks: {', '.join(map(str, ranks))}, the same processes before and after", ranks == again)
        self.say(f"log: {len(reports)} reports, none missing, none twice, in order", followed.steps == reports)
        self.say(f"exit status of holdfast run: {status}", status == 0)

    def kill(self, followed: Followed) -> float:
        """Kill the controller that leads; seconds until the other one did."""
        led = self.made.said(STANDBY, "controller.ready")
        process = self.made.daemons[LEADER]
        process.kill()
        killed_at = time.time()
        followed.tell(f"*** SIGKILL to the controller that leads, process {process.pid}")
        ready_at = self.made.says(STANDBY, "controller.ready", led + 1)
        followed.tell(f"*** the other controller leads, process {self.made.daemons[STANDBY].pid}")
        process.wait()
        return ready_at - killed_at

    def ranks(self) -> dict[int, str]:
        """When each process of the newest job was started, by pid."""
        job = json.loads(self.ask("job", "show", self.jobs[-1], "-o", "json"))
        pids = [rank["pid"] for worker in job["workers"] for rank in worker["ranks"]]
        return {pid: started(pid) for pid in pids}

    def say(self, text: str, true: bool = True) -> None:
        """One finding. Ends the demo where it isn't ``true``."""
        print(f"  {text}", flush=True)
        if not true:
            raise SystemExit("demo: that is not so")


def started(pid: int) -> str:
    """When a process was started, in ticks since the machine was; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def main() -> int:
    """Play the story; all that it has started is ended whatever happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="Length of the training. [default: %(default)s]")
    options = parser.parse_args()
    if missing := postgres.missing():
        print(f"demo: there is no {missing} here. Install it: {INSTALL[missing]}.", file=sys.stderr)
        return 1
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        with postgres.running() as server:
            server.sql("CREATE DATABASE demo")
            url = f"postgresql://holdfast@/demo?host={server.folder}"
            with two_controllers(directory / "cluster", url, HOSTS) as made:
                DemoOfTwo(directory, made, options.epochs).play()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"\nThe whole story took {time.monotonic() - began:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
