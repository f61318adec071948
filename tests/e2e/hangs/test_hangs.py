"""Jobs that hang on two hosts: found from the outside, explained, relaunched in place; left alone where asked."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster, exits, gone, rank_pids, started

from holdfast import dev

EXAMPLES = Path(__file__).parents[3] / "examples"
Job = dict[str, Any]

# Four ranks, of which the last goes astray in the generations that the first argument counts; the rest wait for it.
PROGRAM = """
import os, sys, time
generation, rank = int(os.environ["HOLDFAST_GENERATION"]), int(os.environ["RANK"])

def goes_astray():
    time.sleep(3600)

def waits_for_peers():
    source, _ = os.pipe()
    os.read(source, 1)

reached = 10 * generation if sys.argv[2:] else 10
for step in range(reached - 5, reached):
    print(f"step={step}", flush=True)
    time.sleep(0.05)
if generation <= int(sys.argv[1]):
    goes_astray() if rank == 3 else waits_for_peers()
"""
ALWAYS = "99"


# --- Jobs that hang -----------------------------------------------------------------------------------------------


def submit(cluster: DevCluster, program: list[str], *, detection: Job, env: Job | None = None, **more: Job) -> str:
    """A job of two workers with two ranks each; its id. Thresholds are shortened by ``detection``."""
    process = {"command": program, "env": [{"name": k, "value": v} for k, v in (env or {}).items()]}
    worker = {"replicaCount": 1, "machineSpec": {"acceleratorCount": 2}, "processesPerWorker": 2}
    workers = [worker | {"processSpec": process}] * 2
    tolerance = {"hangDetection": {"floor": "5s"} | detection, **more}
    job = {"workerPoolSpecs": workers, "successPolicy": "ALL", "faultTolerance": tolerance}
    text = yaml.safe_dump({"displayName": "hangs", "jobSpec": job})
    return str(cluster.holdfast("submit", "-", input=text).stdout.strip())


def astray(cluster: DevCluster, *args: str, **detection: Any) -> str:
    """The small program with start-ups of at most eight seconds."""
    wishes = {"startupTimeout": "8s", "stepPattern": r"step=(\d+)"} | detection
    return submit(cluster, [sys.executable, "-c", PROGRAM, *args], detection=wishes)


def sees(cluster: DevCluster, job_id: str, condition: Callable[[Job], object], timeout: float = 60) -> Job:
    """Wait until ``condition`` holds of the job; the job."""
    found: list[Job] = []

    def holds() -> object:
        found.append(cluster.job(job_id))
        return condition(found[-1])

    cluster.until(holds, timeout)
    return found[-1]


def noticed(number: int) -> Callable[[Job], bool]:
    return lambda job: len(job["hangs"]) >= number


def judged(number: int) -> Callable[[Job], bool]:
    return lambda job: len(job["hangs"]) >= number and bool(job["hangs"][number - 1]["outcome"])


def hangs(cluster: DevCluster, job_id: str) -> Job:
    """As ``holdfast job hangs -o json`` prints it."""
    found: Job = json.loads(cluster.holdfast("job", "hangs", job_id, "-o", "json").stdout)
    return found


def check_relaunch(job: Job, before: Job) -> Job:
    """One hang by rank 3 and one relaunch in place, which is no restart of the job; the hang."""
    (hang,) = job["hangs"]
    print("hang:", hang)
    assert (hang["number"], hang["generation"], hang["outcome"]) == (1, 1, "RESTARTED")
    assert hang["suspects"] == ["workerpool1-0 rank 3"]
    assert hang["since"] <= hang["noticedAt"] <= hang["diagnosedAt"] <= hang["judgedAt"]
    assert (job["attempt"], job["generation"]) == (1, 2)
    for field in ("host", "gpus"):
        assert [w[field] for w in job["workers"]] == [w[field] for w in before["workers"]]
    assert {e["reason"] for e in exits(job, generation=1).values()} == {"HANG_KILLED"}
    assert sorted(exits(job, generation=1)) == [0, 1, 2, 3]
    assert [e["exitCode"] for e in exits(job).values()] == [0] * 4
    (recovery,) = job["recoveries"]
    assert (recovery["endReason"], recovery["endRecover"]) == ("HANG", "PROC_RESTART")
    assert recovery["endRelatedTask"] == "workerpool1-0 rank 3"
    assert all(recovery["phases"][phase] is not None for phase in ("detect", "diagnose", "stop", "start"))
    assert recovery["phases"]["detect"] > 4
    return dict(hang)


# --- Stories that go on by themselves while the first tests run ---------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Story:
    """A job on a cluster of its own, so that no other job's hang looks like a common cause."""

    cluster: DevCluster
    job_id: str
    before: Job


