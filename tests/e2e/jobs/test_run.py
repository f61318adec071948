"""``holdfast run`` on two hosts: what the command exits with, and what is told of the job on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, Watcher, exits, gone, rank_pids, until

ONCE = ("--max-restarts", "0")
SLEEP = "exec sleep 600"


# Exit status


@pytest.mark.parametrize(
    ("restarts", "script", "status"),
    [
        ("0", "exit 7", 7),
        # Of the last generation: 5 at first, then 7.
        ("1", "exit $((3 + 2 * HOLDFAST_GENERATION))", 7),
        ("0", "kill -TERM $$", 143),
        ("0", "kill -KILL $$", 137),
        ("0", "kill -SEGV $$", 139),
        ("0", "exit 255", 255),
        ("5", "exit 0", 0),
    ],
)
def test_status_is_that_of_the_job(cluster: DevCluster, restarts: str, script: str, status: int) -> None:
    done = cluster.holdfast("run", "--max-restarts", restarts, "--", "sh", "-c", script, check=False)
    assert done.returncode == status, done.stderr


@pytest.mark.parametrize(
    ("code", "launches", "why"),
    [
        (
            "import nosuchmodule",
            1,
            "before any progress, in a way that a new try would not change; it is not tried again",
        ),
        ("raise ValueError('no shard')", 2, "in the same way twice, each time before any progress was seen"),
    ],
)
def test_a_typo_is_not_launched_again_and_again(cluster: DevCluster, code: str, launches: int, why: str) -> None:
    done = cluster.holdfast("run", "--replicas", "2", "--gpus", "2", "--", sys.executable, "-c", code, check=False)
    assert done.returncode == 1
    assert f"It failed {why}" in done.stderr
    assert cluster.job(cluster.ask(lambda client: client.newest_jobs(1))[0].id)["generation"] == launches


STARTS = "import os, random, sys, time, warnings; pid = os.getpid()"
DIES_EARLY = {
    # As JAX: its warnings hold process ids and times, and come while it is imported.
    "jax": f"""{STARTS}
for n in range(3):
    print(f"W{{n}} {{pid}} {{random.random()}} {{chr(97 + pid % 26) * 8}} cuda_dnn.cc: no cuDNN", file=sys.stderr)
    time.sleep(1)
raise ValueError(f"Incompatible shapes for broadcasting: ({{pid}}, 4) and (8, 4).")""",
    "out of memory": f"""{STARTS}
print("world of 8", pid, flush=True)
time.sleep(2.5)
print("step 0", flush=True)
class OutOfMemoryError(RuntimeError): pass
raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {{random.choice(['2.00 GiB', '512 MiB'])}}.")""",
    "data": f"""{STARTS}
for n in range(501):
    if n % 50 == 0:
        print(f"step {{n}} loss 2.5", flush=True)
    time.sleep(0.008)
raise RuntimeError(f"cannot identify image file {{pid}}")""",
}


def test_the_same_error_at_the_start_is_final_whatever_the_program_printed_before(cluster: DevCluster) -> None:
    jobs = {name: cluster.detach("--", sys.executable, "-c", code) for name, code in DIES_EARLY.items()}
    for name in ("jax", "out of memory"):
        assert cluster.reach(jobs[name], "FAILED", timeout=120)["generation"] == 2, name
    until(lambda: cluster.job(jobs["data"])["generation"] > 2, what="for a third launch of what had trained")
    cluster.end(jobs["data"])


