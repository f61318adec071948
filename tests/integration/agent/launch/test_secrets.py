"""Values of secrets through the real agent and the real shim: to the ranks, and nowhere else."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment

from holdfast.v1 import agent_pb2

CANARY = b"sk-\xff-canary-$(HOME)"
COMMAND = ["/bin/sh", "-c", 'printf %s "$KEY" | sha256sum; printf %s "$FROM_FILE" | sha256sum']


def order(phase: str, file: Path, *, value: bytes | None = None, **options: Any) -> agent_pb2.Assignment:
    message = assignment(phase, COMMAND, **options)
    message.launch.process.secret_env.add(name="KEY", secret="wandb")
    message.launch.process.secret_env.add(name="FROM_FILE", file=str(file))
    if value is not None:
        message.launch.secrets.add(name="KEY", value=value)
    return message


async def test_ranks_get_values_that_are_in_no_file_and_none_are_started_without(
    agent: Agent, controller: Controller, tmp_path: Path
) -> None:
    hello = await controller.connected()
    assert hello.inventory.gives_secrets
    file = tmp_path / "key"
    file.write_bytes(CANARY)
    await controller.assign(order("PREPARE", file))
    prepared = await controller.state("PREPARED")
    await controller.assign(order("RUN", file, prepared=prepared))
    refused = await controller.state("CANNOT_PREPARE")
    assert refused.message == f"{HOST}: the controller has sent no value for KEY"

    await controller.assign(order("PREPARE", file, generation=2))
    prepared = await controller.state("PREPARED", generation=2)
    await controller.assign(order("RUN", file, generation=2, prepared=prepared, value=CANARY))
    assert (await controller.exit(generation=2)).exit.exit_code == 0
    digest = hashlib.sha256(CANARY).hexdigest()
    assert (agent.logs / "job-1/g2/workerpool0-0.r0.out").read_text().split() == [digest, "-"] * 2
    for path in agent.root.rglob("*"):
        if path.is_file() and path != file:
            assert b"-canary-" not in path.read_bytes(), path


async def test_a_file_that_cannot_be_read_is_told_before_anything_starts(
    agent: Agent, controller: Controller, tmp_path: Path
) -> None:
    await controller.connected()
    await controller.assign(order("PREPARE", tmp_path / "none"))
    refused = await controller.state("CANNOT_PREPARE")
    assert refused.message == f"{HOST}: FROM_FILE: {tmp_path}/none is no file that root can read."
    assert not refused.host_fault