def begin(cluster: DevCluster, job_id: str) -> Story:
    return Story(cluster, job_id, cluster.reach(job_id, "RUNNING"))


@contextlib.contextmanager
def without_py_spy(directory: Path, **size: int) -> Iterator[DevCluster]:
    """A cluster whose daemons see neither py-spy nor pystack."""
    venv.create(directory / "venv", symlinks=True)
    library = sysconfig.get_paths()["purelib"]
    (found,) = (directory / "venv" / "lib").glob("python*/site-packages")
    (found / "beside.pth").write_text(f"import site; site.addsitedir({library!r})\n")
    cut = [
        p for p in os.environ["PATH"].split(":") if not any((Path(p) / t).exists() for t in ("py-spy", "pystack"))
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")} | {"PATH": ":".join(cut)}
    where, python = directory / "c", directory / "venv" / "bin" / "python"
    cluster = DevCluster(where, env | {"HOLDFAST_CONFIG": str(where / "client.toml"), "NO_COLOR": "1"})
    start = [str(python), "-m", "holdfast", "dev", "start", "--dir", str(where)]
    try:
        subprocess.run(
            [*start, *(f"--{k}={v}" for k, v in size.items())], env=env, check=True, capture_output=True, timeout=60
        )
        yield cluster
    finally:
        cluster.show_logs()
        if (where / "dev.toml").exists():
            dev.stop(where)
    assert cluster.left() == []


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Story]]:
    """``loader``, ``again``, ``blind`` and, with torch, ``mismatch``: begun at once, awaited by the last tests."""
    folder = tmp_path_factory.mktemp("stories")
    with contextlib.ExitStack() as clusters:
        loader = clusters.enter_context(started(folder / "loader", hosts=2, gpus=2))
        again = clusters.enter_context(started(folder / "again", hosts=2, gpus=2))
        (folder / "blind").mkdir()
        blind = clusters.enter_context(without_py_spy(folder / "blind", hosts=2, gpus=2))
        sizes = ["--epochs", "70", "--report-every", "10", "--step-time", "0.012"]
        fault = ["--hang-kind", "queue", "--hang-rank", "3", "--hang-step", "2300"]
        digits = [sys.executable, str(EXAMPLES / "digits" / "train.py"), *sizes, *fault]
        wishes = {"action": "RESTART", "startupTimeout": "20s"}
        digits += ["--checkpoint-dir", str(folder / "checkpoints")]
        begun = {
            "loader": begin(loader, submit(loader, digits, detection=wishes)),
            "again": begin(again, astray(again, ALWAYS, action="RESTART")),
            "blind": begin(blind, astray(blind, "1", action="RESTART")),
        }
        if importlib.util.find_spec("torch"):
            mismatch = clusters.enter_context(started(folder / "mismatch", hosts=2, gpus=2))
            begun["mismatch"] = begin(mismatch, ddp(mismatch, "mismatch", folder / "ddp"))
        yield begun


# --- PyTorch ------------------------------------------------------------------------------------------------------


