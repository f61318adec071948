"""Many jobs on a real cluster: labels, names, lists, reruns, waiting, and cancelling all that belong together."""

from __future__ import annotations

import json
import re
import signal
import sys

import pytest
from tests.e2e.cli_cluster import DevCluster, started
from tests.support.typist import typing

SLEEP = ("--", "sleep", "600")


@pytest.fixture(scope="module")
def sweep(cluster: DevCluster) -> dict[str, str]:
    """Three jobs of a sweep that run, by the value that they try."""
    return {
        lr: cluster.detach("--name", f"tuning {lr}", "--label", "sweep=a", "--label", f"lr={lr}", *SLEEP)
        for lr in ("0.1", "0.2", "0.3")
    }


def names(cluster: DevCluster, *words: str) -> list[str]:
    out: str = cluster.holdfast("job", "list", "-o", "name", *words).stdout
    return out.split()


def test_jobs_are_found_by_label_name_state_and_age(cluster: DevCluster, sweep: dict[str, str]) -> None:
    ids = list(sweep.values())
    for job in ids:
        cluster.reach(job, "RUNNING")
    assert names(cluster, "--label", "sweep=a") == ids
    assert names(cluster, "--label", "sweep=a", "--label", "lr=0.2") == [sweep["0.2"]]
    assert names(cluster, "--name", "tuning *", "--since", "1h") == ids
    assert names(cluster, "--name", "g 0.3", "--label", "sweep=a") == [sweep["0.3"]]
    assert names(cluster, "--label", "sweep=a", "--state", "running", "--state", "failed") == ids
    assert names(cluster, "--label", "sweep=a", "--since", "2099-01-01T00:00:00Z") == []
    assert names(cluster, "--label", "sweep=a", "--mine") == ids
    shown = cluster.holdfast("ps", "--mine", "--label", "sweep=a", "--label", "lr=0.2").stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["ID", sweep["0.2"]]
    assert cluster.holdfast("ps", "-a", "--label", "sweep=a", "-o", "name").stdout.split() == ids
    none = cluster.holdfast("ps", "--label", "sweep=nowhere")
    assert (none.stdout, none.stderr) == ("", "No job matches.\n")


def test_submit_adds_labels_to_those_of_the_file(cluster: DevCluster) -> None:
    file = cluster.dir.parent / "labelled.yaml"
    file.write_text(
        json.dumps(
            {
                "displayName": "labelled",
                "labels": {"team": "nlp", "kept": "yes"},
                "jobSpec": {"workerPoolSpecs": [{"replicaCount": 1, "processSpec": {"command": ["true"]}}]},
            }
        )
    )
    job = cluster.holdfast("submit", str(file), "--label", "team=vision").stdout.strip()
    assert cluster.job(job)["labels"] == {"team": "vision", "kept": "yes"}


def test_every_command_takes_a_name_or_the_beginning_of_an_id(cluster: DevCluster, sweep: dict[str, str]) -> None:
    job = sweep["0.1"]
    cluster.reach(job, "RUNNING")
    for line in ("job show", "job events", "job recoveries", "job hangs", "logs", "job restart"):
        cluster.holdfast(*line.split(), "tuning 0.1")
    cluster.holdfast("job", "hang-action", "tuning 0.1", "off", "--for", "1h")
    assert cluster.holdfast("job", "show", job[:-1], "-o", "name").stdout.strip() == job
    refused = cluster.holdfast("job", "show", "tuning", check=False)
    assert refused.returncode == 125
    assert "'tuning' may mean any of 3 jobs" in refused.stderr and all(
        job in refused.stderr for job in sweep.values()
    )


def test_a_job_is_run_again_with_changes(cluster: DevCluster, sweep: dict[str, str]) -> None:
    show = "import os; print(os.environ['LR'], os.environ['KEPT'])"
    words = ("--env", "LR=0.1", "--env", "KEPT=yes", "--label", "rerun=x", "--", sys.executable, "-c", show)
    first = cluster.detach("--name", "tried", *words)
    cluster.reach(first, "SUCCEEDED")
    done = cluster.holdfast("job", "rerun", "tried", "--env", "LR=0.2", "--gpus", "1", "--wait", "--priority", "2")
    assert done.stdout == "0.2 yes\n"
    for line in (
        "processSpec.env.LR: 0.1 → 0.2",
        "acceleratorCount: not set → 1",
        "scheduling.priority: not set → 2",
    ):
        assert line in done.stderr
    (second,) = names(cluster, "--label", f"rerun-of={first}")
    made = cluster.job(second)
    assert made["displayName"] == "tried" and made["labels"]["rerun"] == "x"
    third = cluster.holdfast(
        "job", "rerun", second, "--detach", "--", "sh", "-c", "echo $LR; exit 7"
    ).stdout.strip()
    assert cluster.holdfast("wait", third, check=False).returncode == 7
    assert cluster.holdfast("logs", third).stdout == cluster.holdfast("job", "logs", third).stdout == "0.2\n"
    more = cluster.holdfast("job", "rerun", first, "--replicas", "2", "--wait", "--all")
    assert sorted(more.stdout.splitlines()) == ["[workerpool0-0 r0] 0.1 yes", "[workerpool1-0 r1] 0.1 yes"]


