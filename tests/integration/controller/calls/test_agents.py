"""``AgentService`` and ``HostService`` on a real link."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, Agent, Controller, job, refusal
from tests.support.stubs import agent_stub, host_stub, job_stub

from holdfast._session import codec
from holdfast.v1 import agent_pb2, host_pb2, job_pb2
from holdfast_controller.shell.services import agent_service
from holdfast_controller.shell.services.host_pacing import HostPacing


@pytest.fixture
def jobs(controller: Controller) -> Any:
    return job_stub(controller.channel("user/ann"))


@pytest.fixture
def hosts(controller: Controller) -> Any:
    return host_stub(controller.channel("user/ann"))


async def submitted(jobs: Any, what: job_pb2.CustomJob | None = None) -> str:
    answer = await jobs.CreateJob(job_pb2.CreateJobRequest(job=what or job()), timeout=WITHIN_S)
    name: str = answer.job.id
    return name


def welcomed(agent: Agent) -> bool:
    return bool(agent.said) and agent.said[0].WhichOneof("message") == "welcome"


async def test_hello_is_answered_by_a_welcome_with_the_epoch_and_the_lease(controller: Controller) -> None:
    async with controller.agent() as agent:
        await agent.until(welcomed)
        welcome = agent.said[0].welcome
    assert welcome.epoch == 1
    assert welcome.heartbeat_interval.seconds == 5
    assert welcome.lease.seconds == 60


async def test_agent_that_says_nothing_is_cut_off(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_service, "HELLO_WITHIN_S", 0.2)
    call = agent_stub(controller.channel("host/host-0")).Session()
    code, error = await refusal(call.read())
    assert (code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_agent_that_starts_with_something_else_is_cut_off(controller: Controller) -> None:
    call = agent_stub(controller.channel("host/host-0")).Session()
    await call.write(agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat()))
    code, _ = await refusal(call.read())
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_nobody_acts_as_another_kind(controller: Controller) -> None:
    host = controller.channel("host/host-0")
    user = controller.channel("user/ann")
    jobs = job_stub(host)
    calls: list[Any] = [
        jobs.CreateJob(job_pb2.CreateJobRequest(job=job())),
        jobs.GetJob(job_pb2.GetJobRequest(id="x")),
        jobs.ListJobs(job_pb2.ListJobsRequest()),
        jobs.CancelJob(job_pb2.CancelJobRequest(id="x")),
        jobs.RestartJob(job_pb2.RestartJobRequest(id="x")),
        jobs.WatchJob(job_pb2.WatchJobRequest(id="x")).read(),
        jobs.StreamLogs(job_pb2.StreamLogsRequest(id="x")).read(),
        host_stub(host).ListHosts(host_pb2.ListHostsRequest()),
        host_stub(host).GetHost(host_pb2.GetHostRequest(name="host-0")),
        host_stub(host).WatchHosts(host_pb2.WatchHostsRequest()).read(),
        host_stub(host).Cordon(host_pb2.CordonRequest(name="host-1")),
        host_stub(host).Uncordon(host_pb2.UncordonRequest(name="host-1")),
        agent_stub(user).Session().read(),
        agent_stub(user).Transfer().read(),
        agent_stub(controller.channel("controller")).Session().read(),
        job_stub(controller.channel("stranger")).ListJobs(job_pb2.ListJobsRequest()),
    ]
    for call in calls:
        code, error = await refusal(call)
        assert (code, error.reason) == (grpc.StatusCode.PERMISSION_DENIED, "DENIED")


async def test_newer_session_of_a_host_ends_the_older_one(controller: Controller, jobs: Any) -> None:
    async with controller.agent() as old:
        await old.until(welcomed)
        async with controller.agent() as new:
            await new.until(welcomed)
            await old.until(lambda a: a.over)
            name = await submitted(jobs)
            await new.until(lambda a: a.phases(name) == ["PREPARE", "RUN"])
            assert old.phases(name) == []
            await new.exit(name, 0)
            await new.until(lambda a: "FORGET" in a.phases(name))


async def test_agent_that_returns_hears_what_is_wanted(controller: Controller, jobs: Any) -> None:
    async with controller.agent() as agent:
        await agent.until(welcomed)
        name = await submitted(jobs)
        await agent.until(lambda a: a.phases(name) == ["PREPARE", "RUN"])
    known = agent_pb2.WorkerReport(
        job_id=name, attempt=1, generation=1, worker="workerpool0-0", state=agent_pb2.REPORTED_STATE_RUNNING
    )
    async with controller.agent(workers=(known,)) as agent:
        await agent.until(lambda a: a.phases(name) == ["RUN"])
        assert agent.said[0].welcome.assignments == 1
        await agent.exit(name, 0)
        await agent.until(lambda a: "FORGET" in a.phases(name))


async def test_repeated_exit_is_acknowledged_again_and_recorded_once(controller: Controller, jobs: Any) -> None:
    async with controller.agent() as agent:
        await agent.until(welcomed)
        name = await submitted(jobs)
        await agent.until(lambda a: "RUN" in a.phases(name))
        for _ in range(3):
            await agent.exit(name, 0)
        await agent.until(lambda a: a.acks() == [1, 2, 3])
        call = jobs.WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S)
        types = [event.type async for event in call]
    assert types.count("RankExited") == 1


async def test_exits_in_one_message_are_each_recorded_or_refused_by_itself(
    controller: Controller, jobs: Any
) -> None:
    what = job()
    what.job_spec.worker_pool_specs[0].processes_per_worker = 3
    async with controller.agent() as agent:
        await agent.until(welcomed)
        assert agent.said[0].welcome.takes_exits_together
        name = await submitted(jobs, what)
        await agent.until(lambda a: "RUN" in a.phases(name))
        reports = [agent_pb2.ExitReport(sequence=n + 1, job_id=name, worker="workerpool0-0") for n in range(6)]
        for report, rank in zip(reports, (0, 1, 1, 0, 2, 7), strict=True):
            report.exit.MergeFrom(
                job_pb2.Exit(attempt=1, generation=1, rank=rank, reason=job_pb2.EXIT_REASON_COMPLETED)
            )
        reports[1].worker = "w" * 300
        reports[3].exit.reason = 99  # type: ignore[assignment]
        await agent.exits_together(reports)
        await agent.until(lambda a: a.acks())
        assert agent.acks_together() == [[1, 3, 5]]
        shown = (await jobs.GetJob(job_pb2.GetJobRequest(id=name), timeout=WITHIN_S)).job
    assert sorted(ended.rank for ended in shown.workers[0].exits) == [0, 1, 2]


@pytest.mark.parametrize("unpacks", [True, False])
async def test_addresses_are_packed_for_agents_that_unpack_them_alone(
    controller: Controller, jobs: Any, monkeypatch: pytest.MonkeyPatch, *, unpacks: bool
) -> None:
    """Those of an earlier release don't say so, and would find no address."""
    monkeypatch.setattr(codec, "PACKED_FROM", 2)
    what = job()
    what.job_spec.worker_pool_specs.append(what.job_spec.worker_pool_specs[0])
    async with controller.agent(unpacks_pools=unpacks) as agent:
        await agent.until(welcomed)
        name = await submitted(jobs, what)
        await agent.until(lambda a: a.phases(name).count("RUN") == 2)
        order = agent.newest_order(name, "workerpool1-0")
    assert order is not None and order.launch.rendezvous.master_port == 20002
    assert bool(order.launch.rendezvous.packed_pools) == unpacks
    known = codec.assignment_from_proto(order).launch
    assert known is not None and known.rendezvous is not None
    assert known.rendezvous.pools == (("127.0.0.1:20001",), ("127.0.0.1:20001",))


