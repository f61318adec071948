"""The digits training as plain PyTorch DDP: the launcher's environment says who is who, nothing else is special.

Runs alone, under torchrun, or under anything that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import argparse
import gzip
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

DATA = Path(__file__).resolve().parents[1] / "digits" / "data" / "digits.csv.gz"


def load_digits() -> tuple[TensorDataset, TensorDataset]:
    """The digits to train on, and the fifth that is held out."""
    with gzip.open(DATA, "rt") as file:
        table = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.int64))
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(1797))]
    digits = TensorDataset(table[:, :64].float() / 16, table[:, 64])
    held_out = len(table) // 5
    return TensorDataset(*digits[held_out:]), TensorDataset(*digits[:held_out])


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Trains a small network on real digits with PyTorch DDP.")
    default = Path("checkpoints") / os.environ.get("HOLDFAST_JOB", "local")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="samples a step, for each rank (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--checkpoint-dir", type=Path, default=default, help="(%(default)s)")
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--step-time", type=float, default=0.0, metavar="S", help="rest this long after each step")
    faults = parser.add_argument_group("faults, in the first generation only")
    faults.add_argument("--crash-rank", type=int, metavar="R", help="this rank ends in a backward pass")
    faults.add_argument("--crash-step", type=int, metavar="S", help="at this step, counted from 1")
    faults.add_argument("--crash-signal", type=int, metavar="N", help="by this signal instead of an exception")
    faults.add_argument("--hang-rank", type=int, metavar="R", help="this rank hangs, and so all others wait for it")
    faults.add_argument("--hang-step", type=int, metavar="S", help="at this step, counted from 1")
    faults.add_argument(
        "--hang-kind",
        choices=("queue", "sleep", "spin", "stop", "mismatch"),
        default="queue",
        help="queue: its data loader's worker blocks; sleep, spin: without end; stop: SIGSTOP to itself;"
        " mismatch: it calls barrier where the others reduce gradients (%(default)s)",
    )
    options = parser.parse_args()
    if (options.crash_rank is None) != (options.crash_step is None):
        parser.error("a crash needs both --crash-rank and --crash-step")
    if (options.hang_rank is None) != (options.hang_step is None):
        parser.error("a hang needs both --hang-rank and --hang-step")
    counts = ("HOLDFAST_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT")
    # A restart upon a hang begins a generation, and is not counted as a restart.
    later = int(os.environ.get("HOLDFAST_GENERATION") or 1) > 1
    if later or any(int(os.environ.get(name) or 0) for name in counts):
        options.crash_rank = options.hang_rank = None
    return options


def crash(options: argparse.Namespace, step: int) -> None:
    """Ends this process as the options say."""
    if options.crash_signal is not None:
        signal.raise_signal(options.crash_signal)
    raise RuntimeError(f"rank {options.crash_rank} was told to crash at step {step}")


def hang(kind: str) -> None:
    """Keeps this process from going on, in the way that the options name."""
    print(f"rank={dist.get_rank()} fault: hangs ({kind})", flush=True)
    match kind:
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "mismatch":
            dist.barrier()
        case "sleep":
            while True:
                time.sleep(3600)
        case "spin":
            count = 0
            while True:
                count += 1


class Blocking(Dataset[Any]):
    """A dataset that, after so many samples, waits for one that never comes, as one on a dead file server does."""

    def __init__(self, dataset: TensorDataset, samples: int) -> None:
        self.dataset, self.left = dataset, samples

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if self.left == 0:
            source, _ = os.pipe()
            os.read(source, 1)  # nobody writes
        self.left -= 1
        return self.dataset[index]


def make_loader(options: argparse.Namespace, training: TensorDataset, sampler: DistributedSampler[Any]) -> Any:
    """Batches of this rank's share; in a worker process where that is to block."""
    if (options.hang_rank, options.hang_kind) != (dist.get_rank(), "queue"):
        return DataLoader(training, batch_size=options.batch_size, sampler=sampler, drop_last=True)
    blocking = Blocking(training, (options.hang_step - 1) * options.batch_size)
    return DataLoader(
        blocking,
        batch_size=options.batch_size,
        sampler=sampler,
        drop_last=True,
        num_workers=1,
        persistent_workers=True,
    )


def save(path: Path, state: dict[str, Any]) -> None:
    """Replaces the checkpoint by `state`, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def load(path: Path) -> dict[str, Any] | None:
    """Rank 0's checkpoint, on every rank: only rank 0 needs to see the file."""
    box = [
        torch.load(path, map_location="cpu", weights_only=True) if dist.get_rank() == 0 and path.exists() else None
    ]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def train(options: argparse.Namespace, device: torch.device) -> None:
    """Trains to the last epoch, from the checkpoint on where there is one."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    training, held_out = load_digits()
    sampler: DistributedSampler[Any] = DistributedSampler(training, drop_last=True)
    loader = make_loader(options, training, sampler)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)).to(
        device
    )
    model = DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    path, step = options.checkpoint_dir / "latest.pt", 0
    if (state := load(path)) is not None:
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    print(f"rank={rank} world_size={dist.get_world_size()} device={device} from step {step}", flush=True)

    for epoch in range(step // len(loader), options.epochs):
        sampler.set_epoch(epoch)
        for index, (images, labels) in enumerate(loader):
            if epoch * len(loader) + index < step:
                continue  # done before the checkpoint
            loss = nn.functional.cross_entropy(logits := model(images.to(device)), labels.to(device))
            step += 1
            if (rank, step) == (options.crash_rank, options.crash_step):
                logits.register_hook(lambda _: crash(options, options.crash_step))
            if (rank, step) == (options.hang_rank, options.hang_step):
                hang(options.hang_kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % options.log_every == 0:
                print(f"step={step} epoch={epoch + 1}/{options.epochs} loss={loss.item():.4f}", flush=True)
            if rank == 0 and (step % options.checkpoint_every == 0 or step == options.epochs * len(loader)):
                states = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                save(path, states)
            time.sleep(options.step_time)

    if rank == 0:
        images, labels = (tensor.to(device) for tensor in held_out.tensors)
        with torch.no_grad():
            accuracy = (network(images).argmax(dim=1) == labels).float().mean().item()
        print(f"done step={step} accuracy={accuracy:.4f}", flush=True)
    dist.barrier()


@record
def main() -> None:
    """Joins the process group and trains."""
    options = parse()
    for name, alone in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        os.environ.setdefault(name, alone)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(backend="nccl" if cuda else "gloo", init_method="env://")
    train(options, device)
    dist.destroy_process_group()  # at a good end only: a rank that fails just goes, so that its peers see it


if __name__ == "__main__":
    main()
