"""Cost of the goodput ledger: time of an event in the fold with it and without it.

``python -m bench.costs.goodput [--workers N] [--restarts N]``: a gang that is restarted again and again.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from unittest.mock import patch

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold import allocation
from holdfast_controller.core.fold import job as job_fold
from holdfast_controller.core.goodput import fold as goodput
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.goodput import Progress, Reached
from holdfast_controller.core.model.hosts.host import Gpu, Inventory, Place
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import EndReason, Related

GPUS = 8
RUNS = 5


def story(workers: int, restarts: int) -> list[ev.Event]:
    """Events of hosts, then of one job with a worker on each."""
    gang = Gang((Pool(workers, Task(("python", "train.py")), processes=GPUS, gpus=GPUS),))
    events: list[ev.Event] = []
    for n in range(workers):
        gpus = tuple(Gpu(f"G{n}-{i}", i, "H100", 80 << 30) for i in range(GPUS))
        inventory = Inventory(96, 1 << 40, gpus)
        joined = {"host": f"h{n}", "address": "", "boot_id": "b", "agent_version": "1", "inventory": inventory}
        events.append(ev.HostJoined(at=Wall(1.0), **joined))  # type: ignore[arg-type]
    submitted = {"owner": "ann", "request_id": "", "display_name": "", "labels": {}, "gang": gang, "spec_json": ""}
    events.append(ev.JobSubmitted(job_id="a", at=Wall(1.0), **submitted))  # type: ignore[arg-type]
    places = tuple(Place(f"h{n}", tuple(f"G{n}-{i}" for i in range(GPUS))) for n in range(workers))
    events.append(ev.JobPlaced(job_id="a", at=Wall(2.0), attempt=1, generation=1, places=places))
    rendezvous, at = Rendezvous("", 1, "", ("",) * workers, (1,) * workers), 3.0
    for generation in range(1, restarts + 1):
        events.append(ev.GangLaunched(job_id="a", at=Wall(at), generation=generation, rendezvous=rendezvous))
        events.append(ev.GangStarted(job_id="a", at=Wall(at + 1), generation=generation, started={}))
        for rank in range(workers * GPUS):
            gone = Exit(1, generation, rank, ExitReason.STOPPED, end_time=at + 99)
            worker = f"workerpool0-{rank // GPUS}"
            events.append(ev.RankExited(job_id="a", at=Wall(at + 100), worker=worker, exit=gone))
        began, last = Reached(round(at * 1000) + 5000, 1.0), Reached(round(at * 1000) + 99_000, 90.0)
        progress = Progress(
            since=round(at * 1000) + 1000, until=round(at * 1000) + 100_000, began=began.at, first=began, last=last
        )
        events.append(ev.ProgressRecorded(job_id="a", at=Wall(at + 100), generation=generation, progress=progress))
        events.append(
            ev.RestartDecided(
                job_id="a",
                at=Wall(at + 100),
                generation=generation + 1,
                end_reason=EndReason.NONZERO_EXIT,
                related=Related(),
                stop_reason=ExitReason.STOPPED,
                failed_at=Wall(at + 99),
            )
        )
        at += 110
    return events


def seconds(events: list[ev.Event]) -> float:
    """Seconds that folding the events takes."""
    cluster = Cluster()
    began = time.perf_counter()
    for event in events:
        job_fold.fold(cluster, event)
    return time.perf_counter() - began


def main() -> None:
    """Print the time of an event with and without the ledger."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=128)
    parser.add_argument("--restarts", type=int, default=40)
    given = parser.parse_args()
    events = story(given.workers, given.restarts)
    whole = median(seconds(events) for _ in range(RUNS))
    with (
        patch.object(goodput, "take", lambda *_: None),
        patch.object(allocation, "on_hold", lambda *_: None),
        patch.object(allocation, "on_let_go", lambda *_: None),
    ):
        without = median(seconds(events) for _ in range(RUNS))
    count, micro = len(events), 1e6
    print(f"{count} events, {given.workers} workers: {whole / count * micro:.2f} us an event with the ledger")
    print(f"{without / count * micro:.2f} us without, {(whole - without) / count * micro:.2f} us are the ledger's")


if __name__ == "__main__":
    main()
