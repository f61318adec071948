"""A job that hung twice, and what was recorded of it."""

from __future__ import annotations

from holdfast.hang.evidence.evidence import Dump, Evidence, Look, ProcessEvidence, RankEvidence, ThreadStack, Vector
from holdfast.hang.evidence.frames import Frame
from holdfast.v1 import job_pb2

START = 1_795_233_600
"""2026-11-21T04:00:00Z."""
WAITS = (Frame("all_reduce", "/x/site-packages/torch/distributed.py", 2810), Frame("train", "/jobs/train.py", 88))
ODD = (Frame("get", "/usr/lib/python3.12/queue.py", 171), Frame("fetch", "/jobs/data_loader.py", 212))


def hung_job() -> job_pb2.CustomJob:
    """Two workers with two ranks; rank 3 hung in generation 1, rank 1 hangs in generation 2."""
    job = job_pb2.CustomJob(id="j1", display_name="train", state=job_pb2.JOB_STATE_RUNNING, attempt=1, generation=2)
    job.create_time.FromSeconds(START)
    job.start_time.FromSeconds(START)
    for _ in range(2):
        job.job_spec.worker_pool_specs.add(replica_count=1, processes_per_worker=2)
    job.health = "no rank of 4 has moved for 45 s (longest before: 4 s), and all 4 GPUs are idle"
    for number in (1, 2):
        hang = job.hangs.add(
            number=number,
            generation=number,
            rule="GPUS_IDLE",
            sentence="no rank of 4 has moved for 31 s (longest before: 4 s), and all 4 GPUs are idle",
            step=120.0 * number,
        )
        base = START + 600 * number
        hang.since.FromSeconds(base)
        hang.noticed_at.FromSeconds(base + 31)
        hang.suspects.append("workerpool1-0 rank 3" if number == 1 else "workerpool0-0 rank 1")
    first = job.hangs[0]
    first.stacks = "workerpool1-0 rank 3 is in data_loader.py:212 `fetch`; 3 ranks wait in all_reduce"
    first.diagnosed_at.FromSeconds(START + 637)
    first.judged_at.FromSeconds(START + 661)
    first.outcome = "RESTARTED"
    recovery = job.recoveries.add(
        attempt=1,
        generation=2,
        start_type="RESTARTED",
        end_reason="HANG",
        end_related_task="workerpool1-0 rank 3",
        end_recover="PROC_RESTART",
    )
    recovery.started_at.FromSeconds(START + 661)
    recovery.ended_at.FromSeconds(START + 667)
    recovery.lost.FromSeconds(67)
    recovery.phases.detect.FromSeconds(31)
    recovery.phases.diagnose.FromSeconds(30)
    recovery.phases.stop.FromMilliseconds(5100)
    recovery.phases.start.FromMilliseconds(210)
    return job


def process(pid: int, frames: tuple[Frame, ...]) -> ProcessEvidence:
    """A process that was at the same place at both looks."""
    dump = Dump("py-spy", (ThreadStack(pid, "MainThread", frames, main=True),))
    vector = Vector("S", "futex_wait_queue", "futex", cpu_s=1.0, main_switches=7, threads=4)
    return ProcessEvidence(pid, "python train.py", (Look(0.0, vector, dump), Look(5.0, vector, dump)))


def evidence() -> list[Evidence]:
    """Of both workers; rank 3 is where no other is."""
    return [
        Evidence(
            "j1",
            worker,
            f"host-{pool}",
            1,
            START + 637.0,
            took_s=5.4,
            ranks=tuple(
                RankEvidence(
                    rank,
                    process(100 + rank, ODD if rank == 3 else WAITS),
                    suspect=rank == 3,
                    stdout=(f"step {120 + rank}",),
                )
                for rank in (2 * pool, 2 * pool + 1)
            ),
        )
        for pool, worker in enumerate(("workerpool0-0", "workerpool1-0"))
    ]
