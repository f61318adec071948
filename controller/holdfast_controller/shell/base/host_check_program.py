"""The program of an active check: measures the host that it runs on, or with another the network between them.

It is sent to the hosts as text and run by whatever Python the site names, from 3.8 on, with the standard library and
torch where that is there. Its result is the last line of stderr: figures, of which more is better, and what could not
be measured, which is no failure. It says nothing of whether a figure is good.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import hmac
import importlib
import json
import os
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
from typing import Any

VERSION = 1
MIB, GB = 1 << 20, 1e9
ROUNDS = 5
PATIENCE_S = 60.0
"""For the other host of a pair."""
SENT_BYTES = 256 * MIB
UNABLE = (OSError, RuntimeError, ValueError, ArithmeticError, ImportError, AttributeError, KeyError, MemoryError)
"""Errors of what is missing or broken: the other figures are worth having. Torch's own are RuntimeErrors."""


class Check:
    """Figures that were taken so far."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.problems: list[str] = []
        self.software = f"check {VERSION}, Python {sys.version_info[0]}.{sys.version_info[1]}"

    def measure(self, name: str, work: Any, *given: Any) -> None:
        """Take a figure, or note why it could not be taken."""
        try:
            self.figures[name] = work(*given)
        except UNABLE as error:
            self.problems.append(f"{name}: {type(error).__name__}: {error}"[:200])

    def line(self) -> str:
        """The result as a line of JSON."""
        said = {"software": self.software, "figures": self.figures, "problems": self.problems}
        return json.dumps({"holdfast_check": VERSION, **said})


def elapsed(work: Any) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_hash() -> float:
    """MB/s that all cores together hash: each in a thread, as hashing needs no interpreter."""
    block, cores = bytes(MIB), len(os.sched_getaffinity(0))

    def hashed() -> int:
        until, count = time.perf_counter() + 0.4, 0
        while time.perf_counter() < until:
            hashlib.sha256(block)
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        rates = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            counts = [each.result() for each in [pool.submit(hashed) for _ in range(cores)]]
            rates.append(sum(counts) * MIB / 1e6 / (time.perf_counter() - began))
    return statistics.median(rates)


def memory_copy() -> float:
    """GB/s at which one core copies memory."""
    source, target = bytearray(64 * MIB), bytearray(64 * MIB)

    def copy() -> None:
        for _ in range(8):
            target[:] = source

    copy()
    return 8 * len(source) / GB / statistics.median(elapsed(copy) for _ in range(ROUNDS))


def disk_write() -> float:
    """MB/s that the disk of the working directory takes durably, of a file that has no name."""
    if shutil.disk_usage(".").free < 2048 * MIB:
        raise OSError("less than 2 GiB are free")
    block = os.urandom(8 * MIB)

    def write() -> None:
        with tempfile.TemporaryFile(dir=".") as file:
            for _ in range(16):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    return 16 * len(block) / 1e6 / statistics.median(elapsed(write) for _ in range(3))


# --- GPUs ---------------------------------------------------------------------------------------------------------


def timed(torch: Any, devices: list[int], work: Any) -> float:
    """Seconds of the slowest device for its work, all of them at once, the median of some rounds for each."""
    seconds: dict[int, list[float]] = {device: [] for device in devices}
    for number in range(ROUNDS + 1):
        marks = {}
        for device in devices:
            with torch.cuda.device(device):
                first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                first.record()
                work(device)
                last.record()
                marks[device] = first, last
        for device, (first, last) in marks.items():
            torch.cuda.synchronize(device)
            if number:  # the first warms up
                seconds[device].append(first.elapsed_time(last) / 1000)
    return max(statistics.median(each) for each in seconds.values())


def gpu_matmul(torch: Any, devices: list[int]) -> float:
    """TFLOP/s of the slowest GPU, multiplying matrices of half precision."""
    size, times = 8192, 20
    made = {d: torch.randn(size, size, dtype=torch.float16, device=f"cuda:{d}") for d in devices}

    def multiply(device: int) -> None:
        for _ in range(times):
            torch.matmul(made[device], made[device])

    return times * 2 * size**3 / 1e12 / timed(torch, devices, multiply)


def gpu_memory(torch: Any, devices: list[int]) -> float:
    """GB/s of the slowest GPU, reading and writing its own memory."""
    size, times = 1024 * MIB, 10
    made = {d: [torch.zeros(size, dtype=torch.uint8, device=f"cuda:{d}") for _ in range(2)] for d in devices}

    def copy(device: int) -> None:
        for _ in range(times):
            made[device][1].copy_(made[device][0])

    return times * 2 * size / GB / timed(torch, devices, copy)


def gpu_copy(torch: Any, devices: list[int], to_device: bool) -> float:
    """GB/s of the slowest GPU to or from pinned memory of the host, one after the other."""
    size, times = 256 * MIB, 8
    pinned = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
    slowest = 0.0
    for device in devices:
        there = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}")
        target, source = (there, pinned) if to_device else (pinned, there)

        def copy(_: int, target: Any = target, source: Any = source) -> None:
            for _ in range(times):
                target.copy_(source, non_blocking=True)

        slowest = max(slowest, timed(torch, [device], copy))
    return times * size / GB / slowest


def gpu_all_reduce(torch: Any, devices: list[int]) -> float:
    """GB/s of the bus at which the host's GPUs all-reduce."""
    made = [torch.zeros(64 * MIB, dtype=torch.float32, device=f"cuda:{d}") for d in devices]
    nccl = importlib.import_module("torch.cuda.nccl")

    def reduce() -> None:
        for _ in range(5):
            nccl.all_reduce(made)
        for device in devices:
            torch.cuda.synchronize(device)

    reduce()
    moved = 5 * made[0].nbytes * 2 * (len(devices) - 1) / len(devices)
    return float(moved / GB / statistics.median(elapsed(reduce) for _ in range(ROUNDS)))


