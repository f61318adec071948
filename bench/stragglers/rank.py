"""One rank of a PyTorch DDP training on gloo, which gets slow in a given way: ``python rank.py PROGRAM GUILTY``.

A step is a forward and a backward pass on a core, a wait in the kernel as for a device that computes, and the mean of
the gradients. Once there is a file ``began`` in its folder, the program does what its name says.
"""

from __future__ import annotations

import os
import random
import select
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PROGRAM, GUILTY = sys.argv[1], int(sys.argv[2])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCH, WIDTH = int(os.environ.get("BATCH", "64")), 512
DEVICE_S = float(os.environ.get("DEVICE_S", "0.13"))
EXTRA_S = float(os.environ.get("EXTRA_S", "0.08"))
"""What the guilty rank's loader, or its device, takes longer."""
EVALUATE_EVERY_S, EVALUATION_S = 40.0, 14.0
SAVE_EVERY_S, SAVED_BYTES = 20.0, 24 << 20
DATA_BYTES = 1 << 20


def wait_for_device(seconds: float) -> None:
    """Sleep in poll, as a driver does that waits for an interrupt."""
    select.select([], [], [], seconds)


def sync(name: str, count: int) -> None:
    """Bytes that have to be on the disk before it goes on."""
    with open(name, "wb") as file:
        file.write(os.urandom(count))
        file.flush()
        os.fsync(file.fileno())


def batch_of(step: int, began: bool, since_s: float) -> int:
    """How many rows this rank's batch has at a step."""
    match PROGRAM:
        case "more work" | "uneven data" if began and RANK == GUILTY:
            # One more matrix product each step; or batches of any length, that are longer in the mean.
            return BATCH * 3 if PROGRAM == "more work" else round(BATCH * random.uniform(1.5, 4.5))
        case "lengths":
            return round(BATCH * random.uniform(0.4, 1.6))
        case "warm-up":
            return round(BATCH * min(1.0, 0.3 + since_s / 200))
    return BATCH


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(backend="gloo", init_method="env://")
    torch.manual_seed(1)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    random.seed(RANK)
    start_s = time.monotonic()
    evaluate_s, save_s = start_s + EVALUATE_EVERY_S, start_s + SAVE_EVERY_S
    for step in range(1_000_000):
        began, now_s = Path("began").exists(), time.monotonic()
        if PROGRAM == "one rank's loader" and began and RANK == GUILTY:
            time.sleep(EXTRA_S)
        if PROGRAM == "storage of all" and began:
            sync(f"data{RANK}", DATA_BYTES)
        if PROGRAM == "storage of one" and began and RANK == GUILTY:
            sync(f"data{RANK}", 4 * DATA_BYTES)
        optimizer.zero_grad()
        loss = model(torch.rand(batch_of(step, began, now_s - start_s), WIDTH)).square().mean()
        wait_for_device(DEVICE_S * (1.5 if PROGRAM == "slow network" and began else 1.0))
        if PROGRAM == "more on its device" and began and RANK == GUILTY:
            wait_for_device(EXTRA_S * random.uniform(0.5, 1.5))
        loss.backward()
        optimizer.step()
        if RANK == 0:
            print(f"step={step} loss={loss.item():.6f}", flush=True)
        # Only rank 0's clock says when, or they would do it at different steps.
        due = torch.tensor([float(now_s >= evaluate_s), float(now_s >= save_s)])
        dist.broadcast(due, 0)
        if PROGRAM == "evaluations" and due[0]:
            evaluate(model, now_s + EVALUATION_S)
            evaluate_s = time.monotonic() + EVALUATE_EVERY_S
        if PROGRAM == "checkpoints" and due[1]:
            if RANK == 0:
                sync("model.pt", SAVED_BYTES)
            dist.barrier()
            save_s = time.monotonic() + SAVE_EVERY_S


def evaluate(model: nn.Module, end_s: float) -> None:
    """Forward passes alone, without a word of it."""
    with torch.no_grad():
        while time.monotonic() < end_s:
            model.module(torch.rand(BATCH, WIDTH))
            wait_for_device(DEVICE_S)
    dist.barrier()


if __name__ == "__main__":
    main()
