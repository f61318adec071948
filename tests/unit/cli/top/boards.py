"""Boards to draw: hosts, jobs and alerts as a controller lists them."""

from __future__ import annotations

from typing import Any

from holdfast.cli.top.board import Board
from holdfast.cli.top.frame import Look, frame
from holdfast.v1 import cluster_pb2, host_pb2, job_pb2

NOW = 1_700_000_000.0
SMALL = Look(80, 24, colour=False, unicode=True)
LARGE = Look(200, 60, colour=False, unicode=True)


def host(name: str, gpus: int = 2, *, job: str = "", problem: str = "", **fields: Any) -> host_pb2.Host:
    """A host; ``job`` holds its first GPU, the last one has the problem."""
    made = host_pb2.Host(name=name, **({"state": host_pb2.HOST_STATE_READY} | fields))
    for index in range(gpus):
        made.inventory.gpus.add(uuid=f"GPU-{name}-{index}", index=index, model="NVIDIA H100")
    if job:
        made.inventory.gpus[0].job_id = job
        made.job_ids.append(job)
    if problem:
        made.inventory.gpus[-1].problem = problem
    return made


def job(
    id: str, condition: str = "WORKS", headline: str = "Trains: step 5 of 10", *, age_s: float = 60, **fields: Any
) -> job_pb2.CustomJob:
    """A row of a list; waiting jobs are queued, jobs that have ended failed, all others run."""
    state = {"WAITS": "QUEUED", "ENDED": "FAILED"}.get(condition, "RUNNING")
    made = job_pb2.CustomJob(id=id, state=job_pb2.JobState.Value(f"JOB_STATE_{state}"), **fields)
    made.owner, made.gpu_count = made.owner or "ann", made.gpu_count or 8
    made.create_time.FromSeconds(int(NOW - age_s))
    made.summary.condition = job_pb2.JobCondition.Value(f"JOB_CONDITION_{condition}")
    made.summary.headline = made.summary.health = headline
    made.summary.happened, made.summary.advice = "Nothing went wrong", "Nothing"
    if state == "RUNNING":
        made.generation, made.step, made.step_total = 1, 5, 10
    return made


def alert(kind: str, subject: str, message: str) -> cluster_pb2.Attention:
    """A thing that needs attention, for a minute now."""
    made = cluster_pb2.Attention(
        kind=cluster_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}"), subject=subject, message=message
    )
    made.since.FromSeconds(int(NOW - 60))
    return made


def board(
    *rows: host_pb2.Host | job_pb2.CustomJob | cluster_pb2.Attention, cluster: str = "lab", **fields: Any
) -> Board:
    """A board with these rows, and the counts that fit them."""
    made = Board(**fields)
    status = cluster_pb2.GetStatusResponse(cluster=cluster, version="1.2.0", epoch=7)
    status.started.FromSeconds(int(NOW - 3600))
    for row in rows:
        match row:
            case host_pb2.Host():
                made.hosts[row.name] = row
            case job_pb2.CustomJob():
                made.jobs[row.id] = row
                state = job_pb2.JobState.Name(row.state).removeprefix("JOB_STATE_")
                status.jobs[state] += 1
            case _:
                status.attention.append(row)
    status.hosts["ready"] = len(made.hosts)
    status.gpus["free"] = sum(len(each.inventory.gpus) for each in made.hosts.values())
    made.status = status
    return made


def drawn(shown: Board, look: Look = SMALL) -> list[str]:
    """A frame of it, without blanks at the ends of lines."""
    return [line.rstrip() for line in frame(shown, NOW, look)]
