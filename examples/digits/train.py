"""Trains a small network on real digits, data-parallel over RANK of WORLD_SIZE processes; alone it just trains.

Each step takes the same batch whatever the world size: every rank computes the gradient of its share, the sum
over ranks is applied by all. Batches depend on the seed and the step only, so a run that was resumed from a
checkpoint ends with the same weights, to the bit, as one that was never broken.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import checkpoint
import faults
import numpy as np
from allreduce import Group, join
from data_loader import Batch, DataLoader
from network import LAYERS, Digits, Network, load_digits

MOMENTUM = 0.9


@dataclass(frozen=True)
class Place:
    """Where this process stands in the gang, as launchers say it in the environment."""

    rank: int
    world_size: int
    local_rank: int
    master_addr: str
    master_port: int

    @classmethod
    def from_environment(cls) -> Place:
        """Reads RANK and its companions; alone, rank 0 of 1."""
        return cls(
            rank=int(os.environ.get("RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            master_addr=os.environ.get("MASTER_ADDR", "127.0.0.1"),
            master_port=int(os.environ.get("MASTER_PORT", "29500")),
        )


class Training:
    """One rank's training: the network, the optimiser's state, and the steps done so far."""

    def __init__(self, options: argparse.Namespace, place: Place, group: Group, fault: faults.Fault) -> None:
        self.options, self.place, self.group, self.fault = options, place, group, fault
        self.data: Digits = load_digits()
        self.network = Network(options.seed)
        self.velocity = np.zeros_like(self.network.parameters)
        self.step = 0
        self.steps_per_epoch = len(self.data.labels) // options.batch_size
        self.settings = json.dumps(
            {"seed": options.seed, "batch_size": options.batch_size, "lr": options.lr, "layers": LAYERS}
        )

    def resume(self) -> None:
        """Goes on from rank 0's newest checkpoint; the others get it from rank 0 and need no shared directory.

        Ends the program when the checkpoint belongs to a run with other settings.
        """
        found = checkpoint.newest(self.options.checkpoint_dir) if self.place.rank == 0 else None
        if found is not None:
            if found.settings != self.settings:
                sys.exit(
                    f"{self.options.checkpoint_dir} holds a run with the settings {found.settings}; this one has "
                    f"{self.settings}. Name another --checkpoint-dir, or remove that one."
                )
            self.step = found.step
            self.network.parameters[:] = found.parameters
            self.velocity[:] = found.velocity
        step = np.array([self.step], np.int64)
        self.group.broadcast(step)
        self.step = int(step[0])
        self.group.broadcast(self.network.parameters)
        self.group.broadcast(self.velocity)

    def share(self, step: int) -> Batch:
        """This rank's images and labels of one step, counted from 0."""
        epoch, index = divmod(step, self.steps_per_epoch)
        size, seed = self.options.batch_size, self.options.seed
        order = np.random.default_rng([seed, epoch]).permutation(len(self.data.labels))
        samples = order[index * size : (index + 1) * size]
        images = self.data.shifted(samples, np.random.default_rng([seed, epoch, index]))
        mine = slice(self.place.rank, None, self.place.world_size)
        return images[mine], self.data.labels[samples[mine]]

    def advance(self, loader: DataLoader) -> float:
        """Takes one step with all other ranks; returns the mean loss of the whole batch."""
        number = self.step + 1
        images, labels = loader.next_batch()
        activations = self.network.forward(images)
        loss = self.network.backward(activations, labels, lambda: self.fault.strike(self.place.rank, number))
        summed = np.append(self.network.gradient, np.float32(loss)) / np.float32(self.options.batch_size)
        self.group.all_reduce(summed)
        self.velocity *= MOMENTUM
        self.velocity -= self.options.lr * summed[:-1]
        self.network.parameters += self.velocity
        self.step = number
        return float(summed[-1])

    def run(self) -> None:
        """Trains to the last epoch; rank 0 reports and saves checkpoints on the way."""
        losses: list[float] = []
        since = time.monotonic()
        steps = range(self.step, self.options.epochs * self.steps_per_epoch)
        deadlock = self.fault.loader_deadlock(self.place.rank)
        loader = DataLoader(steps, self.share, None if deadlock is None else deadlock - 1)
        while self.step < steps.stop:
            losses.append(self.advance(loader))
            time.sleep(self.options.step_time)
            if self.place.rank != 0:
                continue
            if self.step % self.options.checkpoint_every == 0:
                self.save()
            if self.step % (self.steps_per_epoch * self.options.report_every) == 0:
                now = time.monotonic()
                self.report(losses, now - since)
                losses, since = [], now

    def save(self) -> None:
        """Writes a checkpoint of this moment."""
        state = checkpoint.Checkpoint(self.step, self.network.parameters, self.velocity, self.settings)
        checkpoint.save(self.options.checkpoint_dir, state)

    def report(self, losses: list[float], seconds: float) -> None:
        """Prints how the steps since the last report went, which took `seconds`."""
        rate = len(losses) * self.options.batch_size / seconds
        print(
            f"step={self.step} epoch={self.step // self.steps_per_epoch}/{self.options.epochs}"
            f" loss={np.mean(losses):.4f} accuracy={self.accuracy():.4f} samples_per_s={rate:.0f}",
            flush=True,
        )

    def accuracy(self) -> float:
        """The share of held-out digits that are named right."""
        return self.network.accuracy(self.data.held_out_images, self.data.held_out_labels)

    def finish(self) -> None:
        """Saves the end and says how good it is; no rank leaves before that is on disk."""
        if self.place.rank == 0:
            self.save()
            digest = hashlib.sha256(self.network.parameters.tobytes()).hexdigest()[:12]
            print(f"done step={self.step} accuracy={self.accuracy():.4f} weights={digest}", flush=True)
        self.group.barrier()


def parse(arguments: list[str] | None = None) -> tuple[argparse.Namespace, faults.Fault]:
    """Reads the command line; ends with usage (2) where it makes no sense."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = Path("checkpoints") / os.environ.get("HOLDFAST_JOB", "local")
    parser.add_argument("--epochs", type=int, default=200, help="passes over the training data (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="samples a step, over all ranks (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.02, help="step size (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and the batches (%(default)s)")
    parser.add_argument("--checkpoint-dir", type=Path, default=default, help="(%(default)s)")
    parser.add_argument("--checkpoint-every", type=int, default=100, metavar="STEPS", help="(%(default)s)")
    parser.add_argument("--report-every", type=int, default=1, metavar="EPOCHS", help="(%(default)s)")
    parser.add_argument("--connect-timeout", type=float, default=60, metavar="S", help="for all ranks to meet")
    parser.add_argument("--step-time", type=float, default=0.0, metavar="S", help="rest this long after each step")
    faults.add_options(parser)
    options = parser.parse_args(arguments)
    for name in ("epochs", "batch_size", "checkpoint_every", "report_every"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return options, faults.ordered(parser, options, os.environ)


def main() -> None:
    """Joins the gang, resumes, trains, finishes. Exits 1 with a ConnectionError when a peer is lost."""
    options, fault = parse()
    place = Place.from_environment()
    with join(place.rank, place.world_size, place.master_addr, place.master_port, options.connect_timeout) as group:
        training = Training(options, place, group, fault)
        training.resume()
        generation = os.environ.get("HOLDFAST_GENERATION")
        print(
            f"rank={place.rank} world_size={place.world_size} local_rank={place.local_rank}"
            + (f" generation={generation}" if generation else "")
            + (f" resumed from step {training.step}" if training.step else " starting from scratch"),
            flush=True,
        )
        training.run()
        training.finish()


if __name__ == "__main__":
    main()