def ddp(cluster: DevCluster, kind: str, checkpoints: Path, mode: str = "OFF") -> str:
    """The PyTorch example, which hangs at step 45; the job's id."""
    sizes = ["--epochs", "4", "--log-every", "1", "--checkpoint-every", "10", "--checkpoint-dir", str(checkpoints)]
    fault = ["--hang-kind", kind, "--hang-rank", "3", "--hang-step", "45"]
    return submit(
        cluster,
        [sys.executable, str(EXAMPLES / "ddp_torch" / "restartable.py"), *sizes, *fault],
        detection={"action": "RESTART", "startupTimeout": "15s"},
        env={"OMP_NUM_THREADS": "1"},
        warm={"mode": mode},
    )


def check_ddp(cluster: DevCluster, job_id: str, before: Job) -> Job:
    """Relaunched in place, on from the checkpoint, to its end; the hang."""
    job = cluster.reach(job_id, "SUCCEEDED", "FAILED", timeout=120)
    assert job["state"] == "JOB_STATE_SUCCEEDED", job["error"]
    out = cluster.holdfast("logs", "--rank", "0", job_id).stdout
    assert "rank=0 world_size=4 device=cpu from step 40" in out
    assert "done step=" in out
    return check_relaunch(job, before)


@pytest.mark.require("torch")
@pytest.mark.parametrize(("kind", "mode"), [("sleep", "IN_PROCESS"), ("stop", "OFF")])
def test_ddp_rank_that_hangs_is_named_and_the_gang_goes_on_from_its_checkpoint(
    cluster: DevCluster, tmp_path: Path, kind: str, mode: str
) -> None:
    job_id = ddp(cluster, kind, tmp_path, mode)
    hang = check_ddp(cluster, job_id, cluster.reach(job_id, "RUNNING"))
    (recovery,) = cluster.job(job_id)["recoveries"]
    assert recovery.get("inProcessRanks", 0) == (3 if mode == "IN_PROCESS" else 0)
    assert "workerpool1-0 rank 3 is in train.py" in hang["stacks"]
    assert "3 ranks wait in backward" in hang["stacks"]


# --- Hands off ----------------------------------------------------------------------------------------------------


def test_hang_is_told_and_nothing_killed_unless_the_job_asks_for_more(cluster: DevCluster) -> None:
    job_id = astray(cluster, ALWAYS)
    before = cluster.reach(job_id, "RUNNING")
    job = sees(cluster, job_id, judged(1))
    (hang,) = job["hangs"]
    assert hang["outcome"] == "WOULD_RESTART"
    assert hang["suspects"] == ["workerpool1-0 rank 3"]
    assert "goes_astray" in hang["stacks"]
    assert (job["state"], job["generation"], rank_pids(job)) == ("JOB_STATE_RUNNING", 1, rank_pids(before))
    assert not gone(rank_pids(job).values())
    assert "rank 3" in job["health"]
    cluster.end(job_id)
    ended = cluster.job(job_id)
    assert ended["state"] == "JOB_STATE_CANCELLED"
    assert ended["hangs"][0]["outcome"] == "WOULD_RESTART"
    types = [event["type"] for event in cluster.events(job_id)]
    assert [t for t in types if t.startswith("Hang")] == ["HangNoticed", "HangDiagnosed", "HangJudged"]
    assert gone(rank_pids(before).values())


def test_held_job_is_restarted_once_the_hold_ends_and_without_detection_nobody_looks(cluster: DevCluster) -> None:
    program = [sys.executable, "-c", PROGRAM, ALWAYS]
    unseen = submit_small(cluster, program)
    job_id = submit_small(cluster, [*program[:-1], "1"], action="RESTART", startupTimeout="8s")
    cluster.holdfast("job", "hang-action", job_id, "off", "--for", "1h")
    before = cluster.reach(job_id, "RUNNING")
    held = sees(cluster, job_id, judged(1))
    (hang,) = held["hangs"]
    assert hang["outcome"] == "WITHHELD"
    assert "held" in hang["note"]
    assert rank_pids(held) == rank_pids(before)
    assert held["heldUntil"]
    cluster.holdfast("job", "hang-action", job_id, "on")
    job = cluster.reach(job_id, "SUCCEEDED", "FAILED")
    assert (job["state"], job["generation"]) == ("JOB_STATE_SUCCEEDED", 2)
    assert job["hangs"][0]["outcome"] == "RESTARTED"
    silent = cluster.job(unseen)
    assert (silent["hangs"], silent["generation"], silent["state"]) == ([], 1, "JOB_STATE_RUNNING")
    cluster.end(unseen)


