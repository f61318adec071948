"""A host's key in other hands: however much it says, little is stored, the admin is told, and no exit is lost."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.controller.calls.test_log_streams import jobs, running
from tests.integration.controller.cluster import WITHIN_S, Agent, Controller, job, refusal
from tests.integration.controller.conftest import certificates, config, controller
from tests.support.stubs import agent_stub, host_stub

from holdfast.errors import InvalidInput, TooMany
from holdfast.v1 import agent_pb2, host_pb2, job_pb2
from holdfast_controller.core.model.hosts import throttling
from holdfast_controller.core.model.hosts.throttling import MessageKind
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.calls import bounds, field_bounds
from holdfast_controller.shell.services import host_pacing
from holdfast_controller.shell.services.streams import transfers

__all__ = ["certificates", "config", "controller", "jobs"]
pytestmark = pytest.mark.anyio
KIB = 1 << 10


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB an hour of each kind; ask for it before the controller."""
    for kind in MessageKind:
        monkeypatch.setitem(throttling.PER_HOUR, kind, 64 * KIB)
    monkeypatch.setattr(host_pacing, "HELD_S", 0.05)


@pytest.fixture
def paid_back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB of inventories, in 8 s instead of an hour."""
    monkeypatch.setattr(throttling, "HOUR_S", 8.0)
    monkeypatch.setitem(throttling.PER_HOUR, MessageKind.INVENTORY, 64 * KIB)


def stored_bytes(config: ControllerConfig) -> int:
    return sum(path.stat().st_size for path in config.state_dir.glob("holdfast.db*"))


def stored_rows(config: ControllerConfig, folder: Path) -> dict[str, int]:
    """Rows of every table but ``meta``, where each answered heartbeat replaces one."""
    for path in config.state_dir.glob("holdfast.db*"):
        shutil.copy(path, folder)  # the controller alone may open its own
    with contextlib.closing(sqlite3.connect(folder / "holdfast.db")) as copy:
        names = [name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: copy.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names if name != "meta"
        }


def inventory(number: int, gpus: int = 16) -> host_pb2.Inventory:
    """16 KiB, different for each number."""
    return host_pb2.Inventory(
        cpu_count=16,
        memory_bytes=64 << 30,
        max_workers=8,
        accounts=True,
        gpus=[
            host_pb2.Gpu(uuid=f"g{i}", index=i, model="H100", problem=f"{number} {'x' * KIB}") for i in range(gpus)
        ],
    )


async def beat(agent: Agent, said: host_pb2.Inventory | None = None) -> None:
    await agent.call.write(agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat(inventory=said)))


async def heard(agent: Agent, beats: int) -> None:
    """Wait until so many heartbeats were answered."""
    await agent.until(lambda a: sum(m.WhichOneof("message") == "heartbeat_ack" for m in a.said) >= beats)


async def shown(controller: Controller) -> host_pb2.Host:
    stub = host_stub(controller.channel("user/ann"))
    answer = await stub.GetHost(host_pb2.GetHostRequest(name="host-0"), timeout=WITHIN_S)
    host: host_pb2.Host = answer.host
    return host


async def test_inventories_without_end_store_no_more_than_is_allowed_and_heartbeats_go_on(
    allowed: None, controller: Controller, config: ControllerConfig
) -> None:
    async with controller.agent() as agent:
        before = stored_bytes(config)
        for number in range(200):
            await beat(agent, inventory(number))
        await heard(agent, 200)
        host = await shown(controller)
        # 200 inventories are 3.3 MB, and each commit is in the write-ahead log as well as in the database.
        assert stored_bytes(config) - before < 600_000
        assert host.state == host_pb2.HOST_STATE_READY
        assert host.throttled.startswith(
            "exceeds what a host may store, so some messages are held back: inventory ("
        )
        assert "its key may be stolen" in host.throttled


async def test_the_newest_inventory_that_was_held_back_counts_in_the_end(
    paid_back_soon: None, controller: Controller
) -> None:
    async with controller.agent() as agent:
        for number in range(8):
            await beat(agent, inventory(number))
        await heard(agent, 8)
        assert (await shown(controller)).inventory.gpus[0].problem[:2] != "7 ", "it is held back"
        async with asyncio.timeout(WITHIN_S):
            while (await shown(controller)).inventory.gpus[0].problem[:2] != "7 ":
                await asyncio.sleep(0.2)
                await beat(agent)


async def test_the_same_inventory_again_stores_nothing(
    controller: Controller, config: ControllerConfig, tmp_path: Path
) -> None:
    async with controller.agent() as agent:
        await beat(agent, inventory(1))
        await heard(agent, 1)
        await shown(controller)
        before = await asyncio.to_thread(stored_rows, config, tmp_path)
        for _ in range(100):
            await beat(agent, inventory(1))
        await heard(agent, 101)
        assert not (await shown(controller)).throttled
        assert await asyncio.to_thread(stored_rows, config, tmp_path) == before


async def test_no_exit_is_lost_of_a_host_that_is_throttled(
    allowed: None, controller: Controller, jobs: Any
) -> None:
    async with running(controller, jobs) as (name, agent):
        for number in range(60):
            await agent.exit(name, number % 7 + 1, message=f"{number} " + "x" * 3_000)
        await agent.until(lambda a: len(a.acks()) == a.sequence)
        assert agent.acks() == list(range(1, 61))
        found = (await jobs.GetJob(job_pb2.GetJobRequest(id=name), timeout=WITHIN_S)).job
        assert any(ended.exit_code == 1 for worker in found.workers for ended in worker.exits)


async def test_what_takes_so_long_in_ever_new_words_is_held_back(
    allowed: None, controller: Controller, jobs: Any, config: ControllerConfig
) -> None:
    async with controller.agent() as agent:
        agent.obey = False
        name = (await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
        await agent.until(lambda a: a.phases(name))
        order = next(m.assignment for m in agent.said if m.WhichOneof("message") == "assignment")
        before = stored_bytes(config)
        began = time.monotonic()
        for number in range(60):
            words = f"{number} " + "x" * 3_900
            await agent.report(order, agent_pb2.REPORTED_STATE_PREPARING, words)
        await beat(agent)
        await heard(agent, 1)
        # 16 are within what is allowed; each further one waited.
        assert time.monotonic() - began > 30 * host_pacing.HELD_S
        assert stored_bytes(config) - before < 1_500_000
        assert "worker (" in (await shown(controller)).throttled


async def test_hellos_that_say_ever_new_things_are_refused_until_the_debt_is_paid(
    allowed: None, controller: Controller
) -> None:
    stub = agent_stub(controller.channel("host/host-0"))
    refused = None
    for number in range(30):
        hello = agent_pb2.Hello(agent_version="1", boot_id=f"b{number}", inventory=inventory(number))
        call = stub.Session()
        await call.write(agent_pb2.SessionRequest(hello=hello))
        try:
            async with asyncio.timeout(WITHIN_S):
                assert await call.read() is not grpc.aio.EOF
        except grpc.aio.AioRpcError:
            code, refused = await refusal(call.read())
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            break
        call.cancel()
    assert isinstance(refused, TooMany)
    assert "host-0 has changed what it reports of itself too often. Connect again in " in str(refused)
    assert 2 < number < 10


@pytest.fixture
def read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 messages at once and 100 a second; ask for it before the controller."""
    monkeypatch.setattr(host_pacing, "MESSAGES_BURST", 200)
    monkeypatch.setattr(host_pacing, "MESSAGES_PER_S", 100)


