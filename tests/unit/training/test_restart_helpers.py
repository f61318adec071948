"""Leaving a function: nothing of multiprocessing stays, and no handler of a signal waits for its own thread."""

from __future__ import annotations

import subprocess
import sys

from holdfast.training import progress_calls

SPAWNS = """\
import multiprocessing, os
from multiprocessing import resource_tracker
from holdfast.training import restartable

def children():
    return open(f"/proc/self/task/{os.getpid()}/children").read().split()

if __name__ == "__main__":
    restartable._end_helpers()
    resource_tracker.ensure_running()
    context = multiprocessing.get_context("forkserver")
    worker = context.Process(target=print, args=("worked",))
    worker.start()
    worker.join()
    before = len(children())
    restartable._end_helpers()
    print(before, children())
"""


def test_helpers_of_multiprocessing_end_with_the_function(tmp_path: object) -> None:
    script = f"{tmp_path}/spawns.py"
    with open(script, "w") as file:
        file.write(SPAWNS)

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=180)

    assert done.stdout.splitlines() == ["worked", "2 []"], done.stderr


def test_a_handler_of_a_signal_may_report_while_its_thread_does() -> None:
    with progress_calls._lock:
        assert progress_calls._lock.acquire(blocking=False)
        progress_calls._lock.release()