def test_secrets_stay_references_in_a_rerun(cluster: DevCluster) -> None:
    cluster.holdfast("secret", "set", "rerun-key", input="hidden-value")
    first = cluster.detach("--secret", "KEY=rerun-key", "--", "sh", "-c", "test $KEY = hidden-value")
    again = cluster.holdfast("job", "rerun", first, "--wait")
    assert "unchanged" in again.stderr and "hidden-value" not in again.stderr + again.stdout


def test_waiting_for_several_says_how_each_ended(cluster: DevCluster, sweep: dict[str, str]) -> None:
    well = cluster.detach("--", "true")
    first = cluster.detach("--max-restarts", "0", "--", "sh", "-c", "exit 3")
    cluster.reach(first, "FAILED")
    second = cluster.detach("--max-restarts", "0", "--", "sh", "-c", "sleep 1; exit 4")
    done = cluster.holdfast("wait", second, well, first, check=False)
    assert done.returncode == 3, "the job that failed first, in whatever order they are named"
    assert sorted(line.split()[:2] for line in done.stdout.splitlines()) == sorted(
        [[well, "SUCCEEDED"], [first, "FAILED"], [second, "FAILED"]]
    )
    data = cluster.holdfast("wait", second, well, "-o", "json", check=False)
    assert data.returncode == 4
    assert {each["id"]: each["state"] for each in json.loads(data.stdout)} == {
        well: "JOB_STATE_SUCCEEDED",
        second: "JOB_STATE_FAILED",
    }
    assert cluster.holdfast("wait", sweep["0.1"], well, "--any").stdout.split()[:2] == [well, "SUCCEEDED"]
    late = cluster.holdfast("wait", sweep["0.1"], "--timeout", "1s", check=False)
    assert late.returncode == 124 and f"not ended yet: {sweep['0.1']}" in late.stderr


def test_waiting_for_a_label_counts_those_that_have_ended(cluster: DevCluster, sweep: dict[str, str]) -> None:
    label = ("--label", "trial=w")
    early = cluster.detach(*label, "--max-restarts", "0", "--", "sh", "-c", "exit 3")
    cluster.reach(early, "FAILED")
    well = cluster.detach(*label, "--", "sh", "-c", "sleep 1")
    done = cluster.holdfast("wait", *label, check=False)
    assert done.returncode == 3, "a job that failed before anyone waited counts too"
    assert {line.split()[0] for line in done.stdout.splitlines()} == {early, well}
    assert cluster.holdfast("wait", *label, "--label", "sweep=a", check=False).returncode == 125
    later = cluster.holdfast("wait", *label, "--since", "2099-01-01T00:00:00Z", check=False)
    assert later.returncode == 125 and "No job of yours matches" in later.stderr
    for words in ((), (well, *label), (well, "--since", "1h")):
        assert cluster.holdfast("wait", *words, check=False).returncode == 2


def test_jobs_with_a_label_are_paused_resumed_and_deleted(cluster: DevCluster) -> None:
    label = ("--label", "trial=p", "--yes")
    jobs = [cluster.detach(*label[:2], *SLEEP) for _ in range(2)]
    for job in jobs:
        cluster.reach(job, "RUNNING")
    assert cluster.holdfast("job", "pause", *label[:2], check=False).returncode == 2, "no terminal to ask on"
    cluster.holdfast("job", "pause", *label)
    for job in jobs:
        cluster.reach(job, "PAUSED")
    assert "nothing is paused" in cluster.holdfast("job", "pause", *label).stderr
    assert "nothing is deleted" in cluster.holdfast("job", "delete", *label).stderr
    cluster.holdfast("job", "resume", *label)
    for job in jobs:
        cluster.reach(job, "RUNNING")
    cluster.end(*jobs)
    deleted = cluster.holdfast("job", "delete", *label).stderr
    assert all(f"job {job} is deleted" in deleted for job in jobs)


