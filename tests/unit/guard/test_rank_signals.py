"""Signals of a scheduler for the ranks: who got them already, and who is sent them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.dev import processes
from holdfast.guard import rank_signals

BLOCKS = (
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2]); print(); input()"
)


@pytest.fixture
def blocking() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BLOCKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    return process.wait(180)


def test_a_signal_that_a_process_blocks_shows_that_it_was_sent(blocking: subprocess.Popen[bytes]) -> None:
    assert not rank_signals.was_sent_to(blocking.pid, signal.SIGUSR1)

    blocking.send_signal(signal.SIGUSR1)

    assert rank_signals.was_sent_to(blocking.pid, signal.SIGUSR1)
    assert not rank_signals.was_sent_to(blocking.pid, signal.SIGUSR2)


def test_a_process_that_is_gone_got_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()

    assert not rank_signals.was_sent_to(gone.pid, signal.SIGUSR1)


def journal(worker: Path, generation: int, *records: object, rest: str = "") -> None:
    worker.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"00000000 {json.dumps(record)}\n" for record in records)
    (worker / f"g{generation}.journal").write_text(lines + rest)


def started(process: subprocess.Popen[bytes], *, ticks: int = 0) -> dict[str, object]:
    found = processes.stat(process.pid)
    assert found is not None
    return {"ev": "started", "rank": 0, "pid": process.pid, "start_ticks": found.process.start_ticks + ticks}


def test_only_ranks_of_the_last_generation_that_still_run_are_signalled(tmp_path: Path) -> None:
    sleeping = [subprocess.Popen(["sleep", "600"]) for _ in range(4)]
    before, reused, first, second = sleeping
    try:
        workers = tmp_path / "state/workers/job"
        journal(workers / "a", 9, started(before))
        journal(workers / "a", 10, {"ev": "intent"}, started(first), started(reused, ticks=-1))
        journal(workers / "b", 1, started(second), rest='00000000 {"ev": "sta')
        (workers / "c").mkdir()

        rank_signals.pass_on(tmp_path, signal.SIGUSR1)

        assert [wait_for_end(each) for each in (first, second)] == [-signal.SIGUSR1, -signal.SIGUSR1]
        time.sleep(0.1)
        assert [each.poll() for each in (before, reused)] == [None, None]
    finally:
        for each in sleeping:
            each.kill()
            each.wait()