def submit_small(cluster: DevCluster, program: list[str], **detection: str) -> str:
    """A job of four ranks on one host, without GPUs, so that two fit beside each other."""
    worker = {"replicaCount": 1, "processesPerWorker": 4, "processSpec": {"command": program}}
    wishes = {"floor": "5s"} | (detection or {"action": "OFF"})
    job = {"workerPoolSpecs": [worker], "faultTolerance": {"hangDetection": wishes}}
    text = yaml.safe_dump({"displayName": "small", "jobSpec": job})
    return str(cluster.holdfast("submit", "-", input=text).stdout.strip())


# --- Daemons that die meanwhile -----------------------------------------------------------------------------------


def test_hangs_are_acted_on_though_daemons_die_at_every_rung(cluster: DevCluster) -> None:
    busy = "import time\nfor n in range(100000):\n print('step', n, flush=True); time.sleep(0.2)"
    healthy = submit_small(cluster, [sys.executable, "-c", busy], action="RESTART", startupTimeout="8s")
    job_id = astray(cluster, "3", "on", action="RESTART")
    cluster.reach(healthy, "RUNNING")
    untouched = rank_pids(cluster.job(healthy))
    cluster.reach(job_id, "RUNNING")

    # Nothing is noticed yet.
    cluster.kill("controller", "host-0")
    cluster.restart()
    sees(cluster, job_id, lambda job: noticed(1)(job) and job["generation"] == 2)

    # Noticed, and the dumps are being taken.
    sees(cluster, job_id, noticed(2))
    cluster.kill_controller()
    cluster.restart()
    between = sees(cluster, job_id, lambda job: job["generation"] == 3)
    assert between["hangs"][1]["outcome"] == "RESTARTED"

    # The agents that take them die. What they had learned is taken up, and they are asked again.
    sees(cluster, job_id, noticed(3))
    cluster.kill("host-0", "host-1")
    (path,) = cluster.dir.glob(f"hosts/*/state/workers/{job_id}/workerpool0-0/baseline.json")
    written, learned = path.stat().st_mtime_ns, json.loads(path.read_text())
    assert learned["generation"] in (2, 3)
    cluster.restart()
    cluster.until(lambda: path.stat().st_mtime_ns > written)
    if learned["generation"] == 3:
        assert json.loads(path.read_text())["lastProgressS"] == learned["lastProgressS"]
    job = cluster.reach(job_id, "SUCCEEDED", "FAILED")
    print("hangs:", job["hangs"])
    assert (job["state"], job["generation"]) == ("JOB_STATE_SUCCEEDED", 4)
    assert [hang["outcome"] for hang in job["hangs"]] == ["RESTARTED"] * 3
    assert [recovery["endRecover"] for recovery in job["recoveries"]][:2] == ["PROC_RESTART", "WORKER_RESCHEDULE"]
    assert all("goes_astray" in hang["stacks"] for hang in job["hangs"])
    assert [recovery["endReason"] for recovery in job["recoveries"]] == ["HANG"] * 3

    other = cluster.job(healthy)
    assert (other["state"], other["hangs"], rank_pids(other)) == ("JOB_STATE_RUNNING", [], untouched)
    cluster.end(healthy)


# --- The stories' ends --------------------------------------------------------------------------------------------


