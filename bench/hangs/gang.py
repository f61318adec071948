"""One rank of a small gang that trains, and at one step goes wrong or does something unusual but healthy, as told.

``python bench/hangs/gang.py WHAT RANK STEP``: every rank sends a datagram to every other and waits for theirs at
the end of a step. Nobody is told when a peer dies, as with NCCL. The rank RANK does WHAT at step STEP; some kinds
concern all ranks. The time at which it does is written to ``began`` in the working directory.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import holdfast

STEP_S, LINE_EVERY = float(os.environ.get("STEP_S", "0.4")), int(os.environ.get("LINE_EVERY", "4"))
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LAST_S = float(os.environ.get("LAST_S", "45"))
BURN = (
    "import time\n"
    "end = time.monotonic() + {}\nn = 0\nwhile time.monotonic() < end: n = sum(i * i for i in range(500))"
)


class Gang:
    """All ranks, by their sockets in the working directory."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"r{RANK}.new")
        os.rename(f"r{RANK}.new", f"r{RANK}")
        self.early: Counter[bytes] = Counter()

    def meet(self, what: str) -> None:
        """Return once all others have come to the same place."""
        told = what.encode()
        for peer in range(SIZE):
            if peer != RANK:
                with contextlib.suppress(ConnectionRefusedError):
                    self.socket.sendto(told, f"r{peer}")
        while self.early[told] < SIZE - 1:
            self.early[self.socket.recv(64)] += 1
        del self.early[told]

    def all_reduce(self, step: int) -> None:
        """The collective of every step."""
        self.meet(f"sum {step}")

    def barrier(self, step: int) -> None:
        """Another collective."""
        self.meet(f"barrier {step}")

    def greet(self) -> None:
        """Wait until all ranks listen."""
        while not all(os.path.exists(f"r{peer}") for peer in range(SIZE)):
            time.sleep(0.05)


# --- Faults -------------------------------------------------------------------------------------------------------


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def leave() -> None:
    os._exit(0)


def sleep() -> None:
    time.sleep(3600)


def spin() -> None:
    count = 0
    while True:
        count += 1


def loader() -> None:
    """The producer of batches and its consumer each wait for the other."""
    batches: queue.Queue[int] = queue.Queue()
    lock = threading.Lock()
    lock.acquire()

    def produce() -> None:
        with lock:
            batches.put(1)

    threading.Thread(target=produce, daemon=True).start()
    batches.get()


def fifo() -> None:
    """A read from storage that never comes back."""
    os.mkfifo("data.fifo")
    with open("data.fifo", "rb") as data:
        data.read(1)


def uninterruptible() -> None:
    """State D without privileges: a vfork whose child doesn't get as far as its program."""
    os.mkfifo("stuck.fifo")
    os.posix_spawn(
        "/bin/true", ["true"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "stuck.fifo", os.O_RDONLY, 0)]
    )


def heartbeat() -> None:
    """A thread goes on telling that all is well."""

    def pulse() -> None:
        while True:
            print(f"{time.strftime('%H:%M:%S')} PULSE watchdog alive", flush=True)
            time.sleep(2)

    threading.Thread(target=pulse, daemon=True).start()
    time.sleep(3600)


# --- Healthy, but unusual ----------------------------------------------------------------------------------------


def work(share: float = 1.0) -> None:
    """Burn CPU in changing functions."""

    def odd(limit: int) -> int:
        return sum(i * i for i in range(limit))

    def even(limit: int) -> list[int]:
        return sorted((i * 7919) % 1009 for i in range(limit))

    end, turn = time.monotonic() + LAST_S, 0
    while time.monotonic() < end:
        began = time.monotonic()
        while time.monotonic() - began < 0.05:
            turn += 1
            (odd if turn % 2 else even)(20_000)
        time.sleep(0.05 * (1 / share - 1))


def save(pause_s: float = 0.3) -> None:
    """A checkpoint that grows."""
    end = time.monotonic() + LAST_S
    with open("model.pt", "wb") as file:
        while time.monotonic() < end:
            file.write(os.urandom(1 << 19))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(pause_s)
    os.unlink("model.pt")


def slow_save() -> None:
    """Storage that takes a portion now and then."""
    save(pause_s=LAST_S / 3)


def compile_in_children() -> None:
    """One compiler after another, while this process only waits for them."""
    end = time.monotonic() + LAST_S
    while (left_s := end - time.monotonic()) > 0:
        subprocess.run([sys.executable, "-c", BURN.format(min(left_s, LAST_S / 3))], check=True)


def tokenise() -> None:
    """Forked children burn CPU; this process waits for them."""
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            work(0.7)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def declare_idle() -> None:
    with holdfast.idle("waits for the queue of requests"):
        time.sleep(LAST_S)


def pause() -> None:
    time.sleep(LAST_S)


ONE = {
    "stop": stop,
    "exit": leave,
    "sleep": sleep,
    "livelock": spin,
    "loader": loader,
    "fifo": fifo,
    "dstate": uninterruptible,
    "heartbeat": heartbeat,
    "gpu_spin": sleep,
    "evaluate": work,
    "save": save,
    "slow_save": slow_save,
    "compile": compile_in_children,
    "tokenise": tokenise,
    "traced": lambda: None,
}
ALL = {"evaluate_all": lambda: work(0.25), "preprocess": work, "idle": declare_idle, "pause": pause}


def _burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(1000))


def main() -> None:
    what, guilty, at_step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    gang = Gang()
    gang.greet()
    for step in range(100_000):
        mine = guilty == RANK
        if step == at_step and mine:
            Path("began").write_text(repr(time.monotonic()))
        if step == at_step and (what in ALL or mine):
            {**ONE, **ALL}.get(what, lambda: None)()
        _burn(STEP_S / 8)
        slow = what in ("straggler", "sleeper") and mine and at_step <= step
        if what == "straggler" and slow:
            _burn(STEP_S * 3)
        time.sleep(STEP_S * (4 if slow and what == "sleeper" else 0.7))
        if what == "mismatch" and mine and step == at_step:
            gang.barrier(step)
        gang.all_reduce(step)
        if RANK == 0 and step % LINE_EVERY == 0:
            print(f"step={step} loss={2 / (step + 1):.4f}", flush=True)


if __name__ == "__main__":
    main()
