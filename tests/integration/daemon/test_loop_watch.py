"""What holds an event loop is measured and named, and told apart from a machine that stood still."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast._daemon import log, loop_watch
from holdfast._daemon.loop_watch import REPORT, Cause, LoopWatch, Stall
from holdfast._daemon.metrics.daemon import LONGEST_STALL, STALLS
from holdfast._daemon.metrics.series import Histogram


def compute(seconds: float = 0.5) -> None:
    """Uses the CPU for so long, however much of it this machine gives."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def match_for_ever() -> None:
    """One call that keeps the interpreter's lock: no other thread runs meanwhile."""
    began = time.thread_time()
    length = 18
    while time.thread_time() - began < 0.5:
        re.match(r"(a+)+$", "a" * length + "b")
        length += 1


def wait_for_a_disk() -> None:
    time.sleep(0.6)


def wait_for_a_thread() -> None:
    threading.Thread(target=compute, args=(0.6,)).start()
    time.sleep(0.6)


async def stalls_of(hold: Callable[[], None]) -> tuple[LoopWatch, list[Stall]]:
    """The stalls of a loop in which ``hold`` is called once."""
    found: list[Stall] = []
    watch = LoopWatch(found.append)
    watch.start()
    try:
        await asyncio.sleep(0.2)
        asyncio.get_running_loop().call_soon(hold)
        await asyncio.sleep(0.3)
    finally:
        watch.stop()
    return watch, found


@pytest.mark.races(reason="a stall is the code's where most of it is the processor's time, which others may take")
@pytest.mark.parametrize("hold", [compute, match_for_ever])
async def test_code_that_holds_the_loop_is_named(hold: Callable[[], None]) -> None:
    watch, found = await stalls_of(hold)
    worst = max(found, key=lambda stall: stall.cpu_s)
    assert worst.cause is Cause.CODE
    assert worst.cpu_s > 0.4 and worst.seconds > 0.4
    assert any(frame.endswith(f" {hold.__name__}") for frame in worst.stack), worst
    assert not any("/asyncio/" in frame for frame in worst.stack), "what called the loop is left out"
    counted = watch.series.of(STALLS)[("code",)]
    assert isinstance(counted, Histogram) and sum(counted.counts) >= 1
    longest = watch.series.of(LONGEST_STALL)[("code",)]
    assert isinstance(longest, float) and longest >= worst.seconds


@pytest.mark.parametrize("hold", [wait_for_a_disk, wait_for_a_thread])
async def test_a_call_that_waits_is_no_use_of_the_cpu(hold: Callable[[], None]) -> None:
    _, found = await stalls_of(hold)
    worst = max(found, key=lambda stall: stall.seconds)
    assert worst.cause is Cause.WAIT
    assert any(frame.endswith(f" {hold.__name__}") for frame in worst.stack), worst


async def test_a_loop_that_has_nothing_to_do_is_not_held() -> None:
    _, found = await stalls_of(lambda: None)
    assert [stall for stall in found if stall.cause is not Cause.MACHINE] == []


STOPPED = """
import asyncio, dataclasses, json
from holdfast._daemon.loop_watch import LoopWatch

async def main():
    stalls = asyncio.Queue()
    watch = LoopWatch(stalls.put_nowait)
    watch.start()
    await asyncio.sleep(0.2)
    print("ready", flush=True)
    while True:
        print(json.dumps(dataclasses.asdict(await stalls.get())), flush=True)

asyncio.run(main())
"""


def test_a_process_that_was_stopped_held_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            while process.stdout.readline() != "ready\n":
                pass  # a stall of a busy machine
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.0)
            process.send_signal(signal.SIGCONT)
            while (told := json.loads(process.stdout.readline()))["seconds"] < 0.8:
                pass
            assert told["cause"] == "machine"
        finally:
            process.kill()


def test_one_stall_in_a_while_is_logged_but_a_far_longer_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[float, int]] = []
    monkeypatch.setattr(log, "warning", lambda _, **fields: lines.append((fields["seconds"], fields["not_logged"])))
    watch = LoopWatch()
    for at, seconds in ((0.0, 0.2), (1.0, 0.3), (2.0, 0.1), (3.0, 24.0), (28.0, 30.0), (29.0, 0.2), (39.0, 0.2)):
        watch._beat = at
        watch._report(Stall(seconds, 0.0, 0.0, Cause.MACHINE, ()))
    assert lines == [(0.2, 0), (24.0, 2), (30.0, 0), (0.2, 1)]


async def test_a_stall_is_logged_and_many_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(log, "warning", lambda event, **fields: lines.append((event, fields)))
    monkeypatch.setenv(REPORT, str(tmp_path))
    found: list[Stall] = []
    watch = LoopWatch(found.append)
    watch.start()
    while len(found) < 3:
        compute(0.2)
        await asyncio.sleep(0.06)
    watch.stop()
    assert {event for event, _ in lines} == {"loop.stalled"}
    assert lines[0][1]["cause"] == "code" and lines[0][1]["stack"]
    assert reported(tmp_path) == [stall.cpu_s for stall in found]


def reported(directory: Path) -> list[float]:
    (report,) = directory.iterdir()
    return [json.loads(line)["cpu_s"] for line in report.read_text().splitlines()]


async def test_what_still_holds_the_loop_is_logged_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("holdfast._daemon.loop_watch.STILL_HELD_S", 0.3)
    monkeypatch.setattr(log, "warning", lambda event, **_: lines.append(event))
    watch = LoopWatch()
    watch.start()
    hold_until(lambda: "loop.held" in lines)
    watch.stop()


def hold_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("late_s", "cpu_s", "process_s", "waits", "cause"),
    [
        (0.15, 0.12, 0.12, False, Cause.CODE),
        (0.8, 0.12, 0.12, False, Cause.CODE),  # on a machine with a sixth of a core left
        (8.8, 0.12, 0.13, False, Cause.MACHINE),
        (8.8, 0.12, 0.13, True, Cause.WAIT),
        (8.8, 0.12, 8.0, False, Cause.CODE),  # of another thread, which kept the interpreter's lock
        (60.0, 59.0, 59.0, True, Cause.CODE),
    ],
)
def test_the_cause_follows_from_what_was_used(
    late_s: float, cpu_s: float, process_s: float, waits: bool, cause: Cause
) -> None:
    assert loop_watch._cause(late_s, cpu_s, process_s, loop_watch._Look((), waits)) is cause
