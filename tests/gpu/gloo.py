"""A gang of gloo on CUDA tensors: reduces some, and checks the sums. Needs torch."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

ROUNDS = 50


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    for number in range(ROUNDS):
        tensor = torch.full((1 << 20,), float(rank + number), device=device)
        dist.all_reduce(tensor)
        expected = float(sum(each + number for each in range(world)))
        if tensor[0].item() != expected or tensor[-1].item() != expected:
            raise SystemExit(f"round {number}: {tensor[0].item()}, not {expected}")
        print(f"step={number}", flush=True)
    dist.destroy_process_group()
    print(f"{ROUNDS} sums of {world} ranks are right on {torch.cuda.get_device_name(device)}", flush=True)


if __name__ == "__main__":
    main()
