"""Job files of small shell programs for the stories of a job's life, and what the stories ask of a job."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tests.e2e.cli_cluster import DevCluster, Json

STAY = "exec sleep 600"
TELL = "echo $HOLDFAST_ATTEMPT $HOLDFAST_GENERATION $RANK $HOLDFAST_HOST $$ >> runs; "
"""Has each rank leave a line in ``runs``, see there."""


class Run(NamedTuple):
    """A rank that was started."""

    attempt: int
    generation: int
    rank: int
    host: str
    pid: int


def runs(folder: Path) -> list[Run]:
    """Every rank that has left its line in ``folder``, by generation and rank."""
    file = folder / "runs"
    words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return sorted((Run(int(a), int(g), int(r), h, int(p)) for a, g, r, h, p in words), key=lambda run: run[1:3])


def python(program: str) -> str:
    """A line of shell that becomes ``program``."""
    return f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}"


def job_file(
    folder: Path,
    script: str,
    *,
    workers: int = 2,
    gpus: int = 1,
    memory_mb: int = 0,
    command: list[str] | None = None,
    scheduling: Json | None = None,
    name: str = "job",
    success: str = "ALL",
    **fault_tolerance: Any,
) -> Path:
    """A job of ``workers`` workers with ``gpus`` GPUs and one rank each, which run ``script`` in ``folder``."""
    words = [word.replace("$", "$$") for word in command or ["sh", "-c", script]]
    pool = {
        "replicaCount": 1,
        "machineSpec": {
            **({"acceleratorCount": gpus} if gpus else {}),
            **({"memoryMb": memory_mb} if memory_mb else {}),
        },
        "processSpec": {"command": words[:1], "args": words[1:], "workingDirectory": str(folder)},
    }
    pools = [pool, {**pool, "replicaCount": workers - 1}] if workers > 1 else [pool]
    spec = {
        "workerPoolSpecs": pools,
        "successPolicy": success,
        "scheduling": {"gracePeriod": "5s", **(scheduling or {})},
        "faultTolerance": fault_tolerance,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"displayName": name, "jobSpec": spec}))
    return path


def submit(cluster: DevCluster, folder: Path, script: str, **options: Any) -> str:
    """The id of a job that ``job_file`` describes."""
    out: str = cluster.holdfast("submit", str(job_file(folder, script, **options))).stdout
    return out.strip()


def newest(cluster: DevCluster) -> str:
    """The id of the job that was submitted last."""
    return cluster.ask(lambda client: client.newest_jobs(1))[0].id


def hosts_of(job: Json) -> dict[str, str]:
    """The host of each worker."""
    return {worker["name"]: worker["host"] for worker in job["workers"]}


def pids_of(job: Json) -> dict[str, int]:
    """The pid of each worker's first rank."""
    return {worker["name"]: worker["ranks"][0]["pid"] for worker in job["workers"]}


def answers(job: Json) -> list[tuple[str, str, str, str]]:
    """What each recovery tells: type of start, reason, task, what was done."""
    names = ("startType", "endReason", "endRelatedTask", "endRecover")
    return [tuple(recovery[name] for name in names) for recovery in job["recoveries"]]


def ends(job: Json) -> dict[tuple[int, int], str]:
    """The reason of every end so far, by (generation, rank); fails on a rank with two."""
    found = [e for worker in job["workers"] for e in worker["exits"]]
    by_rank = {(e["generation"], e["rank"]): e["reason"] for e in found}
    assert len(by_rank) == len(found), found
    return by_rank
