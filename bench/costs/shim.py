"""What a shim costs: `python -m bench.costs.shim [ROUNDS]`. Medians, with the 10th and 90th percentile beside them.

The rank is a shell that writes to a FIFO as its first act, so a launch contains one start of `sh`; the same by
`posix_spawn`, with nothing durable, is printed beside it as the floor, and what the disk takes for one fdatasync.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast_agent.shim import shim as shim_program

# Says that it runs, before anything else; then waits to be stopped.
RANK = ["/bin/sh", "-c", 'echo x > "$0"; exec sleep 600']


class Shim:
    """A shim and its measurements."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connection, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", shim_program.__file__, str(theirs.fileno())]
        began = time.perf_counter()
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        self.lines = self.connection.makefile("rb")
        self.send(op="assign", dir=str(folder))
        self.until("hello")
        self.start_wall_ms = (time.perf_counter() - began) * 1e3
        schedstat = Path(f"/proc/{self.process.pid}/schedstat").read_text()
        self.start_cpu_ms = int(schedstat.split()[0]) / 1e6
        self.pss_mb = self.pss_mb_now()

    def pss_mb_now(self) -> float:
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024

    def send(self, **message: object) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def until(self, kind: str) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = json.loads(self.lines.readline())
            if message["ev"] == kind:
                return message

    def launch(self, generation: int, ranks: int, *argv: str) -> None:
        orders = []
        for rank in range(ranks):
            stem = f"{self.folder}/g{generation}.r{rank}"
            order = {"rank": rank, "argv": list(argv), "env": {"PATH": os.environ["PATH"]}, "cwd": "/"}
            orders.append(order | {"stdout": stem + ".out", "stderr": stem + ".err"})
        identity = {"uid": None, "gid": None, "groups": None, "umask": 0o22, "core_bytes": 0}
        self.send(op="launch", generation=generation, ranks=orders, **identity)

    def end(self) -> None:
        self.send(op="stop", generation=1 << 30, grace_s=0.0, reason="STOPPED")
        self.until("empty")
        self.process.kill()
        self.process.wait()
        self.lines.close()
        self.connection.close()


def measure_launch(shim: Shim, generation: int, ranks: int, beacon: Path) -> float:
    """Milliseconds from the order to the first instruction of the last rank."""
    reader = os.open(beacon, os.O_RDWR)
    began = time.perf_counter()
    shim.launch(generation, ranks, *RANK, str(beacon))
    got = 0
    while got < 2 * ranks:
        got += len(os.read(reader, 4096))
    took = time.perf_counter() - began
    os.close(reader)
    shim.send(op="stop", generation=generation, grace_s=0.0, reason="STOPPED")
    shim.until("empty")
    return took * 1e3


def measure_floor(ranks: int, beacon: Path) -> float:
    """The same without a shim: fork, exec, first instruction."""
    reader = os.open(beacon, os.O_RDWR)
    began = time.perf_counter()
    pids = [os.posix_spawn(RANK[0], [*RANK, str(beacon)], {"PATH": os.environ["PATH"]}) for _ in range(ranks)]
    got = 0
    while got < 2 * ranks:
        got += len(os.read(reader, 4096))
    took = time.perf_counter() - began
    os.close(reader)
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return took * 1e3


def measure_exit(shim: Shim, generation: int) -> float:
    """Milliseconds from a rank's death to its exit, durable and told."""
    shim.launch(generation, 1, "sleep", "600")
    pid = shim.until("started")["pid"]
    time.sleep(0.005)
    began = time.perf_counter()
    os.kill(pid, 9)
    shim.until("exited")
    took = time.perf_counter() - began
    shim.until("empty")
    return took * 1e3


def measure_disk(folder: Path) -> float:
    """Milliseconds for one small write and fdatasync; a launch needs a directory's sync, too."""
    fd = os.open(folder / "probe", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    began = time.perf_counter()
    os.write(fd, b"x" * 200)
    os.fdatasync(fd)
    took = time.perf_counter() - began
    os.close(fd)
    return took * 1e3


def show(name: str, values: list[float], unit: str = "ms") -> None:
    cuts = statistics.quantiles(values, n=10)
    print(f"{name:<48}{statistics.median(values):8.2f} {unit}   ({cuts[0]:.2f} to {cuts[-1]:.2f})")


def measure(root: Path, rounds: int) -> None:
    beacon = root / "beacon"
    os.mkfifo(beacon)
    shims: list[Shim] = []
    for n in range(rounds):
        folder = root / f"worker-{n}"
        folder.mkdir()
        shims.append(Shim(folder))
        if n:
            shims[-2].end()
    show("start to hello, wall", [shim.start_wall_ms for shim in shims])
    show("start to hello, CPU", [shim.start_cpu_ms for shim in shims])
    show("memory (PSS) at hello", [shim.pss_mb for shim in shims], "MB")
    shim, generation = shims[-1], 0
    for ranks in (1, 8):
        ours, floor = [], []
        for _ in range(rounds):
            generation += 1
            ours.append(measure_launch(shim, generation, ranks, beacon))
            floor.append(measure_floor(ranks, beacon))
        show(f"launch of {ranks}: order to last first instruction", ours)
        show("  the same by posix_spawn, nothing durable", floor)
    exits = []
    for _ in range(rounds):
        generation += 1
        exits.append(measure_exit(shim, generation))
    show("a rank's death to its exit, durable and told", exits)
    show("the disk: one fdatasync of a small write", [measure_disk(root) for _ in range(rounds)])
    print(f"memory (PSS) after {generation} generations: {shim.pss_mb_now():.1f} MB")
    shim.end()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    root = Path(tempfile.mkdtemp(prefix="shim-cost-"))
    try:
        measure(root, rounds)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
