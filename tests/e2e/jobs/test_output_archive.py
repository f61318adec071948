"""Output of ranks is copied to the base output directory while they run, and what they save has directories there."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml
from tests.e2e.cli_cluster import DevCluster


def submit(cluster: DevCluster, base: Path, script: str) -> str:
    """A job of two workers that keeps its results below ``base``; its id."""
    pool = {"replicaCount": 1, "processSpec": {"command": ["sh", "-c", script]}}
    job = {
        "workerPoolSpecs": [pool, pool],
        "successPolicy": "ALL",
        "baseOutputDirectory": {"outputUriPrefix": str(base)},
        "faultTolerance": {"maxWorkerRestarts": 1},
    }
    text = yaml.safe_dump({"displayName": "out", "jobSpec": job})
    return str(cluster.holdfast("submit", "-", input=text).stdout.strip())


def archived(base: Path, job_id: str) -> dict[str, str]:
    """Whole files below the base; what is being copied has another name until it is whole."""
    found = (base / "rank-logs" / job_id).glob("g*/*.out")
    return {f"{path.parent.name}/{path.name}": path.read_text() for path in found}


def test_output_of_every_generation_is_archived_and_a_failure_is_on_the_jobs_page(
    cluster: DevCluster, tmp_path: Path
) -> None:
    script = "echo rank $RANK of generation $HOLDFAST_GENERATION; [ $HOLDFAST_GENERATION = 2 ] || exit $RANK"
    good, bad = tmp_path / "results", tmp_path / "file"
    bad.write_text("in the way")
    first = submit(cluster, good, script)
    second = submit(cluster, bad, script)
    for job_id in (first, second):
        assert cluster.reach(job_id, "SUCCEEDED", "FAILED", timeout=90)["state"] == "JOB_STATE_SUCCEEDED"
    whole = {
        f"g{generation}/workerpool{rank}-0.r{rank}.out": f"rank {rank} of generation {generation}\n"
        for generation in (1, 2)
        for rank in (0, 1)
    }
    cluster.until(lambda: len(archived(good, first)) == 4, 60)
    found = archived(good, first)
    assert found.keys() == whole.keys()
    assert found["g2/workerpool1-0.r1.out"] == whole["g2/workerpool1-0.r1.out"]
    assert cluster.job(first)["archiveProblems"] == {}

    problem = f"{bad}: File exists; tried again"
    told = {"workerpool0-0": problem, "workerpool1-0": problem}
    cluster.until(lambda: cluster.job(second)["archiveProblems"] == told, 60)
    assert f"archive     workerpool0-0: {bad}: File exists" in cluster.holdfast("job", "show", second).stdout
    bad.unlink()
    cluster.until(lambda: cluster.job(second)["archiveProblems"] == {}, 90)
    assert archived(bad, second).keys() == whole.keys()


def test_output_is_in_the_archive_while_the_job_runs_and_its_result_directories_are_there(
    cluster: DevCluster, tmp_path: Path
) -> None:
    script = (
        "echo up; for d in $AIP_MODEL_DIR $AIP_CHECKPOINT_DIR $AIP_TENSORBOARD_LOG_DIR; do"
        " echo kept > ${d}r$RANK || exit 1; done; exec sleep 600"
    )
    base = tmp_path / "results"
    job_id = submit(cluster, base, script)
    cluster.reach(job_id, "RUNNING")
    cluster.until(lambda: set(archived(base, job_id).values()) == {"up\n"} and len(archived(base, job_id)) == 2, 90)
    assert cluster.job(job_id)["state"] == "JOB_STATE_RUNNING"
    for folder in ("model", "checkpoints", "logs"):
        assert sorted(path.name for path in (base / folder).iterdir()) == ["r0", "r1"], "and nothing of ours"
    cluster.end(job_id)


def test_logs_of_a_host_that_is_gone_come_from_the_archive(cluster: DevCluster, tmp_path: Path) -> None:
    script = "for i in 1 2 3; do echo $RANK line $i; done; exec sleep 600"
    base = tmp_path / "results"
    job_id = submit(cluster, base, script)
    job = cluster.reach(job_id, "RUNNING")
    host = job["workers"][1]["host"]
    cluster.until(lambda: archived(base, job_id).get("g1/workerpool1-0.r1.out", "").count("\n") == 3, 90)
    cluster.kill_agent(host)
    try:
        cluster.until(lambda: "is not connected" in cluster.holdfast("logs", job_id, "--rank", "1").stderr, 60)
        whole = cluster.holdfast("logs", job_id, "--rank", "1")
        assert whole.stdout == "1 line 1\n1 line 2\n1 line 3\n"
        assert f"workerpool1-0 rank 1: {host} is not connected; from the archive, read on host-" in whole.stderr
        assert "the archive ends here; it was written last at 20" in whole.stderr
        assert cluster.holdfast("logs", job_id, "--rank", "1", "--tail", "1").stdout == "1 line 3\n"
        assert cluster.holdfast("logs", job_id, "--rank", "1", "--since", "1h").stdout == whole.stdout
        both = cluster.holdfast("logs", job_id)
        assert "[workerpool0-0 r0] 0 line 1" in both.stdout and "[workerpool1-0 r1] 1 line 1" in both.stdout
    finally:
        cluster.restart()
    cluster.end(job_id)


def test_logs_that_a_host_no_longer_has_come_from_the_archive(cluster: DevCluster, tmp_path: Path) -> None:
    base = tmp_path / "results"
    job_id = submit(cluster, base, "echo $RANK was here")
    cluster.reach(job_id, "SUCCEEDED")
    cluster.until(lambda: len(archived(base, job_id)) == 2 and all(archived(base, job_id).values()), 60)
    for folder in cluster.dir.glob(f"hosts/*/**/{job_id}/g1"):
        shutil.rmtree(folder)
    read = cluster.holdfast("logs", job_id, "--rank", "0")
    assert read.stdout == "0 was here\n"
    assert "has no output of rank 0 of generation 1; from the archive, read on host-" in read.stderr.replace(
        "1.;", "1;"
    )
