"""Programs that hang: ``python hung_programs.py NAME`` is one rank of one."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

from bench.hangs.program_gang import (
    GENERATION,
    RANK,
    SIZE,
    TRAIN_S,
    Case,
    Gang,
    alone,
    note_fault,
    play,
    train,
    with_gang,
)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def sleep_for_ever() -> None:
    time.sleep(3600)


def deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def spin() -> None:
    while True:
        pass


def retry() -> None:
    for attempt in range(10_000):
        print(f"connection refused, retry #{attempt}", flush=True)
        time.sleep(2)


def sqlite_lock() -> None:
    """Rank 1 asks again and again for a database that rank 0 has locked, which waits for rank 1."""
    gang = Gang()
    step = train(gang, TRAIN_S)
    database = sqlite3.connect("../lock.db", isolation_level=None, timeout=3600)
    if RANK == 0:
        database.execute("create table if not exists t (x)")
        database.execute("begin exclusive")
    else:
        time.sleep(2)
        note_fault()
        database.execute("insert into t values (1)")
    train(gang, TRAIN_S, step)


def cycle_with_gauges(gang: Gang) -> None:
    def gauges() -> None:
        used = 40
        while True:
            used += (7 * int(time.time())) % 5 - 2
            print(f"memory in use {used} MiB, temperature {60 + used % 7}", flush=True)
            time.sleep(1)

    threading.Thread(target=gauges, daemon=True).start()
    for peer in gang.peers:
        peer.recv(1)


def flush_while_hung() -> None:
    def flush() -> None:
        with open("events.out.tfevents.1.host", "ab") as file:
            while True:
                file.write(os.urandom(4096))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(2)

    threading.Thread(target=flush, daemon=True).start()
    deadlock()


def stopped_loader() -> None:
    import multiprocessing

    queue: multiprocessing.Queue[int] = multiprocessing.Queue()
    child = multiprocessing.Process(target=time.sleep, args=(10_000,), daemon=True)
    child.start()
    os.kill(child.pid or 0, signal.SIGSTOP)
    queue.get()


def exits_before_the_rendezvous() -> None:
    if RANK == SIZE - 1:
        sys.exit(0)
    Gang()


def second_generation_hangs() -> None:
    gang = Gang()
    if GENERATION == 2 and RANK == 1:
        note_fault()
        time.sleep(10_000)
    train(gang, 20 if GENERATION == 1 else TRAIN_S)
    if GENERATION == 1 and RANK == 1:
        sys.exit(3)
    for _ in range(10):
        train(gang, TRAIN_S)


def stuck_at_exit() -> None:
    train(Gang(), TRAIN_S)
    if RANK == SIZE - 1:
        note_fault()
        threading.Thread(target=threading.Event().wait).start()


def heartbeat_stops() -> None:
    import holdfast

    gang = Gang()
    for step in range(int(TRAIN_S / 0.4)):
        holdfast.progress(step=step)
        time.sleep(0.3)
        gang.all_reduce()
    for beat in range(100_000):
        print(f"PULSE {beat} ok items={beat * 3}", flush=True)
        sum(i * i for i in range(3000))
        time.sleep(1)


def early_hang() -> None:
    gang = Gang()
    print("loading", flush=True)
    if RANK == 1:
        note_fault()
        time.sleep(3600)
    gang.all_reduce()


def lock_of_a_thread_that_waits_for_a_peer(gang: Gang) -> None:
    lock = threading.Lock()

    def hold() -> None:
        with lock:
            gang.peers[0].recv(1)

    threading.Thread(target=hold, daemon=True).start()
    time.sleep(1)
    lock.acquire()


def file_lock_of_a_peer() -> None:
    import fcntl

    gang = Gang()
    step = train(gang, TRAIN_S)
    with open("../lock", "w") as file:
        if RANK != 0:
            time.sleep(1)
            note_fault()
        fcntl.flock(file, fcntl.LOCK_EX)
        train(gang, TRAIN_S, step)


def polled_lock_of_a_peer() -> None:
    """Rank 1 asks again and again for a file that rank 0 has locked, which waits for rank 1."""
    import fcntl

    gang = Gang()
    step = train(gang, TRAIN_S)
    with open("../lock", "w") as file:
        if RANK != 0:
            time.sleep(1)
            note_fault()
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.02)
        train(gang, TRAIN_S, step)


def spin_beside_busy_peers() -> None:
    gang = Gang()
    train(gang, TRAIN_S)
    if RANK == SIZE - 1:
        note_fault()
        spin()
    for peer in gang.peers:
        peer.setblocking(False)
        while True:
            with contextlib.suppress(BlockingIOError):
                peer.recv(1)


def early_sleep() -> None:
    """Hangs before the first line of progress, without a timeout."""
    gang = Gang()
    if RANK == 1:
        note_fault()
        threading.Event().wait()
    gang.all_reduce()


def wait_for_a_dead_thread() -> None:
    """A queue that nothing fills any more: its producer ended."""
    import queue

    filled: queue.Queue[int] = queue.Queue()
    threading.Thread(target=filled.put, args=(1,)).start()
    filled.get()
    filled.get()


def pipe_of_a_waiting_child() -> None:
    """Two pipes, each side reading first."""
    code = "import sys; sys.stdin.read(1)"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read(1)


SETTLED = (("TRAIN_S", "150"),)
"""Long enough for the job's rate to be known, which silence alone is measured by."""
CASES: dict[str, Case] = {
    "stop": Case("acts", with_gang(lambda _g: stop()), guilty=1),
    "stop alone": Case("acts", alone(stop), guilty=1),
    "sleep": Case("acts", with_gang(lambda _g: sleep_for_ever()), guilty=1),
    "sleep alone": Case("acts", alone(sleep_for_ever), guilty=1),
    "deadlock": Case("acts", with_gang(lambda _g: deadlock()), guilty=1),
    "spin": Case("tells", with_gang(lambda _g: spin()), guilty=1, env=SETTLED),
    "retry": Case("tells", with_gang(lambda _g: retry()), guilty=1),
    "sqlite lock": Case("acts", sqlite_lock),
    "cycle with gauges": Case("acts", with_gang(cycle_with_gauges, all_ranks=True)),
    "flush while hung": Case("acts", with_gang(lambda _g: flush_while_hung()), guilty=1),
    "stopped loader": Case("acts", with_gang(lambda _g: stopped_loader()), guilty=1),
    "exit before the rendezvous": Case("acts", exits_before_the_rendezvous, guilty=1),
    "second generation hangs": Case("acts", second_generation_hangs, guilty=1),
    "stuck at exit": Case("acts", stuck_at_exit, guilty=1),
    "heartbeat stops": Case("tells", heartbeat_stops, env=SETTLED),
    "early hang, timeout 20 s": Case("acts", early_hang, guilty=1, timeout="20s"),
    "lock of a waiting thread": Case("acts", with_gang(lock_of_a_thread_that_waits_for_a_peer), guilty=1),
    "file lock of a peer": Case("acts", file_lock_of_a_peer),
    "polled lock of a peer": Case("acts", polled_lock_of_a_peer),
    "spin beside busy peers": Case("tells", spin_beside_busy_peers, guilty=1, env=SETTLED),
    "early event": Case("acts", early_sleep, guilty=1),
    "early event, MA_HANG_DETECT_TIME": Case("acts", early_sleep, guilty=1, env=(("MA_HANG_DETECT_TIME", "10"),)),
    "queue that nothing fills": Case("acts", with_gang(lambda _g: wait_for_a_dead_thread()), guilty=1),
    "pipe of a waiting child": Case("acts", with_gang(lambda _g: pipe_of_a_waiting_child()), guilty=1),
    "stuck at exit, four ranks": Case("acts", stuck_at_exit, guilty=3, ranks=4),
    "sleep behind bash": Case("acts", with_gang(lambda _g: sleep_for_ever()), guilty=0, script=True, ranks=1),
    "stop behind bash": Case("acts", alone(stop), guilty=1, script=True),
    "deadlock behind bash": Case("acts", with_gang(lambda _g: deadlock()), guilty=1, script=True),
}


if __name__ == "__main__":
    play(CASES)