async def test_a_host_that_sends_without_end_is_read_no_faster_than_its_rate(
    read_slowly: None, controller: Controller
) -> None:
    async with controller.agent() as hostile, controller.agent("host-1") as other:
        began = time.monotonic()
        for _ in range(300):
            await beat(hostile)
        await beat(other)
        await heard(other, 1)
        meanwhile = sum(m.WhichOneof("message") == "heartbeat_ack" for m in hostile.said)
        await heard(hostile, 300)
        # Its session took 50 of the first 200.
        assert time.monotonic() - began >= 1.4
        assert meanwhile < 300, "the other host was not made to wait"


async def test_an_inventory_of_too_many_bytes_or_faults_is_not_taken_in() -> None:
    most = field_bounds.TABLE["Gpu.faults"].items
    faults = [host_pb2.GpuFault(cause=f"{number}") for number in range(most + 1)]
    for wrong, words in (
        (inventory(1, gpus=256), "bytes"),
        (
            host_pb2.Inventory(gpus=[host_pb2.Gpu(uuid=f"g{i}", faults=faults) for i in range(2)]),
            f"{most + 1} entries",
        ),
    ):
        with pytest.raises(InvalidInput, match=words):
            bounds.check(agent_pb2.Hello(inventory=wrong), from_host=True)


async def test_bytes_that_were_not_asked_for_are_read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "UNASKED_BURST", 1 << 20)
    monkeypatch.setattr(transfers, "UNASKED_PER_S", 10 << 20)
    served = transfers.Transfers()
    chunk = agent_pb2.TransferRequest(chunk=agent_pb2.TransferChunk(id=7, data=b"x" * (1 << 20)))

    async def flood() -> Any:
        for _ in range(6):
            yield chunk

    began = time.monotonic()
    async for _ in served.serve("host-0", flood()):
        pass
    assert time.monotonic() - began >= 0.4
