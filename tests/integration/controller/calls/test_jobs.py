"""``JobService`` on a real link."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from tests.integration.controller.cluster import WITHIN_S, Agent, Certificates, Controller, job, refusal
from tests.support.stubs import host_stub, job_stub

from holdfast.v1 import hang_pb2, host_pb2, job_pb2, job_pb2_grpc
from holdfast_controller.core.scheduling.wait_reasons import never_fits
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main.server import serve


@pytest.fixture
def jobs(controller: Controller) -> job_pb2_grpc.JobServiceAsyncStub:
    return job_stub(controller.channel("user/ann"))


def runs(job_id: str, times: int, agent: Agent) -> bool:
    found: int = agent.phases(job_id).count("RUN")
    return found == times


async def create(
    jobs: job_pb2_grpc.JobServiceAsyncStub, what: job_pb2.CustomJob | None = None, request: str = ""
) -> job_pb2.CustomJob:
    answer = await jobs.CreateJob(job_pb2.CreateJobRequest(request_id=request, job=what or job()), timeout=WITHIN_S)
    return answer.job


async def get(jobs: job_pb2_grpc.JobServiceAsyncStub, name: str) -> job_pb2.CustomJob:
    return (await jobs.GetJob(job_pb2.GetJobRequest(id=name), timeout=WITHIN_S)).job


async def watch(jobs: Any, name: str, cursor: int = 0) -> list[job_pb2.WatchJobResponse]:
    call = jobs.WatchJob(job_pb2.WatchJobRequest(id=name, cursor=cursor), timeout=WITHIN_S)
    return [event async for event in call]


async def test_what_changes_nothing_here_is_kept_and_warned_about(controller: Controller, jobs: Any) -> None:
    asked = job(annotations={"note": "x"})
    asked.job_spec.service_account = "trainer@example.org"
    answer = await jobs.CreateJob(job_pb2.CreateJobRequest(job=asked), timeout=WITHIN_S)
    assert [warning.partition(":")[0] for warning in answer.warnings] == ["jobSpec.serviceAccount"]
    kept = await get(jobs, answer.job.id)
    assert kept.annotations == {"note": "x"}
    assert kept.job_spec.service_account == "trainer@example.org"


async def test_a_dry_run_says_where_a_job_would_run_and_stores_nothing(controller: Controller, jobs: Any) -> None:
    async with controller.agent(gpus=2):
        asked = job()
        asked.job_spec.service_account = "trainer@example.org"
        found = await jobs.DryRunJob(job_pb2.DryRunJobRequest(job=asked), timeout=WITHIN_S)
        assert found.starts and [(each.name, each.host) for each in found.workers] == [("workerpool0-0", "host-0")]
        assert list(found.workers[0].gpus) == ["host-0-0"]
        assert [warning.partition(":")[0] for warning in found.warnings] == ["jobSpec.serviceAccount"]
        assert not (await jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)).jobs
        assert (await create(jobs)).attempt == 1
        assert (await create(jobs)).attempt == 1
        found = await jobs.DryRunJob(job_pb2.DryRunJobRequest(job=job()), timeout=WITHIN_S)
        assert not found.starts and not found.workers
        assert found.wait_reason == "needs 1 NVIDIA_H100_80GB GPU on one host (0 free on the best)"
        large = job_pb2.DryRunJobRequest(job=job(gpus=3))
        _, error = await refusal(jobs.DryRunJob(large, timeout=WITHIN_S))
        assert error.reason == "NEVER_FITS"


async def test_when_a_job_is_expected_to_start_is_said_by_the_job_and_not_by_its_submission(
    controller: Controller, jobs: Any
) -> None:
    async with controller.agent(gpus=2) as agent:
        busy = (await create(jobs, job(gpus=2))).id
        await agent.until(lambda a: runs(busy, 1, a))
        waits = await create(jobs, job(gpus=2))
        assert waits.wait_reason.startswith("needs 2 ") and "expected" not in waits.wait_reason
        assert "; expected to start by " in (await get(jobs, waits.id)).wait_reason


async def test_job_goes_the_whole_way(controller: Controller, jobs: Any) -> None:
    async with controller.agent() as agent:
        made = await create(jobs, job("My train.py", labels={"team": "x"}))
        assert made.owner == "ann"
        assert made.id.startswith("my-train-py-") or made.id.startswith("train-")
        assert made.attempt == made.generation == 1
        await agent.until(lambda a: a.phases(made.id) == ["PREPARE", "RUN"])
        sequence = await agent.exit(made.id, 0)
        await agent.until(lambda a: sequence in a.acks())
        events = await watch(jobs, made.id)
        await agent.until(lambda a: a.phases(made.id) == ["PREPARE", "RUN", "FORGET"])
    types = "JobSubmitted JobPlaced GangLaunched GangStarted RankExited JobEnding WorkerEmptied JobEnded"
    assert [event.type for event in events] == types.split()
    ended = await get(jobs, made.id)
    assert ended.state == job_pb2.JOB_STATE_SUCCEEDED
    assert ended.cursor == events[-1].cursor
    assert ended.labels == {"team": "x"}
    worker = ended.workers[0]
    assert (worker.host, worker.shim_pid, worker.ranks[0].pid, list(worker.gpus)) == ("host-0", 7, 8, ["host-0-0"])
    assert worker.state == job_pb2.WORKER_STATE_ENDED
    assert worker.exits[0].exit_code == 0
    assert not worker.exits[0].HasField("signal")
    assert not ended.HasField("error")


async def test_failure_shows_code_restart_and_error(controller: Controller, jobs: Any) -> None:
    what = job()
    what.job_spec.fault_tolerance.max_worker_restarts = 1
    what.job_spec.fault_tolerance.max_job_retries = 0
    async with controller.agent() as agent:
        made = await create(jobs, what)
        for generation in (1, 2):
            await agent.until(partial(runs, made.id, generation))
            await agent.exit(made.id, 7, generation=generation)
        await watch(jobs, made.id)
    ended = await get(jobs, made.id)
    assert ended.state == job_pb2.JOB_STATE_FAILED
    assert ended.error.exit_code == 7
    assert (
        ended.error.message
        == "The replica workerpool0-0 exited with a non-zero status of 7. Termination reason: Error."
    )
    assert [(exit_.generation, exit_.exit_code) for exit_ in ended.workers[0].exits] == [(1, 7), (2, 7)]
    assert [(r.generation, r.end_reason) for r in ended.recoveries] == [(2, "NONZERO_EXIT")]


async def test_same_request_creates_one_job(jobs: Any) -> None:
    made = await asyncio.gather(*(create(jobs, job("n"), "r-1") for _ in range(5)))
    assert len({one.id for one in made}) == 1
    listed = await jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    assert len(listed.jobs) == 1


async def test_same_request_id_with_another_content_is_refused(jobs: Any) -> None:
    made = await create(jobs, job("n"), "r-1")
    code, error = await refusal(jobs.CreateJob(job_pb2.CreateJobRequest(request_id="r-1", job=job("m"))))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.path for violation in error.violations] == ["requestId"]  # type: ignore[attr-defined]
    code, _ = await refusal(jobs.CancelJob(job_pb2.CancelJobRequest(id=made.id, request_id="r-1")))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_every_call_that_changes_something_takes_a_request_id() -> None:
    reads = ("Get", "List", "Watch", "Stream", "Take", "Record", "DryRun")
    # Keys are typed into a terminal and kept nowhere: to know one that was sent twice, all would have to be kept.
    typed = {"WriteTerminal", "WriteShell", "OpenShell"}
    # One more fault is what was asked for; nothing sends the call again by itself.
    typed |= {"InjectFault"}
    for file in (job_pb2, host_pb2, hang_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                takes = "request_id" in method.input_type.fields_by_name
                assert takes != (method.name.startswith(reads) or method.name in typed), method.full_name


async def test_request_ids_are_each_user_s_own(controller: Controller, jobs: Any) -> None:
    other = job_stub(controller.channel("user/bob"))
    assert (await create(jobs, request="r-1")).id != (await create(other, request="r-1")).id


async def test_lists_come_in_pages_oldest_first(jobs: Any) -> None:
    made = [(await create(jobs, job(f"n{number}"))).id for number in range(7)]
    listed, token = [], ""
    while True:
        page = await jobs.ListJobs(job_pb2.ListJobsRequest(page_size=3, page_token=token), timeout=WITHIN_S)
        listed += [one.id for one in page.jobs]
        assert len(page.jobs) <= 3
        token = page.next_page_token
        if not token:
            break
    assert listed == made
    newest = await jobs.ListJobs(job_pb2.ListJobsRequest(page_size=2, newest=True), timeout=WITHIN_S)
    assert [one.id for one in newest.jobs] == made[-2:]
    assert newest.next_page_token == ""
    named = await jobs.ListJobs(job_pb2.ListJobsRequest(filter="name=n3 AND owner=ann"), timeout=WITHIN_S)
    assert [one.id for one in named.jobs] == [made[3]]
    assert "behind 2 jobs in the queue" in (await get(jobs, made[2])).wait_reason


async def test_jobs_that_were_asked_for_while_paging_come_once(jobs: Any) -> None:
    first = [(await create(jobs)).id for _ in range(3)]
    page = await jobs.ListJobs(job_pb2.ListJobsRequest(page_size=2), timeout=WITHIN_S)
    await jobs.CancelJob(job_pb2.CancelJobRequest(id=first[0]), timeout=WITHIN_S)
    later = (await create(jobs)).id
    rest = await jobs.ListJobs(job_pb2.ListJobsRequest(page_token=page.next_page_token), timeout=WITHIN_S)
    assert [one.id for one in (*page.jobs, *rest.jobs)] == [*first, later]


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (job_pb2.ListJobsRequest(filter="color=red"), "filter"),
        (job_pb2.ListJobsRequest(page_size=1001), "pageSize"),
        (job_pb2.ListJobsRequest(page_size=-1), "pageSize"),
        (job_pb2.ListJobsRequest(page_token="x"), "pageToken"),
        (job_pb2.ListJobsRequest(page_token="1", newest=True), "pageToken"),
    ],
)
async def test_wrong_list_requests_name_the_field(jobs: Any, request_: job_pb2.ListJobsRequest, path: str) -> None:
    code, error = await refusal(jobs.ListJobs(request_))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == "INVALID_INPUT"
    assert [violation.path for violation in error.violations] == [path]  # type: ignore[attr-defined]


async def test_watch_resumes_from_any_cursor_without_loss_or_duplicate(controller: Controller, jobs: Any) -> None:
    async with controller.agent() as agent:
        made = await create(jobs)
        await agent.until(lambda a: "RUN" in a.phases(made.id))
        call = jobs.WatchJob(job_pb2.WatchJobRequest(id=made.id), timeout=WITHIN_S)
        seen = [await call.read() for _ in range(3)]
        call.cancel()
        live = asyncio.gather(watch(jobs, made.id, seen[-1].cursor), watch(jobs, made.id))
        await agent.exit(made.id, 0)
        resumed, whole = await live
    assert [e.cursor for e in (*seen, *resumed)] == [e.cursor for e in whole]
    for event in whole:
        again = await watch(jobs, made.id, event.cursor)
        assert [e.cursor for e in again] == [e.cursor for e in whole if e.cursor > event.cursor]
    assert whole[0].data["owner"] == "ann"
    assert "gang" not in whole[0].data
    launched = next(event for event in whole if event.type == "GangLaunched")
    rendezvous = launched.data["rendezvous"]
    assert isinstance(rendezvous, struct_pb2.Struct)
    assert rendezvous["master_port"] == 20002
    assert "secret" not in rendezvous
    assert whole[-1].state == job_pb2.JOB_STATE_SUCCEEDED
    assert all(event.message for event in whole)


async def test_watching_many_times_leaves_nothing_behind(controller: Controller, jobs: Any) -> None:
    made = await create(jobs)
    for _ in range(20):
        call = jobs.WatchJob(job_pb2.WatchJobRequest(id=made.id), timeout=WITHIN_S)
        assert (await call.read()).type == "JobSubmitted"
        call.cancel()
    # Other watchers go on.
    ending = asyncio.gather(watch(jobs, made.id))
    await jobs.CancelJob(job_pb2.CancelJobRequest(id=made.id), timeout=WITHIN_S)
    assert (await ending)[0][-1].type == "JobEnded"


@pytest.mark.parametrize("call", ["GetJob", "CancelJob", "RestartJob"])
async def test_unknown_job_is_not_found(jobs: Any, call: str) -> None:
    code, error = await refusal(getattr(jobs, call)(getattr(job_pb2, f"{call}Request")(id="nope")))
    assert (code, error.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert "nope" in error.message
    assert error.fix


@pytest.mark.parametrize("call", ["WatchJob", "StreamLogs"])
async def test_unknown_job_cannot_be_followed(jobs: Any, call: str) -> None:
    stream = getattr(jobs, call)(getattr(job_pb2, f"{call}Request")(id="nope"))
    code, error = await refusal(stream.read())
    assert (code, error.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


async def test_negative_cursor_is_refused(jobs: Any) -> None:
    made = await create(jobs)
    code, error = await refusal(jobs.WatchJob(job_pb2.WatchJobRequest(id=made.id, cursor=-1)).read())
    assert (code, error.reason) == (grpc.StatusCode.OUT_OF_RANGE, "CURSOR_EXPIRED")


async def test_bad_spec_is_refused_with_every_path(jobs: Any) -> None:
    what = job("x" * 129, replicas=0)
    code, error = await refusal(jobs.CreateJob(job_pb2.CreateJobRequest(job=what)))
    assert (code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_SPEC")
    paths = [violation.path for violation in error.violations]  # type: ignore[attr-defined]
    assert "displayName" in paths
    assert "jobSpec.workerPoolSpecs[0].replicaCount" in paths


async def test_empty_request_is_refused_and_not_fatal(jobs: Any) -> None:
    code, _ = await refusal(jobs.CreateJob(job_pb2.CreateJobRequest()))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    await create(jobs)


async def test_long_request_id_is_refused(jobs: Any) -> None:
    code, error = await refusal(jobs.CreateJob(job_pb2.CreateJobRequest(request_id="x" * 129, job=job())))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.path for violation in error.violations] == ["requestId"]  # type: ignore[attr-defined]


async def test_container_is_refused_where_no_host_runs_any(controller: Controller, jobs: Any) -> None:
    what = job()
    what.job_spec.worker_pool_specs[0].container_spec.image_uri = "docker.io/x"
    async with controller.agent():
        await _joined(controller, 1)
        code, error = await refusal(jobs.CreateJob(job_pb2.CreateJobRequest(job=what)))
    assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NEVER_FITS")
    assert "a host that runs containers (host-0: its agent knows of none)" in str(error)


async def test_job_that_never_fits_is_refused(controller: Controller, jobs: Any) -> None:
    async with controller.agent(gpus=2):
        await _joined(controller, 1)
        code, error = await refusal(jobs.CreateJob(job_pb2.CreateJobRequest(job=job(gpus=4))))
    assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NEVER_FITS")


async def test_a_gang_of_more_workers_than_hosts_take_is_refused_before_any_is_placed(
    controller: Controller, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(never_fits, "plan_on", None)
    huge = job()
    pool = huge.job_spec.worker_pool_specs.add()
    pool.CopyFrom(huge.job_spec.worker_pool_specs[0])
    pool.replica_count = 99_999
    async with controller.agent():
        await _joined(controller, 1)
        code, error = await refusal(jobs.CreateJob(job_pb2.CreateJobRequest(job=huge)))
    assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NEVER_FITS")
    assert "it has 100,000 workers, and they take 8" in str(error)


async def test_restart_by_hand_needs_a_running_job(jobs: Any) -> None:
    made = await create(jobs)
    code, error = await refusal(jobs.RestartJob(job_pb2.RestartJobRequest(id=made.id)))
    assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE")


async def test_the_answer_to_a_restart_has_no_exits_of_older_generations(controller: Controller, jobs: Any) -> None:
    what = job()
    what.job_spec.fault_tolerance.max_worker_restarts = 2
    async with controller.agent() as agent:
        made = await create(jobs, what)
        await agent.until(partial(runs, made.id, 1))
        await agent.exit(made.id, 7)
        await agent.until(partial(runs, made.id, 2))
        answer = await jobs.RestartJob(job_pb2.RestartJobRequest(id=made.id), timeout=WITHIN_S)
        assert 1 not in [each.generation for each in answer.job.workers[0].exits]
        assert (await get(jobs, made.id)).workers[0].exits[0].generation == 1


async def test_job_cancelled_in_the_queue_is_over(jobs: Any) -> None:
    made = await create(jobs)
    answer = await jobs.CancelJob(job_pb2.CancelJobRequest(id=made.id), timeout=WITHIN_S)
    assert answer.job.state == job_pb2.JOB_STATE_CANCELLED
    assert answer.job.error.message == "The job was cancelled by ann."
    assert [event.type for event in await watch(jobs, made.id)][-3:] == ["CancelRequested", "JobEnding", "JobEnded"]


async def _joined(controller: Controller, count: int) -> None:
    hosts = host_stub(controller.channel("user/ann"))
    call = hosts.WatchHosts(host_pb2.WatchHostsRequest(), timeout=WITHIN_S)
    for _ in range(count):
        await call.read()
    call.cancel()


async def test_told_to_stop_the_controller_stops_and_comes_back_with_everything(
    config: ControllerConfig, certificates: Certificates
) -> None:
    names: list[str] = []
    for round_ in range(2):
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(config, ready.set_result))
            controller = Controller(await ready, certificates)
            jobs = job_stub(controller.channel("user/ann"))
            for name in names:
                assert (await get(jobs, name)).id == name
            names += [(await create(jobs, job(f"r{round_}"))).id for _ in range(3)]
            os.kill(os.getpid(), signal.SIGTERM)
            await serving
            await controller.close()
    assert len(set(names)) == 6
