"""What a scrape of the controller's metrics costs: CPU in the loop of the reactor, which waits meanwhile.

``python -m bench.costs.metrics [--jobs N] [--hosts N]``: a model of that size, folded from events, and its page.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from holdfast._daemon.metrics.exposition import Exposition
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory, Liveness, Place
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.views.gauges import gauges
from holdfast_controller.core.views.metering import Meter
from holdfast_controller.core.views.metric_families import FAMILIES

GPUS = 8
GANG = Gang((Pool(1, Task(("python", "train.py"), (), (), "/"), gpus=GPUS),))
RUNS = 30


def model(jobs: int, hosts: int) -> Cluster:
    """Half of the hosts are taken, a tenth of them is silent; of the other jobs half have ended and half wait."""
    cluster = Cluster()
    for number in range(hosts):
        gpus = tuple(Gpu(f"GPU-{number}-{index}", index, "H100", 80 << 30) for index in range(GPUS))
        fold(
            cluster,
            ev.HostJoined(
                host=f"host-{number}",
                at=Wall(1.0),
                address="10.0.0.1",
                boot_id="b",
                agent_version="1.0",
                inventory=Inventory(64, 1 << 40, gpus),
            ),
        )
        presence = cluster.presence_of(f"host-{number}")
        presence.session, presence.liveness = 1, Liveness.READY if number % 10 else Liveness.SUSPECT
    for number in range(jobs):
        job_id = f"job-{number}"
        fold(
            cluster,
            ev.JobSubmitted(
                job_id=job_id,
                at=Wall(2.0),
                owner="ann",
                request_id="",
                display_name="train",
                labels={},
                gang=GANG,
                spec_json="{}",
            ),
        )
        if number < hosts // 2:
            uuids = tuple(f"GPU-{number}-{index}" for index in range(GPUS))
            fold(
                cluster,
                ev.JobPlaced(
                    job_id=job_id, at=Wall(3.0), attempt=1, generation=1, places=(Place(f"host-{number}", uuids),)
                ),
            )
        elif number % 2:
            fold(cluster, ev.JobEnding(job_id=job_id, at=Wall(3.0), outcome=JobState.EXPIRED))
            fold(cluster, ev.JobEnded(job_id=job_id, at=Wall(3.0), state=JobState.EXPIRED))
    return cluster


def main() -> None:
    """Print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--hosts", type=int, default=1_000)
    options = parser.parse_args()
    cluster = model(options.jobs, options.hosts)
    now = Now(Mono(1000.0), Wall(1000.0))
    meter = Meter(cluster)
    page = Exposition(FAMILIES, lambda: (meter.series, gauges(cluster, now)))
    read, whole = [], []
    for _ in range(RUNS):
        began = time.process_time()
        gauges(cluster, now)
        read.append(time.process_time() - began)
        began = time.process_time()
        text, _ = page.text()
        whole.append(time.process_time() - began)
    sizes = f"{options.jobs:,} jobs, {options.hosts:,} hosts, {options.hosts * GPUS:,} GPUs"
    print(f"{sizes}; CPU: median, least of {RUNS}")
    print(f"  reading the model   {median(read) * 1e3:6.1f} ms {min(read) * 1e3:6.1f} ms")
    print(f"  the whole page      {median(whole) * 1e3:6.1f} ms {min(whole) * 1e3:6.1f} ms, {len(text):,} bytes")


if __name__ == "__main__":
    main()
