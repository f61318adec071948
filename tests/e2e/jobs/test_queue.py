"""Jobs that wait and say why, hosts that take no work, restarts by hand, and the output of it all."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.e2e.cli_cluster import DevCluster, exits, gone, rank_pids, started

SLEEP = ("--", "sleep", "600")
WHOLE = ("--replicas", "2", "--gpus", "2", "--processes-per-worker", "1")
EXPECTED = re.compile(
    r"expected to start (by .+ at the latest, when .+ runs out of time|about .+, from how long earlier runs of .+ took)"
    r"(; given up at .+ if that comes first \(--max-wait\))?"
)
MEGABYTES_10 = 10 * (1 << 20)


def listed(cluster: DevCluster) -> dict[str, dict[str, str]]:
    return {job["id"]: job for job in json.loads(cluster.holdfast("ps", "-o", "json").stdout)}


def test_second_job_waits_with_its_reason_and_starts_when_the_first_ends(cluster: DevCluster) -> None:
    first = cluster.detach(*WHOLE, *SLEEP)
    cluster.reach(first, "RUNNING")
    second = cluster.detach("--gpus", "1", "--name", "second", "--", "true")
    third = cluster.detach("--gpus", "1", "--name", "third", "--", "true")
    beside = cluster.detach("--name", "beside", "--", "true")
    waiting = listed(cluster)
    assert waiting[second]["state"] == "JOB_STATE_QUEUED"
    lacks, _, start = waiting[second]["waitReason"].partition("; ")
    assert lacks == "needs 1 GPU on one host (0 free on the best)"
    # Other tests may have run the same program in this cluster: then its run times say when, not the timeout.
    assert EXPECTED.fullmatch(start), start
    assert second in waiting[third]["waitReason"], "first come, first served"
    cluster.reach(beside, "SUCCEEDED")
    table = cluster.holdfast("ps").stdout
    (line,) = [line for line in table.splitlines() if line.startswith(second)]
    assert "QUEUED" in line and "0 free on the best" in line
    assert "0 free on the best" in cluster.holdfast("job", "show", second).stdout
    with cluster.typing("logs", "-f", second) as logs:
        logs.says("0 free on the best")
        cluster.holdfast("cancel", first)
        assert logs.ends() == 0
    for job in (second, third):
        assert cluster.reach(job, "SUCCEEDED")["waitReason"] == ""
    freed = min(e["cursor"] for e in cluster.events(first) if e["type"] == "WorkerEmptied")
    (placed,) = [e["cursor"] for e in cluster.events(second) if e["type"] == "JobPlaced"]
    assert freed < placed


def test_ps_names_the_quota_that_a_job_waits_for(tmp_path: Path) -> None:
    with started(tmp_path / "cluster", hosts=1, gpus=2) as cluster:
        settings = cluster.dir / "controller.toml"
        settings.write_text(settings.read_text() + '\n[quotas."*"]\ngpus = 1\n')
        cluster.kill_controller()
        cluster.restart()
        first = cluster.detach("--gpus", "1", *SLEEP)
        cluster.reach(first, "RUNNING")
        second = cluster.detach("--gpus", "1", "--max-wait", "1s", "--", "true")
        third = cluster.detach("--gpus", "1", "--", "true")
        time.sleep(3)  # longer than the second may wait for hosts
        for job, words in ((second, "uses 1 of its 1 GPUs"), (third, "jobs ahead wait for 1 more")):
            assert listed(cluster)[job]["waitReason"].startswith("over quota: project default ")
            (line,) = [line for line in cluster.holdfast("ps").stdout.splitlines() if line.startswith(job)]
            assert "QUEUED" in line and "Over quota" in line and words in line
        cluster.holdfast("cancel", first)
        for job in (second, third):
            cluster.reach(job, "SUCCEEDED")


def test_job_that_waits_longer_than_it_may_expires_and_says_for_what(cluster: DevCluster) -> None:
    first = cluster.detach(*WHOLE, *SLEEP)
    cluster.reach(first, "RUNNING")
    with cluster.typing("run", "--gpus", "2", "--max-wait", "2s", "--", "true") as waits:
        waits.says("job true")
        assert waits.ends(60) == 124
        assert "0 free on the best" in waits.err.read_text()
    expired = list(listed(cluster).values())[-1]
    assert expired["state"] == "JOB_STATE_EXPIRED"
    cluster.end(first)


def test_waiting_job_can_be_cancelled(cluster: DevCluster) -> None:
    first = cluster.detach(*WHOLE, *SLEEP)
    cluster.reach(first, "RUNNING")
    with cluster.typing("run", "--gpus", "2", "--", "true") as waits:
        waits.says("job true")
        second = next(iter(reversed(listed(cluster))))
        cluster.holdfast("cancel", second)
        assert waits.ends() == 130
    shown = cluster.job(second)
    assert (shown["state"], shown["attempt"], shown["generation"]) == ("JOB_STATE_CANCELLED", 0, 0)
    cluster.end(first)


def test_cordoned_host_takes_no_new_work_and_keeps_what_it_has(cluster: DevCluster) -> None:
    running = cluster.detach(*WHOLE, *SLEEP)
    pids = rank_pids(cluster.reach(running, "RUNNING")).values()
    cluster.holdfast("host", "cordon", "host-0", "--reason", "a new disk")
    hosts = {host["name"]: host for host in json.loads(cluster.holdfast("host", "list", "-o", "json").stdout)}
    assert (hosts["host-0"]["cordoned"], hosts["host-0"]["cordonReason"]) == (True, "a new disk")
    assert not hosts["host-1"]["cordoned"]
    assert not gone(pids)
    cluster.end(running)
    done = [cluster.detach("--gpus", "1", "--", "true") for _ in range(3)]
    for job in done:
        assert [worker["host"] for worker in cluster.reach(job, "SUCCEEDED")["workers"]] == ["host-1"]
    waits = cluster.detach(*WHOLE, "--", "true")
    assert cluster.job(waits)["state"] == "JOB_STATE_QUEUED"
    assert "1 of 2 workers would fit now" in cluster.job(waits)["waitReason"]
    cluster.holdfast("host", "uncordon", "host-0")
    cluster.reach(waits, "SUCCEEDED")
    # Twice is the same as once.
    assert cluster.holdfast("host", "uncordon", "host-0").returncode == 0


def test_all_hosts_cordoned_is_a_reason(cluster: DevCluster) -> None:
    for host in ("host-0", "host-1"):
        cluster.holdfast("host", "cordon", host)
    job = cluster.detach("--", "true")
    assert "no host takes work" in listed(cluster)[job]["waitReason"]
    for host in ("host-0", "host-1"):
        cluster.holdfast("host", "uncordon", host)
    cluster.reach(job, "SUCCEEDED")


def test_restart_by_hand_launches_the_next_generation_on_the_same_hosts(cluster: DevCluster) -> None:
    job = cluster.detach(*WHOLE, "--", "sh", "-c", "echo generation $HOLDFAST_GENERATION; exec sleep 600")
    before = cluster.reach(job, "RUNNING")
    with cluster.typing("logs", "-f", "--rank", "0", job) as logs:
        cluster.until(lambda: logs.out.read_text() == "generation 1\n")
        cluster.holdfast("job", "restart", job)
        cluster.until(lambda: logs.out.read_text() == "generation 1\ngeneration 2\n")
        after = cluster.reach(job, "RUNNING")
        assert gone(rank_pids(before).values())
        assert (after["attempt"], after["generation"]) == (1, 2)
        for field in ("host", "gpus"):
            assert [w[field] for w in after["workers"]] == [w[field] for w in before["workers"]]
        assert {e["reason"] for e in exits(after, generation=1).values()} == {"STOPPED"}
        assert after["recoveries"][0]["endReason"] == "RESTART_REQUESTED"
        cluster.end(job)
        assert logs.ends() == 0
    refused = cluster.holdfast("job", "restart", job, check=False)
    assert refused.returncode == 125
    assert "CANCELLED" in refused.stderr


# Output

PRINTS = """
import os, sys, time
g, r = os.environ["HOLDFAST_GENERATION"], os.environ["RANK"]
for n in range(100):
    print(f"g{g} r{r} {n}")