async def test_messages_without_exits_count_against_their_host_as_any(
    controller: Controller, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = HostPacing.read
    kinds: list[str | None] = []

    async def noted(self: HostPacing, host: str, message: agent_pb2.SessionRequest) -> None:
        kinds.append(message.WhichOneof("message"))
        await read(self, host, message)

    monkeypatch.setattr(HostPacing, "read", noted)
    async with controller.agent() as agent:
        await agent.until(welcomed)
        name = await submitted(jobs)
        await agent.until(lambda a: "RUN" in a.phases(name))
        await agent.exits_together([])
        await agent.exits_together([])
        sequence = await agent.exit(name, 0)
        await agent.until(lambda a: a.acks() == [sequence])
    assert (kinds.count("exit_reports"), kinds.count("exit_report")) == (2, 1)


async def test_what_is_not_understood_is_not_acknowledged_and_harms_nobody(
    controller: Controller, jobs: Any
) -> None:
    async with controller.agent() as agent:
        await agent.until(welcomed)
        name = await submitted(jobs)
        await agent.until(lambda a: "RUN" in a.phases(name))
        await agent.exit(name, 0, reason=0)
        await agent.exit(name, 0, reason=99)
        report = agent_pb2.WorkerReport(job_id=name, generation=1, worker="workerpool0-0", state=99)  # type: ignore[arg-type]
        await agent.call.write(agent_pb2.SessionRequest(worker_report=report))
        await agent.call.write(agent_pb2.SessionRequest())
        await agent.exit("nowhere", 0)
        await agent.exit(name, 0, rank=5)
        await agent.exit(name, 0, generation=2)
        last = await agent.exit(name, 0)
        await agent.until(lambda a: a.acks() == [last])


async def test_worker_with_fewer_pids_than_ranks_can_be_shown(controller: Controller, jobs: Any) -> None:
    what = job()
    what.job_spec.worker_pool_specs[0].processes_per_worker = 3
    async with controller.agent() as agent:
        await agent.until(welcomed)
        name = await submitted(jobs, what)
        await agent.until(lambda a: "RUN" in a.phases(name))
        call = jobs.WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S)
        while (await call.read()).type != "GangStarted":
            pass
        call.cancel()
        shown = (await jobs.GetJob(job_pb2.GetJobRequest(id=name), timeout=WITHIN_S)).job
    assert [rank.pid for rank in shown.workers[0].ranks] == [8, 0, 0]