def test_data_loader_that_deadlocks_is_shown_and_left_behind(stories: dict[str, Story]) -> None:
    story = stories["loader"]
    cluster, job_id = story.cluster, story.job_id
    job = cluster.reach(job_id, "SUCCEEDED", "FAILED", timeout=150)
    assert job["state"] == "JOB_STATE_SUCCEEDED", job["error"]
    hang = check_relaunch(job, story.before)
    assert "next_batch" in hang["stacks"] or "data_loader.py" in hang["stacks"]
    out = cluster.holdfast("logs", "--rank", "0", job_id).stdout
    assert "rank=0 world_size=4 local_rank=0 generation=2 resumed from step 2200" in out
    assert "done step=" in out

    told = hangs(cluster, job_id)
    assert told["hangs"] == job["hangs"]
    assert told["evidence"]["number"] == 1
    kept = {worker["worker"]: worker["evidence"] for worker in told["evidence"]["workers"]}
    assert sorted(kept) == ["workerpool0-0", "workerpool1-0"]
    assert any(file.endswith("data_loader.py") for _, file, _ in kept["workerpool1-0"]["frames"])
    assert [r["rank"] for r in kept["workerpool1-0"]["ranks"]] == [2, 3]
    assert "data_loader.py" in cluster.holdfast("job", "hangs", job_id, "--full").stdout

    cluster.kill_controller()
    cluster.restart()
    assert hangs(cluster, job_id) == told


@pytest.mark.require("torch")
def test_ddp_rank_in_another_collective_than_its_peers_is_named(stories: dict[str, Story]) -> None:
    story = stories["mismatch"]
    hang = check_ddp(story.cluster, story.job_id, story.before)
    assert hang["stacks"] == (
        "mismatched collectives: workerpool1-0 rank 3 waits in barrier; 3 ranks wait in backward"
    )


def test_job_that_every_restart_leads_back_to_the_same_wait_is_left_as_it_is_and_says_so(
    stories: dict[str, Story],
) -> None:
    cluster, job_id = stories["again"].cluster, stories["again"].job_id
    job = sees(cluster, job_id, judged(4), timeout=150)
    print("hangs:", job["hangs"])
    assert (job["state"], job["generation"]) == ("JOB_STATE_RUNNING", 4)
    assert [hang["outcome"] for hang in job["hangs"]] == [*["RESTARTED"] * 3, "WITHHELD"]
    assert all(hang["suspects"] == ["workerpool1-0 rank 3"] for hang in job["hangs"])
    notes = [hang["note"] for hang in job["hangs"]]
    assert "was suspect" not in notes[0]
    assert "was suspect in hang 1 too: its work moves to another host if one is free" in notes[1]
    assert f"left as it is: end it with `holdfast job cancel {job_id}`" in notes[3]
    # The first time in place; from the second on the host that is suspect again is left where it can be.
    recoveries = [recovery["endRecover"] for recovery in job["recoveries"]]
    assert recoveries[:2] == ["PROC_RESTART", "WORKER_RESCHEDULE"]
    waited_s = [_seconds(hang["judgedAt"]) - _seconds(hang["since"]) for hang in job["hangs"]]
    assert waited_s == sorted(waited_s), "each time the job gets longer"
    cluster.end(job_id)


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def test_hang_is_acted_on_though_no_stack_can_be_read(stories: dict[str, Story]) -> None:
    cluster, job_id = stories["blind"].cluster, stories["blind"].job_id
    job = cluster.reach(job_id, "SUCCEEDED", "FAILED", timeout=90)
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    (hang,) = job["hangs"]
    assert hang["outcome"] == "RESTARTED"
    kept = hangs(cluster, job_id)["evidence"]["workers"]
    looks = [look for worker in kept for rank in worker["evidence"]["ranks"] for look in rank["process"]["looks"]]
    assert looks
    assert {look["python"]["problem"] for look in looks} == {"py-spy is not installed beside the agent"}
    assert "not installed" in cluster.holdfast("job", "hangs", job_id).stdout
