"""Programs that wait for a thread, a pool or a child of theirs: ``python inner_programs.py NAME`` is one rank of one.

What it waits for may ask a service, sleep, or be dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from bench.hangs.program_gang import PAUSE_S, RANK, TRAIN_S, Case, Gang, note_fault, play, train, with_gang

FORK = multiprocessing.get_context("fork")


def ask(_: object = None) -> None:
    address = ("127.0.0.1", int(os.environ["SILENT_PORT"]))
    with contextlib.suppress(TimeoutError), socket.create_connection(address, timeout=PAUSE_S) as service:
        service.recv(1)


def nap(_: object = None) -> None:
    time.sleep(PAUSE_S)


def stoppable_nap() -> None:
    threading.Event().wait(PAUSE_S)


def command() -> None:
    subprocess.run(["sleep", str(PAUSE_S)], check=True)


def fed_by_a_thread(work: Callable[[], None]) -> None:
    """A loader's thread, which does one thing before it fills the queue."""
    filled: queue.Queue[None] = queue.Queue()

    def feed() -> None:
        work()
        filled.put(None)

    threading.Thread(target=feed, daemon=True).start()
    filled.get()


def locked_by_a_thread(work: Callable[[], None]) -> None:
    lock = threading.Lock()

    def hold() -> None:
        with lock:
            work()

    threading.Thread(target=hold, daemon=True).start()
    time.sleep(1)
    lock.acquire()


def refilled_tokens() -> None:
    """A limit of requests a minute: a thread releases one token after another."""
    tokens = threading.Semaphore(0)

    def refill() -> None:
        for _ in range(2):
            time.sleep(PAUSE_S / 2)
            tokens.release()

    threading.Thread(target=refill, daemon=True).start()
    tokens.acquire()
    tokens.acquire()


def pool(work: Callable[[object], None]) -> None:
    with FORK.Pool(2) as workers:
        workers.map(work, range(2))


def executor(work: Callable[[], None]) -> None:
    with ProcessPoolExecutor(2, mp_context=FORK) as workers:
        workers.submit(work).result()


def threads(work: Callable[[float], None]) -> None:
    with ThreadPoolExecutor(2) as workers:
        list(workers.map(work, [PAUSE_S / 2] * 4))


def semaphore_of_a_child(work: Callable[[], None]) -> None:
    done = FORK.Semaphore(0)

    def run() -> None:
        work()
        done.release()

    FORK.Process(target=run, daemon=True).start()
    done.acquire()


def timer() -> None:
    rung = threading.Event()
    threading.Timer(PAUSE_S, rung.set).start()
    rung.wait()


def manager() -> None:
    """A queue in a process of its own, which a child fills."""
    with FORK.Manager() as shared:
        filled = shared.Queue()

        def feed() -> None:
            filled.qsize()
            time.sleep(PAUSE_S)
            filled.put(None)

        FORK.Process(target=feed, daemon=True).start()
        filled.get()


async def child_of_an_event_loop() -> None:
    await (await asyncio.create_subprocess_exec("sleep", str(PAUSE_S))).wait()


def wait_with_a_time_limit() -> None:
    """The usual sleep of a loop that can be told to stop, and a queue of results that is asked in time."""
    threading.Event().wait(PAUSE_S / 2)
    with contextlib.suppress(queue.Empty):
        FORK.Queue().get(timeout=PAUSE_S / 2)


def alarm() -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(int(PAUSE_S))
    signal.pause()


def throttled() -> None:
    """Stopped and continued in turns, as cpulimit does."""
    trainer = os.getpid()
    if os.fork() == 0:
        while os.getppid() == trainer:
            os.kill(trainer, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(trainer, signal.SIGCONT)
            time.sleep(0.5)
        os._exit(0)


def beside_gauges(odd: Callable[[], None]) -> Callable[[Gang], None]:
    """It hangs beside a thread that reads gauges each 20 s."""

    def gauges() -> None:
        while True:
            time.sleep(20)
            Path("gauges").write_text(Path("/proc/loadavg").read_text())

    def run(_: Gang) -> None:
        threading.Thread(target=gauges, daemon=True).start()
        odd()

    return run


def nested_futures() -> None:
    """A pool of one thread, whose task waits for another task of the pool."""
    with ThreadPoolExecutor(1) as workers:
        workers.submit(lambda: workers.submit(int).result()).result()


def store_whose_writer_has_ended() -> None:
    """Rank 0 waits at its own store for what rank 1, which has ended with success, has never set."""
    import datetime

    import torch.distributed

    torch.distributed.init_process_group("gloo")
    train(None, TRAIN_S)
    if RANK == 1:
        note_fault()
        os._exit(0)
    store = torch.distributed.distributed_c10d._get_default_store()
    store.wait(["done/1"], datetime.timedelta(hours=3))


def empty_queue() -> None:
    queue.Queue[int]().get()


def lock_of_a_dead_thread() -> None:
    locked_by_a_thread(empty_queue)


def healthy(odd: Callable[[], None], *, notice: bool = True) -> Case:
    return Case("healthy", with_gang(lambda _: odd()), notice=notice)


CASES: dict[str, Case] = {
    "loader thread that backs off": healthy(lambda: fed_by_a_thread(nap)),
    "loader thread that asks": healthy(lambda: fed_by_a_thread(ask)),
    "loader thread that waits to be stopped": healthy(lambda: fed_by_a_thread(stoppable_nap)),
    "loader thread that runs a command": healthy(lambda: fed_by_a_thread(command)),
    "lock held for a request": healthy(lambda: locked_by_a_thread(ask)),
    "lock held in a sleep": healthy(lambda: locked_by_a_thread(nap)),
    "tokens refilled by a thread": healthy(refilled_tokens),
    "pool that asks": healthy(lambda: pool(ask)),
    "pool that naps": healthy(lambda: pool(nap)),
    "executor that asks": healthy(lambda: executor(ask)),
    "executor that naps": healthy(lambda: executor(nap)),
    "threads that nap": healthy(lambda: threads(time.sleep)),
    "semaphore of a child that asks": healthy(lambda: semaphore_of_a_child(ask)),
    "asyncio, a thread that naps": healthy(lambda: asyncio.run(asyncio.to_thread(nap))),
    "asyncio, a child that naps": healthy(lambda: asyncio.run(child_of_an_event_loop())),
    "event with a time limit": healthy(wait_with_a_time_limit),
    "timer": healthy(timer),
    "queue of a manager": healthy(manager),
    "alarm": healthy(alarm),
    "throttled": healthy(throttled, notice=False),
    "lock beside gauges": Case("acts", with_gang(beside_gauges(lock_of_a_dead_thread)), guilty=1),
    "queue beside gauges": Case("acts", with_gang(beside_gauges(empty_queue)), guilty=1),
    "nested futures": Case("acts", with_gang(lambda _: nested_futures()), guilty=1),
    "store whose writer has ended": Case("acts", store_whose_writer_has_ended, guilty=1),
}


if __name__ == "__main__":
    play(CASES)