print(f"g{g} r{r} woe", file=sys.stderr)
if g == "1":
    while not os.path.exists("others"):
        time.sleep(0.02)
    sys.exit(3)
"""


def test_logs_of_every_rank_and_generation_can_be_read_apart(cluster: DevCluster, tmp_path: Path) -> None:
    args = ("--gpus", "2", "--", sys.executable, "-c", PRINTS)
    job = cluster.detach(*args, cwd=tmp_path)
    with cluster.typing("logs", "-f", job) as follows:
        cluster.until(lambda: all(f"g1 r{r} 99" in follows.out.read_text() for r in (0, 1)))
        since = time.time()
        (tmp_path / "others").touch()
        assert cluster.reach(job, "SUCCEEDED")["generation"] == 2
        assert follows.ends() == 0
        lines = follows.out.read_text().splitlines()
        woes = follows.err.read_text().splitlines()
    for rank in (0, 1):
        own = [line for line in lines if line.startswith(f"[workerpool0-0 r{rank}] ")]
        assert [line.partition("] ")[2] for line in own] == [
            f"g{g} r{rank} {n}" for g in (1, 2) for n in range(100)
        ]
    assert sorted(line for line in woes if "woe" in line) == [
        f"[workerpool0-0 r{r}] g{g} r{r} woe" for r in (0, 1) for g in (1, 2)
    ]

    def logs(*args: str) -> list[str]:
        out: str = cluster.holdfast("logs", *args, job).stdout
        return out.splitlines()

    assert logs("--rank", "1") == [f"g2 r1 {n}" for n in range(100)], "the newest generation unless told otherwise"
    assert logs("--rank", "1", "--generation", "1") == [f"g1 r1 {n}" for n in range(100)]
    assert logs("--rank", "0", "--tail", "3") == ["g2 r0 97", "g2 r0 98", "g2 r0 99"]
    assert logs("--rank", "0", "--tail", "0") == []
    assert len(logs("--worker", "workerpool0-0")) == 200
    assert logs("--rank", "0", "--since", "1h") == [f"g2 r0 {n}" for n in range(100)]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since + 3600))
    assert logs("--rank", "0", "--since", stamp) == []
    for wrong in (("--rank", "7"), ("--worker", "nobody"), ("--generation", "9"), ("--tail", "-1")):
        assert cluster.holdfast("logs", *wrong, job, check=False).returncode == 2


def test_since_leaves_out_what_is_older(cluster: DevCluster, tmp_path: Path) -> None:
    script = "echo old; until [ -e go ]; do sleep 0.02; done; echo new; exec sleep 600"
    job = cluster.detach("--", "sh", "-c", script, cwd=tmp_path)
    cluster.until(lambda: cluster.holdfast("logs", job).stdout == "old\n")
    time.sleep(2.5)
    since = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    (tmp_path / "go").touch()
    cluster.until(lambda: cluster.holdfast("logs", job).stdout == "old\nnew\n")
    assert cluster.holdfast("logs", "--since", since, job).stdout == "new\n"
    cluster.end(job)


def raw(cluster: DevCluster, *args: str) -> bytes:
    """What a command prints, to the byte."""
    command = [sys.executable, "-m", "holdfast", *args]
    return subprocess.run(command, env=cluster.env, stdout=subprocess.PIPE, timeout=120, check=True).stdout


def test_ten_megabytes_arrive_exactly(cluster: DevCluster) -> None:
    """Random bytes: no line ends where one would like, none of it is text."""
    script = f"""
