"""What is checked of a host before each start, with the real agent; each check is provoked."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch
from tests.integration.agent.survival.test_gpus_free_again import UNUSED, ZERO, driver
from tests.support.fake_nvml.library import GIB, FakeNvml

from holdfast.v1 import agent_pb2

TRUE = ["/bin/true"]


def script(path: Path, text: str) -> list[str]:
    """A hook that runs ``text``."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return [str(path)]


async def refused(controller: Controller, **options: Any) -> agent_pb2.WorkerReport:
    """The answer to a PREPARE that the host can't meet."""
    await controller.connected()
    await controller.assign(assignment("PREPARE", TRUE, **options))
    return await controller.state("CANNOT_PREPARE", generation=options.get("generation", 1))


@pytest.mark.parametrize("settings", [{"checks": {"disk_free_mb": 1 << 40}}])
async def test_a_full_disk_is_the_hosts_fault(agent: Agent, controller: Controller) -> None:
    report = await refused(controller)
    assert report.host_fault
    assert report.message.startswith(f"{HOST}: {agent.logs} has ")
    assert report.message.endswith(
        " MiB free of the 1099511627776 that it must have (agent.toml: [checks] disk_free_mb)."
    )


@pytest.mark.parametrize("settings", [{"checks": {"shm_free_mb": 1 << 40}}])
async def test_a_dev_shm_that_is_too_small_is_the_hosts_fault(agent: Agent, controller: Controller) -> None:
    report = await refused(controller)
    assert report.host_fault
    assert report.message.startswith(f"{HOST}: /dev/shm has ")


@pytest.mark.parametrize("settings", [{"checks": {"nofile": 1 << 40}}])
async def test_a_limit_that_is_too_low_is_the_hosts_fault(agent: Agent, controller: Controller) -> None:
    report = await refused(controller)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert report.host_fault
    assert report.message.startswith(f"{HOST}: the limit of nofile is {soft} of the {1 << 40} that it must be")


@pytest.mark.parametrize("settings", [{"port_range": "21000-21000"}])
async def test_a_range_without_a_free_port_is_the_hosts_fault(agent: Agent, controller: Controller) -> None:
    report = await refused(controller)
    assert report.host_fault
    assert report.message == f"{HOST}: no 2 ports of 21000-21000 are free (agent.toml: port_range)."


async def test_what_the_program_is_to_blame_for_is_its_own_fault(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", ["/no/such/program"]))
    report = await controller.state("CANNOT_PREPARE")
    assert "does not exist" in report.message
    assert not report.host_fault
    await controller.assign(assignment("PREPARE", TRUE, cwd="/no/such/place", generation=2))
    report = await controller.state("CANNOT_PREPARE", generation=2)
    assert "working directory" in report.message
    assert not report.host_fault


async def test_a_disk_that_fills_up_is_noticed_before_the_restart_in_place(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    await controller.state("RUNNING")
    assert agent.process is not None
    limit = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (1000, limit[1]))
    await controller.assign(assignment("PREPARE", SLEEP, generation=2))
    report = await controller.state("CANNOT_PREPARE", generation=2)
    assert report.host_fault
    assert "nofile is 1000" in report.message
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, limit)
    await controller.assign(assignment("PREPARE", SLEEP, generation=3))
    await controller.state("PREPARED", generation=3)


# --- GPUs -------------------------------------------------------------------------------------------------------


@pytest.mark.require("cc")
class TestGpus:
    @pytest.fixture
    def settings(self, fake_nvml: FakeNvml) -> dict[str, Any]:
        driver(fake_nvml, UNUSED)
        return {"simulated_gpus": 0}

    async def test_a_foreign_process_on_a_gpu_is_the_hosts_fault(
        self, agent: Agent, controller: Controller, fake_nvml: FakeNvml
    ) -> None:
        await controller.connected()
        await agent.appeared(agent.root / "state/gpu_unused.json")
        driver(fake_nvml, 30 * GIB, "pid 0 1")
        report = await refused(controller, gpus=ZERO)
        assert report.host_fault
        assert report.message == (
            f"{HOST}: GPU 0 (GPU-0) holds 30200 MiB more than when it was empty and is used by process 1,"
            " though nothing of ours runs there."
        )
        driver(fake_nvml, UNUSED)
        await controller.assign(assignment("PREPARE", TRUE, gpus=ZERO))
        await controller.state("PREPARED")

    async def test_a_gpu_that_is_gone_is_the_hosts_fault(self, agent: Agent, controller: Controller) -> None:
        report = await refused(controller, gpus=("MIG-1",))
        assert report.host_fault
        assert report.message == f"{HOST}: the GPU MIG-1 is not there."

    async def test_another_workers_gpu_may_be_in_use(
        self, agent: Agent, controller: Controller, fake_nvml: FakeNvml
    ) -> None:
        await controller.connected()
        driver(fake_nvml, UNUSED, "pid 1 1")
        await controller.assign(assignment("PREPARE", TRUE, gpus=ZERO))
        await controller.state("PREPARED")

    async def test_a_visit_of_a_moment_is_forgiven(
        self, agent: Agent, controller: Controller, fake_nvml: FakeNvml
    ) -> None:
        await controller.connected()
        await agent.appeared(agent.root / "state/gpu_unused.json")
        driver(fake_nvml, UNUSED, "pid 0 1")
        await controller.assign(assignment("PREPARE", TRUE, gpus=ZERO))
        await controller.heartbeats(1)
        driver(fake_nvml, UNUSED)
        await controller.state("PREPARED")


# --- peers ------------------------------------------------------------------------------------------------------


def with_peer(prepared: agent_pb2.WorkerReport, name: str) -> agent_pb2.Assignment:
    order = assignment("RUN", SLEEP, prepared=prepared)
    order.launch.rendezvous.pools[0].addresses.append(f"{name}:20000")
    return order


