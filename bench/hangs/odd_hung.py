"""Two ranks that train and then hang while a thread, a peer or they themselves go on printing.

Steps are those of ``gang.py``; nothing but Unix sockets joins the ranks.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.hangs.gang import RANK, Gang, uninterruptible

TRAIN_STEPS = 130
BEAT_S = 1.0
LAST = 1
"""The rank that hangs."""


def say(line: object) -> None:
    print(line, flush=True)


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(2000))


def began() -> None:
    """Note the time at which the program begins to be odd."""
    with contextlib.suppress(FileExistsError), open("began", "x") as file:
        file.write(repr(time.monotonic()))


def train(gang: Gang, steps: int = TRAIN_STEPS, first: int = 0) -> None:
    for step in range(first, first + steps):
        burn(0.05)
        time.sleep(0.3)
        gang.all_reduce(step)
        if RANK == 0 and step % 4 == 0:
            say(f"step={step} loss={2 / (step + 1):.4f}")


def beat(line: Callable[[int], object]) -> None:
    """A thread that goes on printing."""

    def run() -> None:
        for count in itertools.count(1):
            say(line(count))
            time.sleep(BEAT_S)

    threading.Thread(target=run, daemon=True).start()


STARTED = time.monotonic()
TICK = "tick {}".format
BARE = str
ALIVE = "INFO worker alive, beat={0} handled={0}".format


def wall(_count: int) -> str:
    return f"wall {time.monotonic() - STARTED:.1f}"


def cpu_time(_count: int) -> str:
    return f"cpu_time={time.process_time():.4f}"


# --- What a rank hangs in -----------------------------------------------------------------------------------------


def in_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def in_polled_queue() -> None:
    empty: queue.Queue[int] = queue.Queue()
    while True:
        with contextlib.suppress(queue.Empty):
            empty.get(timeout=1.0)


def in_fifo() -> None:
    os.mkfifo("frozen.fifo")
    Path("frozen.fifo").read_bytes()


def in_service() -> None:
    with socket.create_connection(("127.0.0.1", int(os.environ["SILENT_PORT"]))) as service:
        service.recv(1)


def in_loop() -> None:
    count = 0
    while True:
        count += 1


def in_short_sleeps() -> None:
    while not os.path.exists("never"):
        time.sleep(0.05)


def in_dead_worker() -> None:
    """A loader's worker process deadlocks; its trainer asks its queue every second."""
    batches: multiprocessing.Queue[int] = multiprocessing.Queue()
    multiprocessing.Process(target=in_lock, daemon=True).start()
    while True:
        with contextlib.suppress(queue.Empty):
            batches.get(timeout=1.0)


def in_loop_with_clock() -> None:
    while not os.path.exists("never"):
        time.sleep(0.7)
        say(f"rendezvous: wall {time.monotonic() - STARTED:.1f}")


def in_loop_with_gauges() -> None:
    for count in itertools.count():
        time.sleep(0.7)
        say(f"step=60 pending {count * 7 % 5} memory {4000 + count * 37 % 11}")


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hung(
    odd: Callable[[], object],
    line: Callable[[int], object] | None = None,
    *,
    peer_line: Callable[[int], object] | None = None,
    from_hang: bool = False,
    busy_peer: bool = False,
    at_start: bool = False,
) -> Callable[[Gang], None]:
    """The last rank hangs; its thread, or one of its peer, goes on printing."""

    def run(gang: Gang) -> None:
        said = line if RANK == LAST else peer_line
        if said and not from_hang:
            beat(said)
        if not at_start:
            train(gang)
        if said and from_hang:
            beat(said)
        if RANK == LAST:
            began()
            odd()
        if busy_peer:
            gang.socket.setblocking(False)
            while True:
                with contextlib.suppress(BlockingIOError):
                    gang.socket.recv(64)
        gang.barrier(10**6)

    return run


def ticks_of_a_process() -> None:
    def run() -> None:
        for count in itertools.count():
            say(f"tick {count}")
            time.sleep(BEAT_S)

    multiprocessing.get_context("fork").Process(target=run, daemon=True).start()
    in_lock()


def both_receive(gang: Gang) -> None:
    beat(TICK)
    train(gang)
    began()
    gang.socket.recv(64)


HUNG: dict[str, Callable[[Gang], None]] = {
    "lock, tick": hung(in_lock, TICK),
    "lock, cpu_time": hung(in_lock, cpu_time),
    "polled queue, tick": hung(in_polled_queue, TICK),
    "polled queue, log line": hung(in_polled_queue, ALIVE),
    "frozen pipe, cpu_time": hung(in_fifo, cpu_time),
    "frozen pipe, tick": hung(in_fifo, TICK),
    "state D, wall": hung(uninterruptible, wall),
    "state D, bare count": hung(uninterruptible, BARE),
    "silent service, log line": hung(in_service, ALIVE),
    "livelock, tick": hung(in_loop, TICK),
    "livelock, tick since then": hung(in_loop, TICK, from_hang=True),
    "frozen pipe, tick since then": hung(in_fifo, TICK, from_hang=True),
    "livelock, wall": hung(in_loop, wall),
    "livelock, cpu_time": hung(in_loop, cpu_time),
    "livelock, log line": hung(in_loop, ALIVE),
    "short sleeps, bare count": hung(in_short_sleeps, BARE),
    "short sleeps, tick": hung(in_short_sleeps, TICK),
    "lock, busy peer ticks": hung(in_lock, peer_line=TICK, busy_peer=True),
    "livelock, peer ticks": hung(in_loop, peer_line=TICK),
    "stopped, peer ticks": hung(stopped, peer_line=TICK),
    "exits, peer ticks": hung(lambda: os._exit(0), peer_line=TICK),
    "dead loader worker, tick": hung(in_dead_worker, TICK),
    "ticks of a forked process": hung(ticks_of_a_process),
    "both receive, tick": both_receive,
    "frozen pipe at the start, tick": hung(in_fifo, TICK, at_start=True),
    "loop prints a clock": hung(in_loop_with_clock),
    "loop prints gauges": hung(in_loop_with_gauges),
}
