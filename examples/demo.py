"""``make demo``: a cluster of two hosts on this machine, a real training, a crash, a hang, and both survived.

Everything below is typed at the same command line that users have; this script only types it, and times it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRAIN = HERE / "digits" / "train.py"
HOSTS, GPUS, RANKS = 2, 2, 4
CRASHING_RANK, CRASH_STEP = 3, 2500
HANGING_RANK, HANG_STEP = 3, 2500
FLOOR_S, STARTUP_S = 5, 10

HANGING_JOB = """\
displayName: digits-hang
jobSpec:
  workerPoolSpecs:
  - &pool
    replicaCount: 1
    machineSpec: {{acceleratorCount: {gpus}}}
    processesPerWorker: {ranks}
    processSpec:
      command: [{python}, {train}]
      args: [--report-every, "20", --checkpoint-dir, {checkpoints}, --hang-rank, "{rank}", --hang-step, "{step}"]
{others}  faultTolerance:
    hangDetection: {{action: RESTART, floor: {floor_s}s, startupTimeout: {startup_s}s}}
"""

BOLD, DIM, GREEN, RESET = ("\033[1m", "\033[2m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("",) * 4


class Demo:
    """One run of the story in a directory of its own."""

    def __init__(self, directory: Path, own_gpus: int = 0) -> None:
        self.directory = directory
        self.own = bool(own_gpus)
        self.hosts = 1 if own_gpus else HOSTS
        self.gpus = own_gpus or GPUS
        self.env = {**os.environ, "HOLDFAST_CONFIG": str(directory / "client.toml")}
        self.began = time.monotonic()
        self.jobs: list[str] = []

    def tell(self, text: str) -> None:
        """A line of the story."""
        print(f"\n{BOLD}# {text}{RESET}", flush=True)

    def type(self, *words: str, shown: str | None = None, expect: int = 0) -> str:
        """Type ``holdfast WORDS``, let it print, and give back what it printed on stdout when it is captured."""
        print(f"{DIM}$ {shown or 'holdfast ' + shlex.join(words)}{RESET}", flush=True)
        done = subprocess.run([sys.executable, "-m", "holdfast", *words], env=self.env, check=False)
        if done.returncode != expect:
            raise SystemExit(f"demo: that ended with {done.returncode}, not {expect}")
        return ""

    def ask(self, *words: str) -> str:
        """The output of a command that isn't part of the story."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words], env=self.env, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def play(self) -> None:
        """The story from start to end."""
        self.tell(
            f"A cluster: one controller, {HOSTS} hosts with {GPUS} (simulated) GPUs each, mutual TLS everywhere."
            if not self.own
            else f"A cluster: one controller, one host, which has this machine's GPUs; the job gets {self.gpus}."
        )
        gpus = "0" if self.own else str(self.gpus)
        self.type(
            *("dev", "start", "--hosts", str(self.hosts), "--gpus", gpus, "--dir", str(self.directory)),
            shown=f"holdfast dev start --hosts {self.hosts} --gpus {gpus}",
        )
        self.type("host", "list")
        settings = self.directory / "client.toml"
        print(f"  In a browser, from another terminal: HOLDFAST_CONFIG={settings} holdfast web", flush=True)

        where = "this host" if self.own else "both hosts"
        self.tell(f"Train a network on real handwritten digits, data-parallel over {RANKS} ranks on {where}.")
        print(f"  Rank {CRASHING_RANK} will raise an exception in the middle of step {CRASH_STEP}, once.")
        faults = ["--crash-rank", str(CRASHING_RANK), "--crash-step", str(CRASH_STEP)]
        checkpoints = ["--checkpoint-dir", str(self.directory / "checkpoints")]
        training = ["python", str(TRAIN), "--report-every", "20", *faults]
        size = ["--replicas", str(self.hosts), "--gpus", str(self.gpus)]
        if self.own:
            size += ["--processes-per-worker", str(RANKS)]
        self.type(
            *("run", "--name", "digits", *size, "--", *training, *checkpoints),
            shown=f"holdfast run --name digits {shlex.join(size)} -- "
            f"python train.py --report-every 20 {shlex.join(faults)}",
        )

        self.tell("What happened, with every exit accounted for.")
        job = self.newest_job()
        self.jobs.append(job)
        self.type("job", "show", job)
        self.type("job", "events", job)

    def play_hang(self) -> None:
        """The second story: a rank that waits for ever, and so do all others."""
        self.tell(
            f"The same training again; this time rank {HANGING_RANK}'s data loader deadlocks at step {HANG_STEP}."
        )
        print("  Nothing crashes and nothing is printed. Nobody is told, so it has to be noticed from the outside.")
        job_file = self.directory / "hang.yaml"
        job_file.write_text(
            HANGING_JOB.format(
                gpus=self.gpus,
                ranks=RANKS // self.hosts,
                others="  - *pool\n" * (self.hosts - 1),
                python=sys.executable,
                train=TRAIN,
                checkpoints=self.directory / "checkpoints-hang",
                rank=HANGING_RANK,
                step=HANG_STEP,
                floor_s=FLOOR_S,
                startup_s=STARTUP_S,
            )
        )
        print(f"  The job asks for a restart upon a hang. Thresholds are shortened for this demo: {STARTUP_S} s of")
        print("  start-up instead of 30 min, which is all that so short a job ever gets to see, and")
        print(
            f"  {FLOOR_S} s of silence instead of 30 s at least. What is not shortened: a hang has to last for 30 s"
        )
        print("  after it was noticed before ranks are killed for it. So nothing happens for about 40 s now.")
        self.type("submit", str(job_file), "--wait", shown="holdfast submit hang.yaml --wait")

        self.tell("What hung, who is suspected, where everybody was, and what was done.")
        job = self.newest_job()
        self.jobs.append(job)
        self.type("job", "hangs", job)
        self.type("job", "show", job)

    def account(self) -> None:
        """The end of both stories: what their GPUs spent their time on."""
        self.tell("Where every GPU second of both trainings went, and who pays for the rest.")
        for job in self.jobs:
            self.type("goodput", job)

    def newest_job(self) -> str:
        """The id of the job that was submitted last."""
        return self.ask("job", "list", "-o", "name").splitlines()[-1].removeprefix("jobs/")

    def clear_up(self) -> None:
        """End the cluster and everything in it."""
        self.tell("Take the cluster down again.")
        self.type("dev", "stop", "--dir", str(self.directory), shown="holdfast dev stop")
        print(f"\n{GREEN}The whole story took {time.monotonic() - self.began:.0f} s.{RESET}")


def main() -> int:
    """Play the story; the cluster is taken down whatever happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, help="Keep the cluster's files here. [default: a temporary folder]")
    parser.add_argument(
        "--own-gpus", type=int, default=0, help="Use so many of this machine's GPUs, not simulated ones."
    )
    options = parser.parse_args()
    directory = options.dir or Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    demo = Demo(directory, options.own_gpus)
    try:
        demo.play()
        demo.play_hang()
        demo.account()
    finally:
        demo.clear_up()
        if options.dir is None:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