import hashlib, os, sys
data = os.urandom({MEGABYTES_10})
sys.stdout.buffer.write(data)
sys.stderr.write(hashlib.sha256(data).hexdigest())
"""
    job = cluster.detach("--", sys.executable, "-c", script)
    live = hashlib.sha256(raw(cluster, "logs", "-f", job))
    cluster.reach(job, "SUCCEEDED")
    done = cluster.holdfast("logs", job, check=False, text=False)
    assert len(done.stdout) == MEGABYTES_10
    digest = re.search(rb"[0-9a-f]{64}", done.stderr)
    assert digest and digest[0].decode() == hashlib.sha256(done.stdout).hexdigest() == live.hexdigest()


def test_every_byte_and_no_newline_arrive_as_they_were(cluster: DevCluster) -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) + b'\\r\\n\\x00\\xff no end')"
    expected = bytes(range(256)) + b"\r\n\x00\xff no end"
    assert raw(cluster, "run", "--", sys.executable, "-c", script) == expected


def test_run_shows_ten_megabytes_of_text_exactly(cluster: DevCluster) -> None:
    count = MEGABYTES_10 // 16
    script = f"for n in range({count}): print(f'{{n:015}}')"
    # Buffered, as a program with much to say would be.
    shown = raw(cluster, "run", "--env", "PYTHONUNBUFFERED=", "--", sys.executable, "-c", script)
    assert hashlib.sha256(shown).digest() == hashlib.sha256(b"".join(b"%015d\n" % n for n in range(count))).digest()
