"""A real agent binds a real rank by what /sys says of its host, reports it, and knows it again after a restart."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment
from tests.support.fake_nvml import sysfs

from holdfast.v1 import agent_pb2, job_pb2, spec_pb2

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="this machine has one CPU")
PROGRAM = """
import os, time
said = [line.split()[1] for line in open("/proc/self/status") if line.startswith("Cpus_allowed_list")]
print(*said, os.environ["HOLDFAST_NICS"], os.environ["CARDS"], flush=True)
time.sleep(600)
"""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, object]:
    """A host with a NUMA node for each of two CPUs, whose second has the first GPU."""
    root = sysfs.build(
        tmp_path / "sys",
        [str(CPUS[0]), str(CPUS[1])],
        gpus={"ffff:01:00.0": 1, "ffff:02:00.0": 0},
        nics={"mlx5_0": ("ffff:02:00.0", 0), "mlx5_1": ("ffff:01:00.0", 1)},
    )
    return {"simulated_gpus": 2, "simulated_topology": root}


def wanted(phase: str, mode: str, prepared: agent_pb2.WorkerReport | None = None) -> agent_pb2.Assignment:
    gpus = (f"GPU-sim-{HOST}-0", f"GPU-sim-{HOST}-1")
    command = [sys.executable, "-c", PROGRAM]
    env = {"CARDS": "$(HOLDFAST_NICS)"}
    made = assignment(phase, command, processes=2, gpus=gpus, prepared=prepared, env=env)
    made.launch.numa_binding = spec_pb2.NumaBinding.Value(f"NUMA_BINDING_{mode}")
    return made


@pytest.mark.parametrize("mode", ["NODE", "EXCLUSIVE"])
async def test_ranks_run_where_their_gpus_are(agent: Agent, controller: Controller, mode: str) -> None:
    await controller.connected()
    await controller.assign(wanted("PREPARE", mode))
    prepared = await controller.state("PREPARED")
    await controller.assign(wanted("RUN", mode, prepared))
    report = await controller.state("RUNNING")
    first, second = str(CPUS[0]), str(CPUS[1])
    own = mode == "EXCLUSIVE"
    expected = [
        job_pb2.RankBinding(cpus=second, exclusive=own, memory_nodes="1", nics=["mlx5_1", "mlx5_0"]),
        job_pb2.RankBinding(cpus=first, exclusive=own, memory_nodes="0", nics=["mlx5_0", "mlx5_1"]),
    ]
    assert [each.binding for each in report.ranks] == expected
    await agent.output("job-1/g1/workerpool0-0.r0.out", f"{second} mlx5_1,mlx5_0 mlx5_1,mlx5_0\n")
    await agent.output("job-1/g1/workerpool0-0.r1.out", f"{first} mlx5_0,mlx5_1 mlx5_0,mlx5_1\n")
    agent.kill()
    agent.start()
    hello = await controller.connected(2)
    assert [each.binding for each in hello.workers[0].ranks] == expected


async def test_a_host_whose_sys_is_nonsense_starts_its_ranks(
    agent: Agent, controller: Controller, tmp_path: Path
) -> None:
    await controller.connected()
    for path in (tmp_path / "sys").rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff" * 70_000)
    agent.kill()
    agent.start()
    await controller.connected(2)
    await controller.assign(wanted("PREPARE", "EXCLUSIVE"))
    await controller.assign(wanted("RUN", "EXCLUSIVE", await controller.state("PREPARED")))
    report = await controller.state("RUNNING")
    assert [each.binding.cpus for each in report.ranks] == [str(CPUS[0]), str(CPUS[1])]
    assert not any(each.binding.memory_nodes for each in report.ranks)
