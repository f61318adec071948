"""Series of real ranks: from a real agent, through a real controller, to what users are shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.cli_cluster import DevCluster, until

FAILS = """
import pathlib, sys, time
while not pathlib.Path("fail").exists():
    sum(range(100_000))
    time.sleep(0.02)
sys.exit(3)
"""
"""Works for some part of its time: all of it would be taken from the tests beside it."""


def pages(cluster: DevCluster, job_id: str, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.holdfast("job", "series", job_id, "-o", "json", *more).stdout)
    return found


def failed(cluster: DevCluster, folder: Path, *, looks: int) -> str:
    """Run a job until its agent has written down so often what it saw, each ten seconds, and have it fail."""
    folder.mkdir()
    job_id = cluster.detach("--max-restarts", "0", "--", sys.executable, "-c", FAILS, cwd=folder)
    until(lambda: cluster.job(job_id)["workers"] and cluster.job(job_id)["workers"][0]["state"] == "RUNNING")
    seen: set[int] = set()

    def looked() -> bool:
        written = (cluster.dir / "hosts").glob(f"*/state/workers/{job_id}/workerpool0-0/baseline.json")
        seen.update(path.stat().st_mtime_ns for path in written)
        return len(seen) >= looks

    until(looked, what="for samples")
    (folder / "fail").touch()
    until(lambda: cluster.job(job_id)["state"] == "JOB_STATE_FAILED")
    until(lambda: pages(cluster, job_id)[0]["recordings"], what=f"for a recording of {job_id}")
    return job_id


def test_a_failing_exit_has_a_recording_also_after_the_series_were_deleted(
    cluster: DevCluster, tmp_path: Path
) -> None:
    job_id = failed(cluster, tmp_path / "first", looks=2)
    (one,) = pages(cluster, job_id)[0]["recordings"]
    assert (one["name"], one["rank"]) == ("exit-1-workerpool0-0", 0)
    (page,) = pages(cluster, job_id, "--recording", one["name"])
    assert page["step"] == 2
    shown = {series["figure"]: series["mean"] for series in page["series"]}
    assert any(value is not None and value > 0.01 for value in shown["cpu"])
    assert "power" not in shown  # these GPUs don't tell
    assert one["name"] in cluster.holdfast("job", "series", job_id).stdout
    (database,) = cluster.dir.rglob("series.db")
    database.unlink()
    again = failed(cluster, tmp_path / "second", looks=1)
    assert pages(cluster, job_id)[0]["recordings"] == []
    assert cluster.job(again)["state"] == "JOB_STATE_FAILED"
