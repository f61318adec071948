"""CPU time of a plan on 10,000 hosts in racks of 16: `python -m bench.topology [HOSTS]`.

In milliseconds, the least and the median of 15; beside it the same gang without any wish to be near.
"""

from __future__ import annotations

import statistics
import sys
import time

from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.free_capacity import FreeCapacity
from holdfast_controller.core.model.hosts.host import Gpu, Host, Inventory
from holdfast_controller.core.model.hosts.locality import Locality, Segments
from holdfast_controller.core.scheduling.placement import Plan, plan_on

LEVELS = ("pod", "rack")
WISHES = {
    "anywhere": None,
    "prefer a rack": Locality(LEVELS, "rack"),
    "require a pod": Locality(LEVELS, "pod", required=True),
    "segments of 4 in racks": Locality(LEVELS, "pod", required=True, segments=Segments(4, "rack")),
}
RUNS = 15


def fleet(count: int) -> list[Host]:
    """Hosts of eight GPUs, racks of 16, pods of 1,024."""
    found = []
    for number in range(count):
        name = f"host-{number:05}"
        gpus = tuple(Gpu(f"{name}-{i}", i, "NVIDIA H200", 141 << 30) for i in range(8))
        labels = {"pod": f"p{number // 1024}", "rack": f"r{number // 16}"}
        found.append(Host(name, name, "boot", "1", Inventory(128, 1 << 41, gpus), labels=labels))
    return found


def main(count: int) -> None:
    hosts, free = fleet(count), FreeCapacity()
    for host in hosts:
        free.capacity_of(host)
    print(f"{count:,} hosts\n{'workers':>8} {'wish':<24}{'least':>8}{'median':>8}")
    for workers in (1, 16, 64, 128, 512):
        for wish, near in WISHES.items():
            gang = Gang((Pool(workers, Task(("x",)), gpus=8, cpus=16),), near=near if workers > 1 else None)
            took = []
            for _ in range(RUNS):
                began = time.process_time()
                found = plan_on(gang, hosts, free.capacity_of)
                took.append(1e3 * (time.process_time() - began))
            what = "" if isinstance(found, Plan) else "  no room"
            print(f"{workers:>8} {wish:<24}{min(took):>8.1f}{statistics.median(took):>8.1f}{what}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