def test_a_port_that_another_program_gives_back_is_waited_for(cluster: DevCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = (
            f"import socket, time; time.sleep(0.5); socket.create_server(('127.0.0.1', {taken.getsockname()[1]}))"
        )
        job = cluster.detach("--", sys.executable, "-c", bind)
        until(lambda: cluster.job(job)["generation"] > 2, what="for a third launch")
    cluster.reach(job, "SUCCEEDED")


def test_status_is_that_of_the_rank_that_failed_first(cluster: DevCluster, tmp_path: Path) -> None:
    others_ready = "until [ -e 0 -a -e 1 -a -e 2 ]; do sleep 0.02; done"
    script = (
        f"[ $RANK = 3 ] && {others_ready} && exit 7; trap 'exit 9' TERM; touch $RANK; while :; do sleep 0.05; done"
    )
    args = ("run", "--replicas", "2", "--gpus", "2", *ONCE, "--", "sh", "-c", script)
    done = cluster.holdfast(*args, cwd=tmp_path, check=False)
    assert done.returncode == 7, done.stderr
    job = cluster.job(cluster.ask(lambda client: client.newest_jobs(1))[0].id)
    assert (exits(job)[3]["reason"], exits(job)[3]["exitCode"]) == ("NONZERO_EXIT", 7)
    assert [(exits(job)[rank]["reason"], exits(job)[rank]["exitCode"]) for rank in (0, 1, 2)] == [
        ("STOPPED", 9)
    ] * 3
    assert job["error"]["exitCode"] == 7
    assert "workerpool1-0" in done.stderr


def test_first_failing_rank_is_shown(cluster: DevCluster) -> None:
    script = f"if [ $RANK = 1 ]; then echo out of one; echo woe >&2; exit 3; fi; echo zero; {SLEEP}"
    done = cluster.holdfast("run", "--gpus", "2", *ONCE, "--", "sh", "-c", script, check=False)
    assert done.returncode == 3
    assert "zero" in done.stdout
    assert "[workerpool0-0 r1] out of one" in done.stdout
    assert "[workerpool0-0 r1] woe" in done.stderr


def test_timeout_is_124(cluster: DevCluster) -> None:
    done = cluster.holdfast("run", "--timeout", "1s", "--", "sh", "-c", SLEEP, check=False)
    assert done.returncode == 124
    assert "timeout of 1s" in done.stderr


def test_cancel_is_130(cluster: DevCluster) -> None:
    with cluster.typing("run", "--", "sh", "-c", SLEEP) as run:
        run.says("generation 1 is running")
        job = cluster.ask(lambda client: client.newest_jobs(1))[0].id
        cluster.holdfast("cancel", job)
        assert run.ends() == 130
    shown = cluster.job(job)
    assert shown["state"] == "JOB_STATE_CANCELLED"
    assert (exits(shown)[0]["reason"], exits(shown)[0]["signal"], exits(shown)[0]["exitCode"]) == (
        "STOPPED",
        15,
        None,
    )
    # Twice is the same as once.
    assert cluster.holdfast("cancel", job).returncode == 0


def test_ctrl_c_leaves_and_the_job_runs_on(cluster: DevCluster) -> None:
    with cluster.typing("run", "--", "sh", "-c", f"echo hello; {SLEEP}") as run:
        run.says("generation 1 is running")
        job = cluster.ask(lambda client: client.newest_jobs(1))[0].id
        pids = rank_pids(cluster.job(job))
        run.process.send_signal(signal.SIGINT)
        assert run.ends() == 0
        said = run.err.read_text()
    assert f"holdfast logs -f {job}" in said
    assert f"holdfast cancel {job}" in said
    assert not gone(pids.values())
    assert cluster.job(job)["state"] == "JOB_STATE_RUNNING"
    cluster.end(job)


def test_detach_prints_the_id_and_nothing_else(cluster: DevCluster) -> None:
    done = cluster.holdfast("run", "--detach", "--", "true")
    assert re.fullmatch(r"\S+\n", done.stdout)
    assert cluster.reach(done.stdout.strip(), "SUCCEEDED")["generation"] == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("run",), "COMMAND"),
        (("run", "--gpus", "-1", "--", "true"), "--gpus"),
        (("run", "--replicas", "0", "--", "true"), "--replicas"),
        (("run", "--no-such-option", "--", "true"), "--no-such-option"),
        (("run", "--env", "NOT_SET_ANYWHERE", "--", "true"), "NOT_SET_ANYWHERE"),
        (("run", "--env", "=x", "--", "true"), "--env"),
        (("run", "--timeout", "soon", "--", "true"), "soon"),
        (("run", "--gpus", "2", "--processes-per-worker", "2", "--", "torchrun", "x.py"), "torchrun starts its"),
        (("run", "--processes-per-worker", "2", "--", "python3", "-m", "torch.distributed.run", "x"), "starts its"),
        (("job", "show"), "JOB"),
        (("no-such-command",), "no-such-command"),
    ],
)
def test_wrong_usage_is_2(cluster: DevCluster, args: tuple[str, ...], says: str) -> None:
    before = len(cluster.ask(lambda client: client.newest_jobs(1000)))
    done = cluster.holdfast(*args, check=False)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert len(cluster.ask(lambda client: client.newest_jobs(1000))) == before


