"""A gang that has to be in one rack, on real hosts: it waits for its rack, and stays there when a host is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.e2e.cli_cluster import DevCluster, gone, started
from tests.e2e.lifecycle_jobs import STAY, TELL, hosts_of, pids_of, submit

RACKS = {f"host-{number}": {"rack": rack} for number, rack in enumerate("abaab")}
FIRST, SECOND = "workerpool0-0", "workerpool1-0"
NEAR = {"placement": {"within": "rack", "mode": "REQUIRED"}}


def with_topology(cluster: DevCluster) -> None:
    """Give the controller its levels, as an admin does."""
    settings = cluster.dir / "controller.toml"
    settings.write_text('topology = ["rack"]\n' + settings.read_text())
    cluster.kill_controller()
    cluster.restart()


def test_a_lost_host_s_worker_goes_on_in_the_rack_of_the_others(tmp_path: Path) -> None:
    with started(tmp_path / "cluster", hosts=5, gpus=1, labels=RACKS) as cluster:
        wrong = cluster.holdfast("run", "--detach", "--replicas", "2", "--", "true")
        assert wrong.returncode == 0, "without levels all is as before"
        with_topology(cluster)
        options = {"gpus": 1, "scheduling": NEAR}
        job_id = submit(cluster, tmp_path, f"{TELL} {STAY}", workers=3, **options)
        before = cluster.reach(job_id, "RUNNING", timeout=120)
        assert set(hosts_of(before).values()) == {"host-0", "host-2", "host-3"}, "rack a, and never rack b"
        second = submit(cluster, tmp_path, f"{TELL} {STAY}", workers=2, name="next", **options)
        assert set(hosts_of(cluster.reach(second, "RUNNING", timeout=120)).values()) == {"host-1", "host-4"}
        third = submit(cluster, tmp_path, "true", workers=2, name="third", **options)
        cluster.until(lambda: cluster.job(third)["waitReason"], 60)
        cluster.holdfast("cancel", second)
        cluster.reach(third, "SUCCEEDED", timeout=120)
        cluster.holdfast("cancel", third, check=False)
        lost = hosts_of(before)[FIRST]
        worker = next(each for each in before["workers"] if each["host"] == lost)
        cluster.kill_agent(lost)
        os.kill(worker["shimPid"], signal.SIGKILL)
        os.kill(pids_of(before)[FIRST], signal.SIGKILL)
        cluster.until(lambda: gone([worker["shimPid"], pids_of(before)[FIRST]]))
        cluster.holdfast("host", "fence", lost, "--yes-it-is-off")
        cluster.until(lambda: "within one rack" in cluster.job(job_id)["waitReason"], 120)
        assert cluster.job(job_id)["state"] == "JOB_STATE_QUEUED", "rack b is free, and too small; it waits"
        cluster.restart()
        cluster.holdfast("host", "uncordon", lost, check=False)
        after = cluster.reach(job_id, "RUNNING", timeout=120)
        assert set(hosts_of(after).values()) == {"host-0", "host-2", "host-3"}
        cluster.end(job_id)


def test_levels_that_the_cluster_has_not_are_refused_by_name(tmp_path: Path) -> None:
    with started(tmp_path / "cluster", hosts=1, gpus=2, labels={"host-0": {"rack": "a"}}) as cluster:
        path = tmp_path / "job.yaml"
        pool = "{replicaCount: 1, machineSpec: {acceleratorCount: 1}, processSpec: {command: ['true']}}"
        scheduling = "scheduling: {placement: {within: row}}"
        path.write_text(f"displayName: x\njobSpec:\n  {scheduling}\n  workerPoolSpecs: [{pool}, {pool}]\n")
        said = cluster.holdfast("submit", str(path), check=False)
        assert said.returncode == 2
        assert "placement.within: names a level, and the cluster has none" in said.stderr
        with_topology(cluster)
        said = cluster.holdfast("submit", str(path), check=False)
        typed = cluster.holdfast(
            "run", "--within", "row", "--replicas", "2", "--gpus", "1", "--", "true", check=False
        )
        assert "--within: row is no level of the cluster's topology (use one of rack)" in typed.stderr
        cluster.holdfast("run", "--within", "rack", "--replicas", "2", "--gpus", "1", "--", "true")
        assert "placement.within: row is no level of the cluster's topology (use one of rack)" in said.stderr
