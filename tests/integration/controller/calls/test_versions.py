"""Agents of every version call: neighbours work, the rest are turned away with a sentence that is kept."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.support.stubs import agent_stub, host_stub, job_stub

from holdfast import __version__
from holdfast._session import protocol
from holdfast.v1 import agent_pb2, host_pb2, job_pb2

OURS = 5
"""For the length of a test this controller speaks so."""


@pytest.fixture(autouse=True)
def spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PROTOCOL", OURS)


async def host(controller: Controller) -> Any:
    hosts = host_stub(controller.channel("user/ann"))
    return (await hosts.GetHost(host_pb2.GetHostRequest(name="host-0"), timeout=WITHIN_S)).host


@pytest.mark.parametrize("theirs", [OURS - 1, OURS, OURS + 1])
async def test_a_job_runs_to_its_end_with_a_neighbour(controller: Controller, theirs: int) -> None:
    jobs = job_stub(controller.channel("user/ann"))
    async with controller.agent(protocol=theirs) as agent:
        await agent.until(lambda a: a.said)
        welcome = agent.said[0].welcome
        assert (welcome.controller_version, welcome.protocol) == (__version__, OURS)
        name = (await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
        await agent.until(lambda a: a.phases(name) == ["PREPARE", "RUN"])
        await agent.exit(name, 0)
        await agent.until(lambda a: "FORGET" in a.phases(name))


async def test_an_agent_that_says_no_number_works_with_the_second_protocol(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "PROTOCOL", 2)
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said and a.said[0].WhichOneof("message") == "welcome")


@pytest.mark.parametrize(
    ("theirs", "what"), [(0, "Upgrade the agent of host-0"), (OURS + 2, "Upgrade the controller first")]
)
async def test_any_other_is_turned_away_and_that_is_kept(controller: Controller, theirs: int, what: str) -> None:
    call = agent_stub(controller.channel("host/host-0")).Session()
    hello = agent_pb2.Hello(agent_version="0.7", protocol=theirs)
    await call.write(agent_pb2.SessionRequest(hello=hello))
    code, error = await refusal(call.read())
    assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_VERSION")
    assert what in str(error)
    known = await host(controller)
    assert (known.agent_version, known.refused) == ("0.7", str(error))


async def test_an_agent_that_was_turned_away_is_taken_in_once_it_is_upgraded(controller: Controller) -> None:
    call = agent_stub(controller.channel("host/host-0")).Session()
    await call.write(agent_pb2.SessionRequest(hello=agent_pb2.Hello(agent_version="0.7")))
    await refusal(call.read())
    async with controller.agent(protocol=OURS) as agent:
        await agent.until(lambda a: a.said)
        known = await host(controller)
        assert (known.refused, known.state) == ("", host_pb2.HOST_STATE_READY)
        assert len(known.inventory.gpus) == 4
