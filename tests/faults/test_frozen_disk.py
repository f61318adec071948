"""A disk that stands still, and one that loses its power."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import gone
from tests.faults.frozen_disk import Disk, mounted
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch

from holdfast.dev import processes
from holdfast.errors import StoreError
from holdfast.v1 import job_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import Inventory
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.store import Store

pytestmark = [pytest.mark.require("root"), pytest.mark.require("freeze")]

WRITES = """
import os, sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    print("writing", flush=True)
    while True:
        file.write(b"x")
        time.sleep(0.02)
"""


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Disk]:
    """Where a training program writes."""
    with mounted(tmp_path / "data.img", tmp_path / "data") as disk:
        yield disk


async def test_worker_that_waits_for_a_frozen_disk_withholds_its_place_until_it_is_gone(
    data: Disk, agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, [sys.executable, "-c", WRITES, str(data.path / "out")], cwd="/")
    (rank,) = (await controller.state("RUNNING")).ranks
    await agent.output("job-1/g1/workerpool0-0.r0.out", "writing")
    data.freeze()
    try:
        await agent.until(lambda: getattr(processes.stat(rank.pid), "state", "") == "D", "a rank in D state")
        await controller.assign(assignment("STOP", grace_s=0.2))
        stuck = await controller.state("STUCK")
        assert f"{rank.pid}" in stuck.message
        assert controller.exits() == []
    finally:
        data.thaw()
    ended = await controller.exit()
    assert ended.exit.reason == job_pb2.EXIT_REASON_STOPPED
    assert ended.exit.signal in (signal.SIGTERM, signal.SIGKILL)  # both were waiting for it
    await controller.state("EMPTY")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Disk]:
    """Where the agent keeps its state, set up before it."""
    with mounted(tmp_path / "state.img", tmp_path / "state") as disk:
        yield disk


@pytest.mark.parametrize("settings", [{"checks": {"disk_free_mb": 0}}])
async def test_exit_that_was_told_survives_a_power_loss_and_what_ran_is_lost_to_the_reboot(
    state: Disk, agent: Agent, controller: Controller, settings: dict[str, object]
) -> None:
    controller.acknowledge = False
    await controller.connected()
    await launch(controller, SLEEP, worker="workerpool0-1", first_rank=1)
    await controller.state("RUNNING", worker="workerpool0-1")
    await launch(controller, [sys.executable, "-c", "raise SystemExit(7)"])
    assert (await controller.exit(0)).exit.exit_code == 7
    everyone = [*agent.processes()]
    state.lose_power()
    agent.kill()
    for pid in everyone:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await agent.until(lambda: gone(everyone), "the machine to be dead")
    state.power_on()
    agent.rewrite_boot("another-boot")
    controller.heard.clear()
    controller.acknowledge = True
    agent.start()
    again = await controller.exit(0)
    assert (again.exit.exit_code, again.exit.reason) == (7, job_pb2.EXIT_REASON_NONZERO_EXIT)
    lost = await controller.exit(1)
    assert lost.exit.reason == job_pb2.EXIT_REASON_LOST_REBOOT
    assert not lost.exit.HasField("exit_code")
    assert not lost.exit.HasField("signal")


def record(sequence: int) -> Record:
    event = (
        ev.HostLost(host="host-0", at=Wall(float(sequence)), silent_s=75.0)
        if sequence % 2
        else ev.HostReturned(host="host-0", at=Wall(float(sequence)))
    )
    return Record(sequence, "host/host-0", type(event).__name__, 1, event.at, "", "", codec.dump_event(event))


def test_what_the_controller_has_committed_survives_a_power_loss(state: Disk) -> None:
    store = Store(state.path / "controller/holdfast.db")
    store.call(store.open).result(60)
    joined = ev.HostJoined(
        host="host-0", at=Wall(0.5), address="a", boot_id="boot", agent_version="1", inventory=Inventory(1, 1)
    )
    first = Record(1, "host/host-0", "HostJoined", 1, 0.5, "", "", codec.dump_event(joined))
    store.call(store.commit, [first]).result(60)
    for sequence in range(2, 40):
        store.call(store.commit, [record(sequence)]).result(60)
    state.lose_power()
    with pytest.raises(StoreError):
        store.call(store.commit, [record(40)]).result(60)
    store.close()
    state.power_on()
    again = Store(store.path)
    try:
        cluster = again.call(again.open).result(60)
        assert cluster.sequence == 39
        assert cluster.hosts["host-0"].lost
    finally:
        again.close()