async def test_exit_at_an_impossible_time_can_be_shown(controller: Controller, jobs: Any) -> None:
    async with controller.agent() as agent:
        await agent.until(welcomed)
        name = await submitted(jobs)
        await agent.until(lambda a: "RUN" in a.phases(name))
        ended = job_pb2.Exit(attempt=1, generation=1, exit_code=0, reason=job_pb2.EXIT_REASON_COMPLETED)
        ended.end_time.seconds = 1 << 60
        report = agent_pb2.ExitReport(sequence=9, job_id=name, worker="workerpool0-0", exit=ended)
        await agent.call.write(agent_pb2.SessionRequest(exit_report=report))
        await agent.until(lambda a: a.acks() == [9])
        shown = await jobs.GetJob(job_pb2.GetJobRequest(id=name), timeout=WITHIN_S)
    assert shown.job.workers[0].exits[0].exit_code == 0


async def test_hosts_are_listed_shown_watched_and_cordoned(controller: Controller, hosts: Any) -> None:
    watching = hosts.WatchHosts(host_pb2.WatchHostsRequest(), timeout=WITHIN_S)
    async with controller.agent("host-1"), controller.agent("host-0"):
        seen = {(await watching.read()).host.name for _ in range(2)}
        assert seen == {"host-0", "host-1"}
        listed = (await hosts.ListHosts(host_pb2.ListHostsRequest(), timeout=WITHIN_S)).hosts
        assert [host.name for host in listed] == ["host-0", "host-1"]
        cordoned = (await hosts.Cordon(host_pb2.CordonRequest(name="host-1", reason="disk"), timeout=WITHIN_S)).host
        assert (cordoned.cordoned, cordoned.cordon_reason) == (True, "disk")
        news = (await watching.read()).host
        assert (news.name, news.cordoned) == ("host-1", True)
        shown = (await hosts.GetHost(host_pb2.GetHostRequest(name="host-1"), timeout=WITHIN_S)).host
        assert shown.state == host_pb2.HOST_STATE_READY
        freed = (await hosts.Uncordon(host_pb2.UncordonRequest(name="host-1"), timeout=WITHIN_S)).host
        assert not freed.cordoned
    watching.cancel()
    for call in (hosts.GetHost(host_pb2.GetHostRequest(name="x")), hosts.Cordon(host_pb2.CordonRequest(name="x"))):
        code, error = await refusal(call)
        assert (code, error.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


async def test_health_and_reflection_answer(controller: Controller) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    channel = controller.channel("user/ann")
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", "holdfast.v1.JobService", "holdfast.v1.HostService", "holdfast.v1.AgentService"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=WITHIN_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=WITHIN_S)
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = {service.name for service in (await call.read()).list_services_response.service}
    call.cancel()
    assert {"holdfast.v1.JobService", "holdfast.v1.HostService", "holdfast.v1.AgentService"} <= listed