def test_waiting_outlives_a_restart_of_the_controller(cluster: DevCluster) -> None:
    over = cluster.dir.parent / "over"
    job = cluster.detach(
        "--max-restarts", "0", "--", "sh", "-c", f"until [ -e {over} ]; do sleep 0.1; done; exit 5"
    )
    with cluster.typing("wait", job) as waiting:
        waiting.says("waiting for 1 job")
        cluster.reach(job, "RUNNING")
        cluster.kill_controller()
        waiting.says("waiting for the controller")
        cluster.restart()
        over.touch()
        assert waiting.ends() == 5
        assert waiting.out.read_text().startswith(f"{job}  FAILED")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)])
def test_a_run_that_is_ended_says_that_its_job_goes_on(cluster: DevCluster, number: int, status: int) -> None:
    with cluster.typing("run", "--name", "goes on", *SLEEP) as typed:
        typed.says("is running")
        typed.process.send_signal(number)
        assert typed.ends() == status
        said = typed.err.read_text()
    job = re.findall(r"job (\S+) keeps running", said)[0]
    assert f"holdfast logs -f {job}" in said and f"holdfast cancel {job}" in said
    assert cluster.job(job)["state"] == "JOB_STATE_RUNNING"
    cluster.end(job)


def test_jobs_with_a_label_are_cancelled_once_the_user_agrees(cluster: DevCluster, sweep: dict[str, str]) -> None:
    refused = cluster.holdfast("cancel", "--label", "lr=0.3", check=False)
    assert refused.returncode == 2 and "--yes" in refused.stderr
    said, status = answering(cluster, "n\r", "cancel", "--label", "sweep=a")
    assert status == 0 and "nothing is cancelled" in said and "these 3 jobs" in said
    said, status = answering(cluster, "y\r", "cancel", "--label", "lr=0.3")
    assert status == 0 and f"job {sweep['0.3']} is being cancelled" in said
    cluster.reach(sweep["0.3"], "CANCELLED")
    done = cluster.holdfast("cancel", "--label", "sweep=a", "--yes")
    assert sweep["0.3"] not in done.stderr
    for lr in ("0.1", "0.2"):
        assert f"job {sweep[lr]} is being cancelled" in done.stderr
        cluster.reach(sweep[lr], "CANCELLED")
    assert "no active job of yours matches" in cluster.holdfast("cancel", "--label", "sweep=a", "--yes").stderr


def test_all_of_ones_own_jobs_are_cancelled_together(cluster: DevCluster) -> None:
    jobs = [cluster.detach(*SLEEP) for _ in range(3)]
    assert "being cancelled" in cluster.holdfast("cancel", "--all-mine", "--yes").stderr
    for job in jobs:
        cluster.reach(job, "CANCELLED")
    assert names(cluster, "--active") == []


@pytest.mark.parametrize(
    "words", [(), ("x", "--all-mine"), ("--all-mine", "--label", "a=b"), ("x", "--label", "a=b")], ids=" ".join
)
def test_a_choice_that_could_be_two_things_cancels_nothing(cluster: DevCluster, words: tuple[str, ...]) -> None:
    assert cluster.holdfast("cancel", *words, "--yes", check=False).returncode == 2


def test_the_dev_cluster_says_whether_it_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("status") / "c"
    with started(folder, hosts=1, gpus=0) as cluster:
        where = ("dev", "status", "--dir", str(folder))
        job = cluster.detach(*SLEEP)
        cluster.reach(job, "RUNNING")
        shown = cluster.holdfast(*where).stdout
        assert "Active jobs: 1 RUNNING" in shown and f"HOLDFAST_CONFIG={folder}/client.toml" in shown
        found = json.loads(cluster.holdfast(*where, "-o", "json").stdout)
        assert found["running"] and found["jobs"] == {"RUNNING": 1}
        assert {each["name"]: each["pid"] for each in found["daemons"]} == cluster.pids()
        cluster.kill_agent("host-0")
        partly = cluster.holdfast(*where, check=False)
        assert partly.returncode == 3 and "not running" in partly.stdout
        cluster.restart()
        cluster.holdfast("dev", "stop", "--dir", str(folder))
        stopped = cluster.holdfast(*where, check=False)
        assert stopped.returncode == 3 and "is not running" in stopped.stdout
        nowhere = cluster.holdfast("dev", "status", "--dir", str(folder / "none"), check=False)
        assert nowhere.returncode == 3 and "There is no dev cluster" in nowhere.stdout


def answering(cluster: DevCluster, keys: str, *words: str) -> tuple[str, int]:
    """Run the command line on a terminal where ``keys`` answer its question; its words and status."""
    with typing(["-m", "holdfast", *words], cluster.env) as typist:
        typist.sees("[y/N]")
        typist.types(keys)
        status = typist.ends()
    return typist.said, status
