"""Calls that hang keep their own threads and nothing else: not those of others, and not the end of the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import anyio
import pytest

from holdfast._daemon.abandonable import Late, Threads

pytestmark = pytest.mark.anyio


async def hang(threads: Threads, owner: str, gate: threading.Event, count: int) -> None:
    for _ in range(count):
        with pytest.raises(Late):
            await threads.call(owner, 0.05, gate.wait)


async def test_an_owner_whose_calls_hang_leaves_the_others_their_threads() -> None:
    threads, gate = Threads(each=2, most=4), threading.Event()
    before = threading.active_count()
    try:
        await hang(threads, "a", gate, 10)
        assert threading.active_count() - before <= 2, "no thread is started for a call that has to wait"
        assert await threads.call("b", 5, lambda: "read") == "read"
        await hang(threads, "b", gate, 3)
        with pytest.raises(Late):
            await threads.call("c", 0.05, lambda: "read")
    finally:
        gate.set()
    assert await threads.call("a", 5, lambda: "read again") == "read again"
    threads.close()


async def test_who_has_the_fewest_threads_is_next() -> None:
    threads, gates, order = Threads(each=2, most=2), (threading.Event(), threading.Event()), list[str]()

    def hold(gate: threading.Event) -> None:
        gate.wait()

    async with anyio.create_task_group() as holding:
        for gate in gates:
            holding.start_soon(threads.call, "a", 60, hold, gate)
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as tasks:
            for owner in ("a", "a", "b", "a"):
                tasks.start_soon(threads.call, owner, 60, order.append, owner)
            await anyio.wait_all_tasks_blocked()
            gates[0].set()  # one thread for all four: they follow each other
        gates[1].set()
    assert order == ["b", "a", "a", "a"]


async def test_a_call_raises_what_its_function_raises_and_a_cancelled_one_is_left_behind() -> None:
    threads, gate = Threads(each=1, most=1), threading.Event()
    with pytest.raises(ZeroDivisionError):
        await threads.call("a", 5, lambda: 1 / 0)
    with anyio.move_on_after(0.05):
        await threads.call("a", 60, gate.wait)
    gate.set()
    assert await threads.call("a", 5, lambda: 1) == 1


HANGS = """
import anyio, anyio.to_thread, os, sys
from holdfast_agent import __main__ as agent
from holdfast._daemon.abandonable import Late, Threads
async def main():
    try:
        await Threads(2, 2).call("a", 0.1, open, sys.argv[1])
    except Late:
        pass
    with anyio.move_on_after(0.1):
        await anyio.to_thread.run_sync(open, sys.argv[1], abandon_on_cancel=True)
anyio.run(main)
sys.exit(agent._left(5))
"""


def test_the_process_ends_though_a_read_hangs(tmp_path: object) -> None:
    pipe = f"{tmp_path}/pipe"
    subprocess.run(["mkfifo", pipe], check=True)
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", HANGS, pipe], timeout=180).returncode == 5
    assert time.monotonic() - began < 30
