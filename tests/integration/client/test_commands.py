"""The other commands, as processes against a controller of the test's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import yaml
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


async def test_ps_lists_jobs_newest_last(jobs: FakeController, tmp_path: Path) -> None:
    result = await holdfast(jobs, tmp_path, "ps")
    assert [line.split()[:3] for line in result.stdout.decode().splitlines()] == [
        ["ID", "NAME", "STATE"],
        ["j1", "first", "SUCCEEDED"],
        ["j2", "second", "RUNNING"],
        ["j3", "third", "QUEUED"],
    ]
    assert result.stdout.decode().splitlines()[3].endswith("behind j2 in the queue")
    assert b"\x1b" not in result.stdout


async def test_ps_keeps_old_jobs_that_still_run(jobs: FakeController, tmp_path: Path) -> None:
    for _ in range(25):
        jobs.add_job(job_pb2.CustomJob(state=job_pb2.JOB_STATE_FAILED))
    result = await holdfast(jobs, tmp_path, "ps", "-o", "name")
    assert result.stdout.decode().split() == ["j2", "j3", *(f"j{n}" for n in range(9, 29))]
    result = await holdfast(jobs, tmp_path, "ps", "--all", "-o", "name")
    assert result.stdout.decode().split() == [f"j{n}" for n in range(1, 29)]


async def test_ps_of_a_long_queue_shows_its_head_and_says_that_there_is_more(
    controller: FakeController, tmp_path: Path
) -> None:
    for _ in range(300):
        controller.add_job(job_pb2.CustomJob(display_name="waits", state=job_pb2.JOB_STATE_QUEUED))
    result = await holdfast(controller, tmp_path, "ps")
    shown = [line.split()[0] for line in result.stdout.decode().splitlines()[1:]]
    assert shown == [f"j{n}" for n in (*range(1, 201), *range(281, 301))]
    assert (
        "more jobs are active than the 200 oldest; see them all with: holdfast ps --all" in result.stderr.decode()
    )
    assert len(json.loads((await holdfast(controller, tmp_path, "ps", "-o", "json")).stdout)) == 300
    assert len((await holdfast(controller, tmp_path, "ps", "--all")).stdout.splitlines()) == 301


async def test_a_list_of_whose_jobs_is_asked_for_once(jobs: FakeController, tmp_path: Path) -> None:
    both = await holdfast(jobs, tmp_path, "job", "list", "--mine", "--owner", "ann")
    assert both.returncode == 2 and b"--mine is --owner with your name" in both.stderr


async def test_what_wait_says_of_ended_jobs_is_data_too(jobs: FakeController, tmp_path: Path) -> None:
    jobs.jobs["j2"].state = job_pb2.JOB_STATE_FAILED
    done = await holdfast(jobs, tmp_path, "wait", "j1", "j2", "-o", "json")
    assert done.returncode == 125
    said = json.loads(done.stdout)
    assert [(each["id"], each["state"]) for each in said] == [
        ("j1", "JOB_STATE_SUCCEEDED"),
        ("j2", "JOB_STATE_FAILED"),
    ]
    listed = json.loads((await holdfast(jobs, tmp_path, "job", "list", "-o", "json")).stdout)
    assert said == listed[:2]
    late = await holdfast(jobs, tmp_path, "wait", "j1", "j3", "--timeout", "1s", "-o", "yaml")
    assert late.returncode == 124
    assert [each["id"] for each in yaml.safe_load(late.stdout)] == ["j1"]


async def test_lists_are_json_arrays_without_workers(jobs: FakeController, tmp_path: Path) -> None:
    for words in (("ps",), ("job", "list")):
        result = await holdfast(jobs, tmp_path, *words, "-o", "json")
        found = json.loads(result.stdout)
        assert [job["id"] for job in found] == ["j1", "j2", "j3"]
        assert [job["state"] for job in found][1] == "JOB_STATE_RUNNING"
        assert "workers" not in found[1]
        assert found[2]["waitReason"] == "behind j2 in the queue"


async def test_a_job_is_shown_in_every_format(jobs: FakeController, tmp_path: Path) -> None:
    as_json = json.loads((await holdfast(jobs, tmp_path, "job", "show", "j2", "-o", "json")).stdout)
    assert as_json["workers"][0]["host"] == "host-0"
    as_yaml = yaml.safe_load((await holdfast(jobs, tmp_path, "job", "show", "jobs/j2", "-o", "yaml")).stdout)
    assert as_yaml == as_json
    assert (await holdfast(jobs, tmp_path, "job", "show", "j2", "-o", "name")).stdout == b"j2\n"
    for output in ("table", "wide"):
        page = (await holdfast(jobs, tmp_path, "job", "show", "j2", "-o", output)).stdout.decode()
        assert "second" in page and "workerpool0-0" in page


async def test_an_empty_list_gives_a_hint_on_stderr(controller: FakeController, tmp_path: Path) -> None:
    result = await holdfast(controller, tmp_path, "ps")
    assert (result.returncode, result.stdout) == (0, b"")
    assert b"No jobs yet. Start one: holdfast run -- python train.py" in result.stderr
    assert (await holdfast(controller, tmp_path, "ps", "-o", "json")).stdout == b"[]\n"
    assert b"No hosts yet" in (await holdfast(controller, tmp_path, "host", "list")).stderr


async def test_filters_reach_the_controller(jobs: FakeController, tmp_path: Path) -> None:
    words = ("--state", "running", "--owner", "ada", "--label", "team=x", "--active")
    await holdfast(jobs, tmp_path, "job", "list", *words)
    assert jobs.calls[-1][1].filter == "state=RUNNING AND owner=ada AND label.team=x AND active=true"
    await holdfast(jobs, tmp_path, "job", "list", "--filter", "labels.team:* OR owner=bob", "--owner", "ada")
    assert jobs.calls[-1][1].filter == "owner=ada AND (labels.team:* OR owner=bob)"
    await holdfast(jobs, tmp_path, "job", "list", "--owner", "a OR owner=b", "--label", 'team="x"')
    assert jobs.calls[-1][1].filter == 'owner="a OR owner=b" AND label.team="\\"x\\""'


async def test_a_state_that_there_is_not_is_answered_with_those_there_are(
    jobs: FakeController, tmp_path: Path
) -> None:
    for state, fix in (("RUNING", "did you mean RUNNING?"), ("FOO", "there are QUEUED, PENDING")):
        result = await holdfast(jobs, tmp_path, "job", "list", "--state", state)
        assert result.returncode == 2
        assert f"'--state': '{state}' is no state of a job; {fix}" in result.stderr.decode()


async def test_jobs_are_deleted_one_by_one(jobs: FakeController, tmp_path: Path) -> None:
    result = await holdfast(jobs, tmp_path, "job", "delete", "j1", "none", "j2")
    assert result.returncode == 125
    said = result.stderr.decode()
    assert "job j1 is deleted" in said and "job j2 is deleted" in said and "There is no job" in said
    assert not {"j1", "j2"} & jobs.jobs.keys()


async def test_events_end_though_the_job_runs_on(jobs: FakeController, tmp_path: Path) -> None:
    jobs.event("j2", "GangStarted", "generation 1 is running", "RUNNING", generation=1)
    result = await holdfast(jobs, tmp_path, "job", "events", "j2", "-o", "json")
    assert [event["type"] for event in json.loads(result.stdout)] == ["JobSubmitted", "GangStarted"]
    assert b"generation 1 is running" in (await holdfast(jobs, tmp_path, "job", "events", "j2")).stdout


async def test_watch_prints_json_lines_until_the_end(jobs: FakeController, tmp_path: Path) -> None:
    jobs.event("j2", "JobEnded", "SUCCEEDED", "SUCCEEDED")
    result = await holdfast(jobs, tmp_path, "job", "watch", "j2", "-o", "json")
    assert result.returncode == 0
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["type"] for event in events] == ["JobSubmitted", "JobEnded"]
    table = await holdfast(jobs, tmp_path, "job", "watch", "j2", "--cursor", str(events[0]["cursor"]))
    assert len(table.stdout.splitlines()) == 1


async def test_logs_name_the_ranks_unless_one_is_chosen(jobs: FakeController, tmp_path: Path) -> None:
    jobs.write("j2", b"zero\n")
    jobs.write("j2", b"one\n\xff\n", worker="workerpool1-0", rank=1)
    result = await holdfast(jobs, tmp_path, "logs", "j2")
    assert result.stdout == b"[workerpool0-0 r0] zero\n[workerpool1-0 r1] one\n[workerpool1-0 r1] \xff\n"
    for words in (("--rank", "1"), ("--worker", "workerpool1-0")):
        assert (await holdfast(jobs, tmp_path, "logs", "j2", *words)).stdout == b"one\n\xff\n"


async def test_log_options_reach_the_controller(jobs: FakeController, tmp_path: Path) -> None:
    words = ("--rank", "0", "--generation", "2", "--tail", "5", "--since", "2026-11-21T04:00:00Z")
    assert (await holdfast(jobs, tmp_path, "logs", "j2", *words)).returncode == 0
    request = jobs.calls[-1][1]
    assert (list(request.ranks), request.generation, request.tail_lines) == ([0], 2, 5)
    assert request.since.ToJsonString() == "2026-11-21T04:00:00Z"
    assert not request.follow


async def test_a_rank_that_is_none_is_refused(jobs: FakeController, tmp_path: Path) -> None:
    result = await holdfast(jobs, tmp_path, "logs", "j2", "--rank", "7")
    assert result.returncode == 2
    assert b"7 is no rank of this job (there is 0 to 1)" in result.stderr


async def test_logs_of_a_job_that_waits_say_so(jobs: FakeController, tmp_path: Path) -> None:
    jobs.jobs["j3"].job_spec.worker_pool_specs.add(replica_count=1)
    result = await holdfast(jobs, tmp_path, "logs", "j3")
    assert b"has not started yet: behind j2 in the queue" in result.stderr


async def test_logs_into_a_closed_pipe_end_quietly(jobs: FakeController, tmp_path: Path) -> None:
    for _ in range(64):
        jobs.write("j2", b"x" * 4095 + b"\n")
    config = jobs.write_settings(tmp_path / "client.toml")
    env = {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}
    command = f"set -o pipefail; {HOLDFAST} logs j2 | head -c 10"
    with anyio.fail_after(60):
        result = await anyio.run_process(["bash", "-c", command], env=env, check=False)
    assert result.returncode == 128 + signal.SIGPIPE
    assert result.stderr == b""


async def test_cancel_goes_on_after_a_job_it_does_not_find(jobs: FakeController, tmp_path: Path) -> None:
    result = await holdfast(jobs, tmp_path, "cancel", "nope", "j2")
    assert result.returncode == 125
    assert b"There is no job nope." in result.stderr
    assert jobs.jobs["j2"].state == job_pb2.JOB_STATE_CANCELLED


async def test_an_unknown_job_is_a_sentence(controller: FakeController, tmp_path: Path) -> None:
    for words in (("job", "show"), ("logs",), ("job", "watch"), ("job", "restart"), ("job", "events")):
        result = await holdfast(controller, tmp_path, *words, "nope")
        assert result.returncode == 125
        assert result.stderr == b"error: There is no job nope.\n  See `holdfast ps`.\n"


async def test_hosts_are_listed_cordoned_and_shown(controller: FakeController, tmp_path: Path) -> None:
    for name in ("host-0", "host-1"):
        host = host_pb2.Host(name=name, state=host_pb2.HOST_STATE_READY)
        host.inventory.gpus.add(uuid="GPU-1", model="H100", memory_bytes=80 << 30, job_id="j1")
        controller.hosts[name] = host
    result = await holdfast(controller, tmp_path, "host", "cordon", "host-1", "--reason", "bad fan")
    assert result.returncode == 0, result.stderr
    table = (await holdfast(controller, tmp_path, "host", "list", "-o", "wide")).stdout.decode().splitlines()
    assert table[1].split()[:3] == ["host-0", "READY", "0/1"]
    assert "READY cordoned" in table[2] and table[2].endswith("bad fan")
    assert b"H100" in (await holdfast(controller, tmp_path, "host", "show", "host-0")).stdout
    found = json.loads((await holdfast(controller, tmp_path, "host", "list", "-o", "json")).stdout)
    assert [(host["name"], host["cordoned"]) for host in found] == [("host-0", False), ("host-1", True)]
    assert (await holdfast(controller, tmp_path, "host", "uncordon", "host-9")).returncode == 125


async def test_no_settings_say_what_to_do(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    result = await anyio.run_process([HOLDFAST, "ps"], env=env, check=False)
    assert result.returncode == 125
    assert b"holdfast dev start" in result.stderr


async def test_values_that_look_secret_are_printed_on_demand_alone(jobs: FakeController, tmp_path: Path) -> None:
    task = jobs.jobs["j2"].job_spec.worker_pool_specs[0].process_spec
    task.env.add(name="WANDB_API_KEY", value="abc123")
    for words in (["job", "show", "j2", "-o", "json"], ["job", "show", "j2", "-o", "yaml"], ["ps", "-o", "json"]):
        printed = (await holdfast(jobs, tmp_path, *words)).stdout
        assert b"WANDB_API_KEY" in printed and b"abc123" not in printed
    assert b"abc123" in (await holdfast(jobs, tmp_path, "job", "show", "j2", "-o", "json", "--secrets")).stdout
