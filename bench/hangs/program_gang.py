"""What the programs of ``hung_programs`` and ``healthy_programs`` share: how their ranks meet, train, and go astray.

Two ranks meet by TCP at ``MASTER_ADDR:MASTER_PORT``, as a framework's would, and print a line each few seconds. After
``TRAIN_S`` a program does what its name says. Only the standard library is used.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

TRAIN_S = float(os.environ.get("TRAIN_S", "60"))
PAUSE_S = float(os.environ.get("PAUSE_S", "180"))
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
GENERATION = int(os.environ.get("HOLDFAST_GENERATION", "1"))


@dataclass(frozen=True, slots=True)
class Case:
    """What is expected of a program: ``acts`` (restarted), ``tells`` (reported, acted on later) or ``healthy``."""

    expected: str
    run: Callable[[], None]
    guilty: int | None = None
    timeout: str = ""
    notice: bool = True
    """A healthy pause may be reported."""
    ranks: int = 2
    env: tuple[tuple[str, str], ...] = ()
    script: bool = False
    """Run by ``bash run.sh``."""


class Gang:
    """The ranks' meeting: rank 0 listens, the others connect; an all-reduce is a line to it and one back."""

    def __init__(self) -> None:
        self.peers: list[socket.socket] = []
        if SIZE == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            with socket.create_server(address, reuse_port=True) as server:
                self.peers = [server.accept()[0] for _ in range(SIZE - 1)]
            return
        for _ in range(600):
            with contextlib.suppress(OSError):
                self.peers = [socket.create_connection(address)]
                return
            time.sleep(0.1)
        raise SystemExit("no rank 0")

    def all_reduce(self) -> None:
        """Return once all ranks are here."""
        for peer in self.peers if RANK == 0 else ():
            self._take(peer)
        for peer in self.peers:
            peer.sendall(b"x")
        for peer in self.peers if RANK != 0 else ():
            self._take(peer)

    def _take(self, peer: socket.socket) -> None:
        if not peer.recv(1):
            raise SystemExit(17)


def train(gang: Gang | None, seconds: float, first: int = 0) -> int:
    """Steps of 0.3 s with a line each 5 s; the number of the step after the last."""
    step, printed = first, 0.0
    while True:
        sum(i * i for i in range(20_000))
        time.sleep(0.3)
        if gang is not None:
            gang.all_reduce()
        step += 1
        if (RANK == 0 or gang is None) and time.monotonic() - printed > 5:
            printed = time.monotonic()
            print(f"step {step} loss {2 / (1 + step):.4f}", flush=True)
        if step - first >= seconds / 0.35:
            return step


def note_fault() -> None:
    """Keep the time at which the program begins to be odd."""
    with open("fault", "a") as file:
        file.write(f"{time.strftime('%H:%M:%S', time.gmtime())} (generation {GENERATION}) ")


def with_gang(odd: Callable[[Gang], None], *, all_ranks: bool = False) -> Callable[[], None]:
    """A gang that trains, of which rank 1 (or all ranks) then does something odd, and trains on."""

    def run() -> None:
        gang = Gang()
        step = train(gang, TRAIN_S)
        if all_ranks or RANK == SIZE - 1:
            note_fault()
            odd(gang)
        for _ in range(20):
            step = train(gang, TRAIN_S, step)

    return run


def alone(odd: Callable[[], None]) -> Callable[[], None]:
    """Ranks that train without each other; rank 1 then does something odd."""

    def run() -> None:
        step = train(None, TRAIN_S)
        if RANK == SIZE - 1:
            note_fault()
            odd()
        for _ in range(20):
            step = train(None, TRAIN_S, step)

    return run


def play(cases: Mapping[str, Case]) -> None:
    """Be one rank of the program that the command line names, in a folder of its own below ``WORK``."""
    work = Path(os.environ["WORK"]) / f"r{RANK}"
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(work)
    cases[sys.argv[1]].run()