# What can't be started


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("no-such-program", "'no-such-program' is not on the worker's PATH"),
        ("/no/such/program", "/no/such/program does not exist"),
        ("./plain", "./plain is not an executable file"),
        ("./orphan", "its interpreter /no/such/interpreter does not exist"),
    ],
)
def test_program_that_cannot_start_is_named_with_its_host(
    cluster: DevCluster, tmp_path: Path, command: str, says: str
) -> None:
    (tmp_path / "plain").write_text("plain\n")
    (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
    (tmp_path / "orphan").chmod(0o755)
    done = cluster.holdfast("run", "--replicas", "2", "--", command, cwd=tmp_path, check=False)
    assert done.returncode == 125, done.stderr
    assert says in done.stderr
    assert "no output" not in done.stderr
    assert ".." not in done.stderr
    job = cluster.job(cluster.ask(lambda client: client.newest_jobs(1))[0].id)
    assert job["state"] == "JOB_STATE_FAILED"
    assert job["generation"] == 1, "starting it again changes nothing"
    assert job["error"]["exitCode"] is None
    failed = [e for e in exits(job).values() if e["reason"] == "CANNOT_START"]
    assert failed
    for each in failed:
        assert (each["exitCode"], each["signal"]) == (None, None)
        assert says in each["message"]
        assert re.search(r"\bhost-[01]\b", each["message"]), each
    assert re.search(r"could not be started: .*\bhost-[01]\b", job["error"]["message"])


def test_directory_missing_on_a_host_is_named_with_it(cluster: DevCluster) -> None:
    done = cluster.holdfast("run", "--workdir", "/no/such/place", "--", "true", check=False)
    assert done.returncode == 125
    assert re.search(r"host-[01]: the working directory /no/such/place does not exist", done.stderr)
    job = cluster.job(cluster.ask(lambda client: client.newest_jobs(1))[0].id)
    assert [e["reason"] for e in exits(job).values()] == ["CANNOT_START"]


# Signals


def kernels_core_flag(shell: str, cwd: Path) -> bool:
    """Whether the kernel says that this dumped core; it depends on the machine's core_pattern."""
    child = subprocess.Popen(["sh", "-c", shell], cwd=cwd, stdin=subprocess.DEVNULL)
    _, status = os.waitpid(child.pid, 0)
    child.returncode = 0
    assert os.WTERMSIG(status) == signal.SIGSEGV
    return os.WCOREDUMP(status)


@pytest.mark.parametrize("cores", [False, True])
def test_signal_and_core_are_in_show_and_stream_within_a_second(
    cluster: DevCluster, tmp_path: Path, cores: bool
) -> None:
    """Ranks start with a core limit of 0; one that wants cores raises its own."""
    limit = "ulimit -c unlimited; " if cores else ""
    script = f"{limit}echo ready; until [ -e go ]; do sleep 0.02; done; kill -SEGV $$"
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "go").touch()
    expected = kernels_core_flag(f"ulimit -c 0 -S; {script}", tmp_path / "reference")
    if not cores and Path("/proc/sys/kernel/core_pattern").read_text()[0] != "|":
        assert not expected
    job_id = cluster.detach(*ONCE, "--", "sh", "-c", script, cwd=tmp_path)
    pid = rank_pids(cluster.reach(job_id, "RUNNING"))[0]
    with Watcher(cluster, job_id) as watcher, cluster.typing("job", "watch", job_id, "-o", "json") as typed:
        cluster.until(lambda: watcher.of("GangStarted") and "GangStarted" in typed.out.read_text())
        (tmp_path / "go").touch()
        cluster.until(lambda: gone([pid]))
        died = time.monotonic()
        cluster.until(lambda: watcher.of("RankExited") and "RankExited" in typed.out.read_text())
        shown = exits(cluster.job(job_id))[0]
        took = time.monotonic() - died
        assert took < 1
        cluster.until(lambda: watcher.ended)
        assert typed.ends() == 0
    (event,) = watcher.of("RankExited")
    (line,) = [e for e in map(json.loads, typed.out.read_text().splitlines()) if e["type"] == "RankExited"]
    assert line == event
    assert event["event"]["kind"] == "rank_exited"
    assert event["event"]["exit"]["signal"] == 11
    streamed = event["data"]["exit"]
    assert (streamed["signal"], streamed["core_dumped"], streamed["reason"]) == (11, expected, "SIGNALED")
    assert streamed["exit_code"] is None
    assert "signal 11" in event["message"]
    assert shown == {
        "attempt": 1,
        "generation": 1,
        "rank": 0,
        "exitCode": None,
        "signal": 11,
        "coreDumped": expected,
        "reason": "SIGNALED",
        "message": shown["message"],
        "endTime": shown["endTime"],
        "lateExit": None,
        "raised": None,
        "hostFault": False,
    }
    printed = json.loads(cluster.holdfast("job", "show", job_id, "-o", "json").stdout)
    assert printed["workers"][0]["exits"] == [shown]
    assert "SIGSEGV" in cluster.holdfast("job", "show", job_id).stdout


