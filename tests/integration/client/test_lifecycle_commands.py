"""Commands that steer jobs and hosts, and options that say when and where a job runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController

from holdfast.v1 import host_pb2, job_pb2

pytestmark = pytest.mark.anyio

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


@pytest.fixture
async def jobs(controller: FakeController) -> FakeController:
    """Three jobs: one that succeeded, one that runs on two workers, one that waits."""
    controller.add_job(job_pb2.CustomJob(display_name="first", state=job_pb2.JOB_STATE_SUCCEEDED))
    running = job_pb2.CustomJob(display_name="second", state=job_pb2.JOB_STATE_RUNNING, generation=1, attempt=1)
    for _ in range(2):
        running.job_spec.worker_pool_specs.add(replica_count=1, processes_per_worker=1)
    running.workers.add(name="workerpool0-0", host="host-0", state=job_pb2.WORKER_STATE_RUNNING)
    controller.add_job(running)
    controller.add_job(job_pb2.CustomJob(display_name="third", wait_reason="behind j2 in the queue"))
    return controller


async def holdfast(
    controller: FakeController, tmp_path: Path, *words: str, input: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    config = controller.write_settings(tmp_path / "client.toml")
    env = {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}
    with anyio.fail_after(60):
        return await anyio.run_process([HOLDFAST, *words], env=env, check=False, input=input)


async def test_jobs_are_paused_and_resumed(jobs: FakeController, tmp_path: Path) -> None:
    paused = await holdfast(jobs, tmp_path, "job", "pause", "j2", "nope", "j1", "j3")
    assert paused.returncode == 125
    assert paused.stderr.decode().splitlines() == [
        "holdfast: job j2 is paused",
        "error: There is no job nope.",
        "  See `holdfast ps`.",
        "holdfast: job j1 has ended already: SUCCEEDED",
        "holdfast: job j3 is paused",
    ]
    assert (await holdfast(jobs, tmp_path, "ps")).stdout.decode().splitlines()[3].split()[2] == "PAUSED"
    resumed = await holdfast(jobs, tmp_path, "job", "resume", "j2", "jobs/j3")
    assert resumed.returncode == 0
    assert resumed.stderr.decode().splitlines() == [
        "holdfast: job j2 is queued again",
        "holdfast: job j3 is queued again: behind j2 in the queue",
    ]


async def test_a_pause_says_when_workers_are_still_to_be_stopped(jobs: FakeController, tmp_path: Path) -> None:
    jobs.pauses_at_once = False
    paused = await holdfast(jobs, tmp_path, "job", "pause", "j2")
    assert paused.stderr == b"holdfast: job j2 is being paused: its workers are stopped first\n"
    assert (await holdfast(jobs, tmp_path, "job", "resume", "j2")).stderr == b"holdfast: job j2 resumed: RUNNING\n"


async def test_recoveries_are_a_table_and_an_array(jobs: FakeController, tmp_path: Path) -> None:
    empty = await holdfast(jobs, tmp_path, "job", "recoveries", "j2")
    assert (empty.returncode, empty.stdout) == (0, b"")
    assert empty.stderr == b"Nothing has interrupted the job j2 so far.\n"
    assert (await holdfast(jobs, tmp_path, "job", "recoveries", "j2", "-o", "json")).stdout == b"[]\n"

    recovery = jobs.jobs["j2"].recoveries.add(
        attempt=2,
        generation=5,
        start_type="INIT_OR_RESCHEDULED",
        end_reason="LOST_HOST",
        end_related_task="workerpool1-0 rank 1",
        end_recover="JOB_RESCHEDULE",
    )
    recovery.lost.FromMilliseconds(75_000)
    recovery.phases.stop.FromMilliseconds(2_900)
    shown = await holdfast(jobs, tmp_path, "job", "recoveries", "j2")
    words = shown.stdout.decode().splitlines()[1]
    assert words.split()[:2] == ["2", "5"]
    assert words.endswith("1m 15s  LOST_HOST  workerpool1-0 rank 1  placed again  stop 2.9s")
    assert shown.stderr == b"1 recovery, 1m 15s lost\n"
    found = json.loads((await holdfast(jobs, tmp_path, "job", "recoveries", "j2", "-o", "json")).stdout)
    assert [(each["attempt"], each["lostSeconds"], each["endRecover"]) for each in found] == [
        (2, 75.0, "JOB_RESCHEDULE")
    ]


@pytest.fixture
def busy_host(controller: FakeController) -> host_pb2.Host:
    host = host_pb2.Host(name="host-0", state=host_pb2.HOST_STATE_READY, workers=3, job_ids=["j1", "j2"])
    controller.hosts[host.name] = host
    return host


async def test_a_host_is_drained_by_a_deadline(
    controller: FakeController, busy_host: host_pb2.Host, tmp_path: Path
) -> None:
    words = ("--deadline", "45m", "--at-checkpoint", "--reason", "new kernel")
    result = await holdfast(controller, tmp_path, "host", "drain", "host-0", *words)
    assert result.returncode == 0
    told = result.stderr.decode()
    assert told.startswith(
        "holdfast: host host-0 is being drained: 2 jobs are still there (j1, j2); they are moved off by "
    )
    _, request = controller.calls[-1]
    assert (request.reason, request.deadline.seconds, request.at_checkpoint) == ("new kernel", 2700, True)
    listed = (await holdfast(controller, tmp_path, "host", "list")).stdout.decode()
    assert "READY draining" in listed and listed.rstrip().endswith("new kernel")
    busy_host.labels["rack"] = "7"
    assert "LABELS" in (
        wide := (await holdfast(controller, tmp_path, "host", "list", "-o", "wide")).stdout.decode()
    )
    assert "  rack=7  j1, j2  new kernel" in wide
    page = (await holdfast(controller, tmp_path, "host", "show", "host-0")).stdout.decode()
    assert "  drain     moves what is still there off at " in page and "  labels    rack=7\n" in page


@pytest.mark.parametrize(
    ("words", "deadline_s"), [((), None), (("--at-checkpoint",), 1800), (("--deadline", "0"), 0)]
)
async def test_a_drain_has_a_deadline_only_where_it_needs_one(
    controller: FakeController,
    busy_host: host_pb2.Host,
    tmp_path: Path,
    words: tuple[str, ...],
    deadline_s: int | None,
) -> None:
    await holdfast(controller, tmp_path, "host", "drain", "host-0", *words)
    _, request = controller.calls[-1]
    assert (request.deadline.seconds if request.HasField("deadline") else None) == deadline_s


async def test_a_drain_can_be_waited_for(
    controller: FakeController, busy_host: host_pb2.Host, tmp_path: Path
) -> None:
    async with anyio.create_task_group() as tasks:

        async def move_off() -> None:
            await until_looked_at(controller)
            busy_host.workers, busy_host.job_ids[:] = 1, ["j2"]
            controller.calls.clear()
            await until_looked_at(controller)
            busy_host.workers, busy_host.job_ids[:] = 0, []

        tasks.start_soon(move_off)
        result = await holdfast(controller, tmp_path, "host", "drain", "host-0", "--wait")
    assert result.returncode == 0
    assert [line.partition("host-0")[2] for line in result.stderr.decode().splitlines()] == [
        " is being drained: 2 jobs are still there (j1, j2); they are waited for",
        ": 1 job is still there (j2); it is waited for",
        ": nothing runs there any more",
    ]


async def test_a_drain_that_somebody_ends_is_no_longer_waited_for(
    controller: FakeController, busy_host: host_pb2.Host, tmp_path: Path
) -> None:
    async with anyio.create_task_group() as tasks:

        async def end_it() -> None:
            await until_looked_at(controller)
            busy_host.draining = busy_host.cordoned = False

        tasks.start_soon(end_it)
        result = await holdfast(controller, tmp_path, "host", "drain", "host-0", "--wait")
    assert result.returncode == 125
    assert b"host host-0 is not drained any more: 2 jobs are still there (j1, j2)\n" in result.stderr


async def until_looked_at(controller: FakeController) -> None:
    with anyio.fail_after(30):
        while controller.calls[-1:] == [] or controller.calls[-1][0] != "GetHost":  # noqa: ASYNC110
            await anyio.sleep(0.05)


async def test_only_somebody_who_knows_fences_a_host(
    controller: FakeController, busy_host: host_pb2.Host, tmp_path: Path
) -> None:
    refused = await holdfast(controller, tmp_path, "host", "fence", "host-0")
    assert refused.returncode == 2
    assert b"holdfast host fence host-0 --yes-it-is-off" in refused.stderr
    assert controller.calls == []
    result = await holdfast(controller, tmp_path, "host", "fence", "host-0", "--yes-it-is-off", "--reason", "fire")
    assert (result.returncode, result.stderr) == (0, b"holdfast: host host-0 is fenced: nothing runs there\n")
    assert controller.calls[-1][1].reason == "fire"


async def test_options_of_submit_count_in_place_of_the_files(controller: FakeController, tmp_path: Path) -> None:
    controller.warnings = ["jobSpec.network: is kept, but changes nothing"]
    text = b"""