async def test_a_peer_whose_name_does_not_resolve_stops_the_launch(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", SLEEP))
    prepared = await controller.state("PREPARED")
    began = time.monotonic()
    await controller.assign(with_peer(prepared, "no-such-host.invalid"))
    report = await controller.state("CANNOT_PREPARE")
    assert time.monotonic() - began < 25
    assert report.host_fault
    assert "peer" in report.message
    assert "no-such-host.invalid" in report.message
    assert not list(agent.workers.glob("*/*/g1.journal"))


async def test_peers_by_a_name_that_resolves_are_launched(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", SLEEP))
    prepared = await controller.state("PREPARED")
    await controller.assign(with_peer(prepared, "localhost"))
    await controller.state("RUNNING")


@pytest.mark.parametrize("settings", [{"checks": {"peer_names": False}}])
async def test_names_of_peers_are_not_looked_up_where_nobody_wants_it(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", SLEEP))
    prepared = await controller.state("PREPARED")
    await controller.assign(with_peer(prepared, "no-such-host.invalid"))
    await controller.state("RUNNING")


# --- prolog and epilog ------------------------------------------------------------------------------------------


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """``hooks`` of a test by the texts of their scripts."""
    wanted = dict(getattr(request, "param", {}))
    if texts := wanted.pop("scripts", None):
        hooks: dict[str, Any] = {"timeout": wanted.pop("timeout", 20)}
        for name, text in texts.items():
            hooks[name] = script(tmp_path / f"{name}.sh", text)
        wanted["hooks"] = hooks
    return wanted


TELL = (
    'echo "$HOLDFAST_PHASE $HOLDFAST_JOB $HOLDFAST_WORKER $HOLDFAST_HOST $HOLDFAST_OWNER:$HOLDFAST_ACCOUNT'
    ' g$HOLDFAST_GENERATION" >> ${0%/*}/told'
)


@pytest.mark.parametrize("settings", [{"scripts": {"prolog": TELL, "epilog": TELL}}], indirect=True)
async def test_prolog_and_epilog_surround_each_generation(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    await controller.state("RUNNING")
    await launch(controller, TRUE, generation=2)
    assert (await controller.exit(generation=2)).exit.exit_code == 0
    await controller.state("EMPTY", generation=2)
    account = pwd.getpwuid(os.getuid()).pw_name
    about = f"job-1 workerpool0-0 {HOST} ann:{account}"
    assert (agent.root / "told").read_text().splitlines() == [
        f"prolog {about} g1",
        f"epilog {about} g1",
        f"prolog {about} g2",
        f"epilog {about} g2",
    ]


@pytest.mark.parametrize(
    "settings", [{"scripts": {"prolog": "echo first >&2; echo the fabric is down. >&2; exit 3"}}], indirect=True
)
async def test_a_prolog_that_fails_is_the_hosts_fault_with_its_last_words(
    agent: Agent, controller: Controller
) -> None:
    report = await refused(controller)
    assert report.host_fault
    assert report.message == f"{HOST}: the prolog {agent.root}/prolog.sh failed with code 3: the fabric is down."


@pytest.mark.parametrize(
    "settings", [{"scripts": {"prolog": "sleep 612.5 & sleep 612.5"}, "timeout": 0.5}], indirect=True
)
async def test_a_prolog_that_hangs_is_killed_with_its_children(agent: Agent, controller: Controller) -> None:
    report = await refused(controller)
    assert report.host_fault
    assert report.message.endswith("did not end within 0.5 s and was killed.")
    await agent.until(lambda: not running(b"612.5"), "the end of the prolog's children")


@pytest.mark.parametrize("settings", [{"hooks": {"prolog": ["/no/such/prolog"]}}])
async def test_a_prolog_that_is_not_there_is_the_hosts_fault(agent: Agent, controller: Controller) -> None:
    report = await refused(controller)
    assert report.host_fault
    assert "/no/such/prolog could not be started: no such file" in report.message


@pytest.mark.parametrize("settings", [{"scripts": {"epilog": "echo no umount >&2; exit 1"}}], indirect=True)
async def test_an_epilog_that_fails_is_told_and_keeps_later_generations_away_but_loses_no_exit(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, [sys.executable, "-c", "raise SystemExit(9)"])
    assert (await controller.exit()).exit.exit_code == 9
    report = await controller.state("EMPTY")
    assert report.host_fault
    assert report.message == f"{HOST}: the epilog {agent.root}/epilog.sh failed with code 1: no umount."
    await controller.assign(assignment("PREPARE", TRUE, generation=2))
    report = await controller.state("CANNOT_PREPARE", generation=2)
    assert report.host_fault
    assert "no umount" in report.message


SLOW_ONCE = TELL + "; test -e ${0%/*}/again || { touch ${0%/*}/again; sleep 600; }"


@pytest.mark.parametrize("settings", [{"scripts": {"epilog": SLOW_ONCE}}], indirect=True)
async def test_an_epilog_that_the_agents_death_cut_off_runs_again(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, TRUE)
    await agent.appeared(agent.root / "again")
    agent.kill()
    agent.start()
    await controller.connected(2)
    assert (await controller.exit()).exit.exit_code == 0
    await agent.until(lambda: (agent.root / "told").read_text().count("epilog") == 2, "a second epilog")
    account = pwd.getpwuid(os.getuid()).pw_name
    assert (agent.root / "told").read_text().count(f" ann:{account} ") == 2, "in a later life of the agent too"
    await agent.appeared(agent.workers / "job-1/workerpool0-0/closed")


def running(argument: bytes) -> bool:
    """Whether a process was started with that argument."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if argument in path.read_bytes().split(b"\0"):
                return True
    return False
