"""A rank of a PyTorch DDP training on gloo that goes astray: ``python ddp_gang.py FAULT AFTER_S``.

Runs under torchrun, or under anything that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. In the first generation
the last rank does what ``FAULT`` says after so many seconds of training, and notes the time in ``$WORK/began``. A later
generation trains for a minute and ends well.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

FIRST = os.environ.get("HOLDFAST_GENERATION") == "1"
LATER_STEPS = 200
STEP_S = 0.2
LINE_EVERY_S = 5.0


def begin() -> None:
    """Note when the fault began."""
    (Path(os.environ["WORK"]) / "began").write_text(str(time.time()))


class Batches:
    """Random batches; their worker process stops or blocks at ``end_s`` of the monotonic clock, if it is given."""

    def __init__(self, fault: str, end_s: float) -> None:
        self.fault, self.end_s = fault, end_s

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if time.monotonic() >= self.end_s:
            begin()
            if self.fault == "stopped loader":
                os.kill(os.getpid(), signal.SIGSTOP)
            source, _ = os.pipe()
            os.read(source, 1)
        return torch.rand(16, 64)


def go_astray(fault: str) -> None:
    begin()
    match fault:
        case "SIGSTOP" | "SIGSTOP, busy peers":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(36000)
        case "mismatch":
            dist.barrier()


def reduce_busily(model: DistributedDataParallel) -> None:
    """The gradients' mean, waited for as a collective on GPUs is that asks again and again."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            work = dist.all_reduce(parameter.grad, async_op=True)
            while not work.is_completed():
                pass


def train(fault: str, after_s: float) -> None:
    """Trains until the fault; in a later generation so many steps."""
    last = dist.get_rank() == dist.get_world_size() - 1
    end_s = time.monotonic() + after_s if FIRST and last else float("inf")
    in_loader = "loader" in fault
    batches = Batches(fault, end_s if in_loader else float("inf"))
    loader = DataLoader(batches, batch_size=None, num_workers=1 if in_loader else 0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    printed_s = 0.0
    for step, batch in enumerate(loader):
        if not FIRST and step == LATER_STEPS:
            return
        if not in_loader and time.monotonic() >= end_s:
            go_astray(fault)
        optimizer.zero_grad()
        if "busy" in fault:
            with model.no_sync():
                loss = model(batch).square().mean()
                loss.backward()
            reduce_busily(model)
        else:
            loss = model(batch).square().mean()
            loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and time.monotonic() - printed_s > LINE_EVERY_S:
            printed_s = time.monotonic()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(STEP_S)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group(backend="gloo", init_method="env://")
    train(sys.argv[1], float(sys.argv[2]))
    dist.destroy_process_group()
