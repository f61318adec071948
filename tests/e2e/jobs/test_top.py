"""``holdfast top`` on a terminal, beside a real cluster: from the first frame to a terminal as it was."""

from __future__ import annotations

import sys

from tests.e2e.cli_cluster import DevCluster
from tests.support.typist import typing

RUNS = "import time; print('first epoch', flush=True); time.sleep(600)"
BETWEEN = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, lambda *_: None)  # as a shell does while its program runs
def settings():
    return subprocess.check_output(["stty", "-g"])
before = settings()
status = subprocess.call([sys.executable, "-m", "holdfast", "top"])
print("status", status, "terminal", "as before" if settings() == before else "changed", flush=True)
"""


def test_a_user_looks_around_reads_a_log_and_leaves(cluster: DevCluster) -> None:
    every_gpu = ("--replicas", "2", "--gpus", "2")
    started = cluster.holdfast("run", "--detach", "--name", "seen", *every_gpu, "--", sys.executable, "-c", RUNS)
    job = started.stdout.split()[-1]
    waiting = cluster.holdfast("run", "--detach", "--name", "waits", "--gpus", "1", "--", "true")
    exported = {"COLUMNS": "80", "LINES": "24"}  # by some shells, and no longer true after a resize
    env = {"LC_ALL": "C.UTF-8", **cluster.env, "TERM": "xterm-256color", **exported}
    with typing(["-c", BETWEEN], env) as typist:
        typist.sees("[1 Jobs]")
        typist.sees(waiting.stdout.split()[-1])
        typist.sees("q leave")
        typist.resizes(60, 200)
        typist.sees(" 2 Hosts ")
        typist.sees("host-1")
        typist.types(f"/{job}\r")
        typist.sees(f"with '{job}'")
        typist.types("l")
        typist.sees("first epoch")
        typist.types("\x03")
        typist.sees("Back to holdfast top: any key.")
        typist.types("x")
        typist.sees("[1 Jobs]")
        typist.types("q")
        typist.sees("status 0 terminal as before")
        assert typist.ends() == 0


def test_one_frame_is_printed_for_scripts(cluster: DevCluster) -> None:
    frame = cluster.holdfast("top", "--once", env={**cluster.env, "COLUMNS": "100", "LINES": "30"}).stdout
    assert len(frame.splitlines()) == 30 and "[1 Jobs]" in frame
    refused = cluster.holdfast("top", check=False)
    assert refused.returncode == 2 and "holdfast status, holdfast ps" in refused.stderr
