"""Cost of jobs that have ended: memory of each in the controller, whole and as a head, and the time to read one.

``python -m bench.costs.history [--jobs N]``: a plain job on one host, and one of eight workers that was restarted
twice. Memory is what Python's allocator holds for the state, the counts of stored bytes included.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
import tracemalloc
from pathlib import Path

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory, Place
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.snapshots import changed_entities
from holdfast_controller.shell.store.store import Store
from holdfast_controller.shell.store.stored_bytes import StoredBytes

GPUS, HOSTS = 8, 8
SPEC = (
    '{"workerPoolSpecs": [{"replicaCount": 1, "processSpec": {"command": ["python", "train.py", "--lr", "3e-4"]}}]}'
)
READS = 200


def hosts() -> list[ev.Event]:
    found: list[ev.Event] = []
    for n in range(HOSTS):
        gpus = tuple(Gpu(f"GPU-{n}-{i}", i, "H100", 80 << 30) for i in range(GPUS))
        inventory = Inventory(96, 1 << 40, gpus)
        joined = {
            "host": f"node-{n:03}",
            "address": "",
            "boot_id": "b",
            "agent_version": "1",
            "inventory": inventory,
        }
        found.append(ev.HostJoined(at=Wall(1.0), **joined))  # type: ignore[arg-type]
    return found


def life(number: int, workers: int, restarts: int) -> list[ev.Event]:
    """Events of one job from its submission to its end."""
    name, at = f"train-{number:06}-x7k2mq", 100.0 + 20.0 * number
    labels = {"team": "vision", "run": f"r{number}"} if restarts else {}
    gang = Gang((Pool(workers, Task(("python", "train.py", "--seed", str(number))), processes=GPUS, gpus=GPUS),))
    submitted = ev.JobSubmitted(
        job_id=name,
        at=Wall(at),
        owner=f"user{number % 40}",
        request_id=f"q{number}",
        display_name=f"train {number}",
        labels=labels,
        gang=gang,
        spec_json=SPEC + " " * (number % 7),
    )
    found: list[ev.Event] = [submitted]
    places = tuple(Place(f"node-{n:03}", tuple(f"GPU-{n}-{i}" for i in range(GPUS))) for n in range(workers))
    found.append(ev.JobPlaced(job_id=name, at=Wall(at + 1), attempt=1, generation=1, places=places))
    for generation in range(1, restarts + 2):
        rendezvous = Rendezvous("10.0.0.1", 29500, "s" * 32, ("10.0.0.1",) * workers, (29500,) * workers)
        found.append(ev.GangLaunched(job_id=name, at=Wall(at + 2), generation=generation, rendezvous=rendezvous))
        found.append(ev.GangStarted(job_id=name, at=Wall(at + 3), generation=generation, started={}))
        last = generation > restarts
        for rank in range(workers * GPUS):
            reason = ExitReason.COMPLETED if last else ExitReason.STOPPED
            gone = Exit(rank + 1, generation, rank, reason, 0 if last else None, end_time=at + 4.5)
            worker = f"workerpool0-{rank // GPUS}"
            found.append(ev.RankExited(job_id=name, at=Wall(at + 5), worker=worker, exit=gone))
        if not last:
            found.append(
                ev.RestartDecided(
                    job_id=name,
                    at=Wall(at + 6),
                    generation=generation + 1,
                    end_reason=EndReason.NONZERO_EXIT,
                    related=Related(),
                    stop_reason=ExitReason.STOPPED,
                    failed_at=Wall(at + 5),
                )
            )
    found.append(ev.JobEnding(job_id=name, at=Wall(at + 7), outcome=JobState.SUCCEEDED))
    found += [ev.WorkerEmptied(job_id=name, at=Wall(at + 8), worker=f"workerpool0-{n}") for n in range(workers)]
    return [*found, ev.JobEnded(job_id=name, at=Wall(at + 9), state=JobState.SUCCEEDED)]


class Controller:
    """The state of one, with its store."""

    def __init__(self, file: Path) -> None:
        self.store = Store(file)
        self.cluster: Cluster = self.store.call(self.store.open).result()
        self.stored = StoredBytes(self.cluster)

    def take(self, events: list[ev.Event]) -> None:
        """Fold events, keep them, and write a snapshot."""
        records = []
        for event in events:
            fold(self.cluster, event)
            job = self.cluster.jobs.head(getattr(event, "job_id", ""))
            name, entity = codec.stored_name(type(event)), codec.entity_of(event)
            said = message_of(event, self.cluster.jobs.whole.get(job.id) if job is not None else None)
            # Read from a database, a record has texts of its own.
            payload = codec.dump_event(event)
            records.append(
                Record(self.cluster.sequence, entity, name, codec.VERSIONS[name], event.at, "", said, payload)
            )
        self.store.call(self.store.commit, records).result()
        self.stored.on_published(records)
        changed = changed_entities(self.cluster, {record.entity for record in records})
        self.store.call(self.store.snapshot, self.cluster.sequence, *changed).result()
        self.cluster.bookings.usage.clear()
        self.cluster.bookings.statements.clear()
        self.cluster.bookings.hosts.clear()


def held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def measure(jobs: int, workers: int, restarts: int) -> tuple[float, float, float, float]:
    """Bytes of an ended job whole and as a head; bytes of one after a start; seconds to read one."""
    with tempfile.TemporaryDirectory() as folder:
        on = Controller(Path(folder) / "holdfast.db")
        on.take(hosts())
        for number in range(100):  # what is made once
            on.take(life(number, workers, restarts))
        tracemalloc.start()
        before = held()
        for number in range(100, 100 + jobs):
            on.take(life(number, workers, restarts))
        whole = (held() - before) / jobs
        while on.cluster.jobs.let_go(on.cluster.sequence, keep=0):
            pass
        head = (held() - before) / jobs
        on.store.close()
        tracemalloc.stop()
        names = list(on.cluster.jobs)
        del on
        gc.collect()
        tracemalloc.start()
        before = held()
        on = Controller(Path(folder) / "holdfast.db")
        again = (held() - before) / (jobs + 100)
        tracemalloc.stop()
        began = time.perf_counter()
        for name in names[:READS]:
            assert on.cluster.jobs[name].id == name
        took_s = (time.perf_counter() - began) / READS
        on.store.close()
        return whole, head, again, took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    jobs = parser.parse_args().jobs
    for name, workers, restarts in (("plain", 1, 0), ("eight workers, two restarts", 8, 2)):
        whole, head, again, took_s = measure(jobs, workers, restarts)
        print(
            f"{name}: {whole / 1000:.1f} kB whole, {head / 1000:.2f} kB as a head"
            f" ({again / 1000:.2f} kB after a start), {took_s * 1e6:.0f} us to read one"
        )


if __name__ == "__main__":
    main()
