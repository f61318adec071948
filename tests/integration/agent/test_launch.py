"""A worker's whole life through the real agent and the real shim."""

from __future__ import annotations

import json
import sys

from holdfast.v1 import job_pb2

from .conftest import Agent
from .controller import Controller, assignment

PYTHON = sys.executable


async def test_exit_code_travels_from_rank_to_controller(agent: Agent, controller: Controller) -> None:
    hello = await controller.connected()
    assert hello.inventory.cpu_count > 0 and len(hello.inventory.gpus) == 4 and hello.boot_id
    assert controller.callers == ["holdfast://test/host/host-0"]
    command = [PYTHON, "-c", "import sys; print('bye', file=sys.stderr); sys.exit(7)"]
    await controller.assign(assignment("PREPARE", command))
    prepared = await controller.state("PREPARED")
    assert prepared.port and prepared.master_port and prepared.port != prepared.master_port
    await controller.assign(assignment("RUN", command, prepared=prepared))
    report = await controller.exit()
    assert report.exit.exit_code == 7 and not report.exit.HasField("signal")
    assert report.exit.reason == job_pb2.EXIT_REASON_NONZERO_EXIT
    assert list(report.stderr_tail) == ["bye"]
    await controller.state("EMPTY")


async def test_ranks_find_the_contract_in_their_environment(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    command = [PYTHON, "-c", code]
    extra = {
        "env": {"GREETING": "rank $(RANK)", "RANK": "99"},
        "processes": 2,
        "gpus": ("GPU-sim-host-0-1", "GPU-sim-host-0-2"),
    }
    await controller.assign(assignment("PREPARE", command, **extra))
    prepared = await controller.state("PREPARED")
    await controller.assign(assignment("RUN", command, prepared=prepared, **extra))
    for rank in (0, 1):
        assert (await controller.exit(rank)).exit.exit_code == 0
        env = json.loads((agent.logs / f"job-1/g1/workerpool0-0.r{rank}.out").read_text())
        assert env["RANK"] == env["LOCAL_RANK"] == str(rank)
        assert env["GREETING"] == f"rank {rank}"
        assert env["MASTER_PORT"] == str(prepared.master_port)
