"""As which account a job runs, over the wire: mapped by an admin, told to hosts, else refused and audited."""

from __future__ import annotations

import dataclasses

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.support.stubs import access_stub, job_stub

from holdfast.errors import AccountDenied
from holdfast.v1 import access_pb2, access_pb2_grpc, host_pb2, job_pb2
from holdfast_controller.shell.base.config import ControllerConfig

pytestmark = pytest.mark.anyio


@pytest.fixture
def config(config: ControllerConfig) -> ControllerConfig:
    return dataclasses.replace(config, admins=("ann",))


@pytest.fixture
async def people(controller: Controller) -> access_pb2_grpc.AccessServiceAsyncStub:
    """What ann calls; bob is a user whose jobs run as bob, or as vision."""
    stub = access_stub(controller.channel("user/ann"))
    grant = access_pb2.Grant(project="*", role=access_pb2.ROLE_USER)
    request = access_pb2.AddUserRequest(name="bob", grant=grant, accounts=["bob", "vision"])
    added = await stub.AddUser(request, timeout=WITHIN_S)
    assert added.user.accounts == ["bob", "vision"]
    return stub


async def submit(controller: Controller, who: str, run_as: str = "") -> job_pb2.CustomJob:
    asked = job()
    asked.job_spec.run_as = run_as
    jobs = job_stub(controller.channel(f"user/{who}"))
    return (await jobs.CreateJob(job_pb2.CreateJobRequest(job=asked), timeout=WITHIN_S)).job


async def test_the_account_is_told_to_the_host_and_shown(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    async with controller.agent("host-0") as agent:
        made = {run_as: await submit(controller, "bob", run_as) for run_as in ("", "vision")}
        mine = await submit(controller, "ann")
        assert [made[""].account, made["vision"].account, mine.account] == ["bob", "vision", ""]
        assert made["vision"].job_spec.run_as == "vision" and made[""].job_spec.run_as == ""

        def told() -> dict[str, str]:
            orders = [m.assignment for m in agent.said if m.WhichOneof("message") == "assignment"]
            return {order.job_id: order.launch.run_as for order in orders}

        expected = {made[""].id: "bob", made["vision"].id: "vision", mine.id: ""}
        await agent.until(lambda _: told() == expected)


async def test_the_account_of_another_is_refused_in_a_sentence_and_audited(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    code, error = await refusal(submit(controller, "bob", "root"))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert isinstance(error, AccountDenied)
    [violation] = error.violations
    assert violation.path == "jobSpec.runAs"
    assert "jobs of bob may run as bob, vision, not as root" in str(error)
    found = await people.ReadAudit(access_pb2.ReadAuditRequest(refused=True), timeout=WITHIN_S)
    [entry] = found.entries
    assert (entry.who, entry.call, entry.outcome) == ("user/bob", "JobService/CreateJob", "PERMISSION_DENIED")
    assert "not as root" in entry.message
    jobs = job_stub(controller.channel("user/bob"))
    assert not (await jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)).jobs


async def test_a_new_mapping_is_listed_and_audited(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    request = access_pb2.MapUserRequest(name="bob", accounts=["speech"])
    await people.MapUser(request, timeout=WITHIN_S)
    listed = await people.ListUsers(access_pb2.ListUsersRequest(), timeout=WITHIN_S)
    assert {user.name: list(user.accounts) for user in listed.users} == {"ann": [], "bob": ["speech"]}
    audit = await people.ReadAudit(access_pb2.ReadAuditRequest(), timeout=WITHIN_S)
    assert [(entry.call, entry.target) for entry in audit.entries if entry.call.endswith("MapUser")] == [
        ("AccessService/MapUser", "user/bob")
    ]


async def test_a_job_whose_account_no_host_can_become_is_refused(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    gpu = host_pb2.Gpu(uuid="g", model="NVIDIA H100 80GB HBM3")
    unable = host_pb2.Inventory(
        cpu_count=8, memory_bytes=1 << 34, max_workers=8, gpus=[gpu], accounts_problem="its agent is not root"
    )
    async with controller.agent("host-0", inventory=unable):
        code, error = await refusal(submit(controller, "bob"))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "needs a host that starts workers as bob (host-0: its agent is not root)" in str(error)