workerPoolSpecs: [{replicaCount: 1, processSpec: {command: [x]}}]
scheduling: {priority: 2, timeout: 1h, hostSelector: {hosts: [a], labels: {rack: "1"}}}
"""
    words = ["--priority", "3", "--project", "vision", "--max-wait", "0", "--timeout", "2h", "--max-retries", "0"]
    words += ["--on-host", "b", "--on-host", "c", "--avoid-host", "d", "--label-selector", "zone=x=y"]
    words += ["--host-selector", "gpu in (h100,h200),!old"]
    result = await holdfast(controller, tmp_path, "submit", "-", *words, input=text)
    assert result.returncode == 0, result.stderr
    assert result.stdout == b"j1\n"
    assert result.stderr.decode().splitlines()[0] == "warning: jobSpec.network: is kept, but changes nothing"
    job = controller.jobs["j1"]
    scheduling = job.job_spec.scheduling
    assert (job.project, scheduling.priority, scheduling.timeout.seconds) == ("vision", 3, 7200)
    assert scheduling.HasField("max_wait_duration") and scheduling.max_wait_duration.seconds == 0
    assert job.job_spec.fault_tolerance.HasField("max_job_retries")
    assert list(scheduling.host_selector.hosts) == ["b", "c"]
    assert list(scheduling.host_selector.avoid_hosts) == ["d"]
    assert dict(scheduling.host_selector.labels) == {"rack": "1", "zone": "x=y"}
    page = (await holdfast(controller, tmp_path, "job", "show", "j1")).stdout.decode()
    hosts = "on b, c; not on d; with rack=1, zone=x=y; where gpu in (h100,h200),!old"
    assert f"  project     vision\n  priority    3\n  hosts       {hosts}\n" in page
    listed = (await holdfast(controller, tmp_path, "ps")).stdout.decode()
    assert listed.splitlines()[0].split() == [
        "ID",
        "NAME",
        "STATE",
        "RANKS",
        "GPUS",
        "AGE",
        "PROJECT",
        "PRIO",
        "REASON",
    ]


async def test_a_command_of_another_service_is_taken(controller: FakeController, tmp_path: Path) -> None:
    pool = "--worker-pool-spec=machine-type=n1-standard-4,replica-count=1,container-image-uri=r.example/t:1"
    words = ("submit", "--region=here", "--display-name=digits", pool, pool.replace("count=1", "count=3"))
    result = await holdfast(controller, tmp_path, *words)
    assert (result.returncode, result.stdout) == (0, b"j1\n"), result.stderr
    assert result.stderr.startswith(b"warning: --region: changes nothing")
    job = controller.jobs["j1"]
    assert job.display_name == "digits"
    assert [pool.replica_count for pool in job.job_spec.worker_pool_specs] == [1, 3]


@pytest.mark.parametrize("words", [(), ("job.yaml", "--config", "job.yaml"), ("a", "--worker-pool-spec", "b=c")])
async def test_a_job_comes_from_one_place(
    controller: FakeController, tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = await holdfast(controller, tmp_path, "submit", *words)
    assert result.returncode == 2
    assert b"Give one of FILE, --config and --worker-pool-spec." in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--host-selector", "a in ()"),
        ("--host-selector", " "),
        ("--priority", "4"),
        ("--label-selector", "rack"),
        ("--max-retries", "-1"),
        ("--max-wait", "soon"),
    ],
)
async def test_wrong_options_are_refused_before_anything_is_sent(
    controller: FakeController, tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = await holdfast(controller, tmp_path, "run", *words, "--", "true")
    assert result.returncode == 2
    assert words[0].encode() in result.stderr
    assert controller.calls == []