def torch_with_gpus(check: Check) -> Any:
    """Torch where it finds the GPUs that this host has; None without."""
    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return None
    try:
        torch = importlib.import_module("torch")
        if not torch.cuda.is_available():
            raise RuntimeError("torch finds none")
    except UNABLE as error:
        check.problems.append(f"GPUs: {type(error).__name__}: {error}"[:200])
        return None
    check.software += f", torch {torch.__version__}"
    return torch


def alone(check: Check) -> None:
    """Measure this host."""
    check.measure("cpu.hash", cpu_hash)
    check.measure("memory.copy", memory_copy)
    check.measure("disk.write", disk_write)
    torch = torch_with_gpus(check)
    if torch is None:
        return
    devices = list(range(torch.cuda.device_count()))
    check.measure("gpu.matmul", gpu_matmul, torch, devices)
    check.measure("gpu.memory", gpu_memory, torch, devices)
    check.measure("gpu.to_device", gpu_copy, torch, devices, True)
    check.measure("gpu.from_device", gpu_copy, torch, devices, False)
    if len(devices) > 1:
        check.measure("gpu.all_reduce", gpu_all_reduce, torch, devices)


# --- a pair of hosts ----------------------------------------------------------------------------------------------


def pair(check: Check) -> None:
    """Measure the network to the other host: by the GPUs where there are any, else by one connection."""
    torch = torch_with_gpus(check)
    if torch is not None:
        check.measure("net.all_reduce", net_all_reduce, torch)
    elif os.environ.get("LOCAL_RANK", "0") == "0":
        check.measure("net.tcp", net_tcp)


def net_all_reduce(torch: Any) -> float:
    """GB/s of the bus at which the GPUs of both hosts all-reduce."""
    distributed = importlib.import_module("torch.distributed")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl")
    try:
        made = torch.zeros(64 * MIB, dtype=torch.float32, device="cuda")

        def reduce() -> None:
            for _ in range(5):
                distributed.all_reduce(made)
            torch.cuda.synchronize()

        reduce()
        seconds = statistics.median(elapsed(reduce) for _ in range(ROUNDS))
        size = distributed.get_world_size()
        return float(5 * made.nbytes * 2 * (size - 1) / size / GB / seconds)
    finally:
        distributed.destroy_process_group()


def net_tcp() -> float:
    """GB/s that one connection carries, the slower of the two directions."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    secret = os.environ.get("HOLDFAST_RENDEZVOUS_SECRET", "")
    token = hashlib.sha256(f"host check {secret}".encode()).digest()
    first = os.environ.get("GROUP_RANK", "0") == "0"
    with accepted(address, port, token) if first else connected(address, port, token) as link:
        link.settimeout(PATIENCE_S)
        rates: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(3):
            for sends in (first, not first):
                rates[sends].append(SENT_BYTES / GB / (send(link) if sends else receive(link)))
    return min(statistics.median(each) for each in rates.values())


def accepted(address: str, port: int, token: bytes) -> socket.socket:
    """The connection of the other host, which shows the gang's token; those of others are closed."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    until = time.monotonic() + PATIENCE_S
    with socket.create_server((address, port), family=family) as server:
        while True:
            server.settimeout(max(0.1, until - time.monotonic()))
            link, _ = server.accept()
            link.settimeout(5.0)
            try:
                if hmac.compare_digest(exactly(link, len(token)), token):
                    return link
            except OSError:
                pass
            link.close()


def connected(address: str, port: int, token: bytes) -> socket.socket:
    """A connection to the other host, which may not listen yet."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            link = socket.create_connection((address, port), timeout=5.0)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            link.sendall(token)
            return link


def send(link: socket.socket) -> float:
    """Send, and return the seconds that the other host took to receive it."""
    block = bytes(MIB)
    for _ in range(SENT_BYTES // MIB):
        link.sendall(block)
    return float(struct.unpack("!d", exactly(link, 8))[0])


def receive(link: socket.socket) -> float:
    """Receive what the other host sends; returns the seconds from the first byte on, and says them."""
    buffer = memoryview(bytearray(MIB))
    left = SENT_BYTES - len(exactly(link, 1))
    began = time.perf_counter()
    while left:
        got = link.recv_into(buffer, min(len(buffer), left))
        if not got:
            raise ConnectionError("the other host has closed the connection")
        left -= got
    seconds = time.perf_counter() - began
    link.sendall(struct.pack("!d", seconds))
    return seconds


def exactly(link: socket.socket, count: int) -> bytes:
    """Receive so many bytes."""
    found = b""
    while len(found) < count:
        more = link.recv(count - len(found))
        if not more:
            raise ConnectionError("the other host has closed the connection")
        found += more
    return found


def main(kind: str) -> None:
    """Measure, and say what was found."""
    check = Check()
    if kind == "pair":
        pair(check)
    else:
        alone(check)
    sys.stderr.write(f"{check.line()}\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "alone")