def test_json_of_show_has_every_promised_field(cluster: DevCluster) -> None:
    job_id = cluster.detach("--replicas", "2", "--gpus", "2", "--", "sh", "-c", SLEEP)
    cluster.reach(job_id, "RUNNING")
    shown = json.loads(cluster.holdfast("job", "show", job_id, "-o", "json").stdout)
    assert shown["state"] == "JOB_STATE_RUNNING"
    assert (shown["attempt"], shown["generation"], shown["waitReason"], shown["recoveries"]) == (1, 1, "", [])
    assert shown["jobSpec"]["workerPoolSpecs"][1]["replicaCount"] == 1
    assert [worker["name"] for worker in shown["workers"]] == ["workerpool0-0", "workerpool1-0"]
    for number, worker in enumerate(shown["workers"]):
        assert sorted(worker) == sorted(("name", "host", "state", "shimPid", "gpus", "ranks", "exits", "warm"))
        assert (worker["state"], worker["exits"], len(set(worker["gpus"]))) == ("RUNNING", [], 2)
        assert [(r["rank"], r["localRank"]) for r in worker["ranks"]] == [(2 * number, 0), (2 * number + 1, 1)]
        for pid in (worker["shimPid"], *(r["pid"] for r in worker["ranks"])):
            os.kill(pid, 0)
    listed = json.loads(cluster.holdfast("ps", "-o", "json").stdout)
    # What is said of its health and its end, and the summary with it, may have changed between the two calls.
    moving = {"health", "summary", "expectedEnd"}
    assert listed[-1].keys() == shown.keys() - {"workers"} and listed[-1].keys() > moving
    assert {k: v for k, v in listed[-1].items() if k not in moving} == {
        k: v for k, v in shown.items() if k not in {*moving, "workers"}
    }
    assert listed[-1]["summary"].keys() == shown["summary"].keys()
    assert [job["createTime"] for job in listed] == sorted(job["createTime"] for job in listed)
    cluster.end(job_id)


def test_recovery_is_told_with_its_phases(cluster: DevCluster) -> None:
    script = "[ $HOLDFAST_GENERATION = 2 ] || exit 4"
    job_id = cluster.detach("--", "sh", "-c", script)
    shown = cluster.reach(job_id, "SUCCEEDED")
    (recovery,) = shown["recoveries"]
    assert sorted(recovery["phases"]) == ["catchUp", "detect", "diagnose", "start", "stop"]
    assert recovery["phases"].pop("catchUp") is None, "of a job whose steps nobody knows"
    assert all(0 <= seconds < 10 for seconds in recovery["phases"].values())
    fixed = ("attempt", "generation", "startType", "endReason", "endRelatedTask", "endRecover")
    assert [recovery[name] for name in fixed] == [
        1,
        2,
        "RESTARTED",
        "NONZERO_EXIT",
        "workerpool0-0 rank 0",
        "PROC_RESTART",
    ]
    assert 0 < recovery["lostSeconds"] < 10
    assert recovery["startedAt"] <= recovery["endedAt"]


def test_rendezvous_secret_is_in_no_output(cluster: DevCluster) -> None:
    done = cluster.holdfast("run", "--", "sh", "-c", "echo $HOLDFAST_RENDEZVOUS_SECRET")
    secret = done.stdout.strip()
    assert len(secret) >= 32
    job_id = cluster.ask(lambda client: client.newest_jobs(1))[0].id
    for command in ("watch", "show", "events"):
        assert secret not in cluster.holdfast("job", command, job_id, "-o", "json").stdout
    assert secret not in (cluster.dir / "controller.log").read_text()


@pytest.mark.require("root")
def test_a_job_runs_as_the_account_that_its_user_is_mapped_to(cluster: DevCluster) -> None:
    """Root's own, as nobody else may enter a dev cluster's folder."""
    refused = cluster.holdfast("run", "--run-as", "root", "--", "id", check=False)
    assert refused.returncode == 2
    assert "--run-as: admin is mapped to no account" in refused.stderr
    cluster.holdfast("user", "set", "admin", "--run-as", "games", "--run-as", "root")
    try:
        assert "games, root" in cluster.holdfast("user", "list").stdout
        ran = cluster.holdfast("run", "--run-as", "root", "--", "sh", "-c", "id -u; echo $USER")
        assert ran.stdout.splitlines() == ["0", "root"]
        [job_id] = re.findall(r"job (\S+):", ran.stderr)
        assert "admin, runs as root" in cluster.holdfast("job", "show", job_id).stdout
        assert cluster.job(job_id)["account"] == "root"
        failed = cluster.holdfast("run", "--", "id", check=False)
        assert failed.returncode == 125
        assert "games has uid" in failed.stderr and "those below 1000 are the system's" in failed.stderr
    finally:
        cluster.holdfast("user", "set", "admin", "--no-run-as")
