"""Secrets on a real link and a real disk: kept, used and forgotten; no byte of a value where it doesn't belong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from tests.integration.controller.cluster import WITHIN_S, Agent, Certificates, Controller, job, refusal
from tests.support.stubs import access_stub, job_stub, secret_stub

from holdfast.errors import InvalidSpec, WrongState
from holdfast.v1 import (
    access_pb2,
    agent_pb2,
    host_pb2,
    job_pb2,
    secret_pb2,
)
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main.server import serve
from holdfast_controller.shell.secrets import secret_keys

CANARY = b"sk-canary-77"


@contextlib.asynccontextmanager
async def serving(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Controller]:
    """A controller that ends with the block, to be followed by another one on the same disk."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(serve(config, ready.set_result))
        async with asyncio.timeout(30):
            served = Controller(await ready, certificates)
        yield served
        await served.close()
        task.cancel()


def secrets(controller: Controller, who: str = "ann") -> Any:
    return secret_stub(controller.channel(f"user/{who}"))


async def give(controller: Controller, name: str = "wandb", value: bytes = CANARY, **where: str) -> None:
    request = secret_pb2.SetSecretRequest(name=name, value=value, **where)
    await secrets(controller).SetSecret(request, timeout=WITHIN_S)


def needing(name: str = "wandb") -> job_pb2.CustomJob:
    wanted = job()
    wanted.job_spec.worker_pool_specs[0].process_spec.secret_env.add(name="KEY", secret=name)
    return wanted


async def submit(controller: Controller, wanted: job_pb2.CustomJob) -> str:
    stub = job_stub(controller.channel("user/ann"))
    answer = await stub.CreateJob(job_pb2.CreateJobRequest(job=wanted), timeout=WITHIN_S)
    return str(answer.job.id)


@contextlib.asynccontextmanager
async def agent(controller: Controller) -> AsyncIterator[Agent]:
    inventory = host_pb2.Inventory(cpu_count=16, memory_bytes=64 << 30, max_workers=8, gives_secrets=True)
    inventory.gpus.add(uuid="G", index=0, model="NVIDIA H100 80GB HBM3")
    async with controller.agent(inventory=inventory) as connected:
        yield connected


async def audited(controller: Controller, call: str) -> set[str]:
    """What calls of that name were about; all of them are on disk then."""
    stub = access_stub(controller.channel("user/ann"))
    found = await stub.ReadAudit(access_pb2.ReadAuditRequest(), timeout=WITHIN_S)
    return {entry.target for entry in found.entries if entry.call == f"SecretService/{call}"}


def orders(heard: Agent, phase: str) -> list[agent_pb2.Launch]:
    number = agent_pb2.AssignmentPhase.Value(f"ASSIGNMENT_PHASE_{phase}")
    return [message.assignment.launch for message in heard.said if message.assignment.phase == number]


def assert_nowhere(directory: Path, value: bytes = CANARY) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            assert value not in path.read_bytes(), path


async def test_a_value_reaches_the_host_with_the_order_to_run_and_no_disk(
    controller: Controller, config: ControllerConfig
) -> None:
    await give(controller)
    await give(controller, "other", project="vision")
    async with agent(controller) as heard:
        name = await submit(controller, needing())
        [run] = await heard.until(lambda a: orders(a, "RUN"))
        assert [(each.name, each.value) for each in run.secrets] == [("KEY", CANARY)]
        [prepare] = orders(heard, "PREPARE")
        assert not prepare.secrets and [each.secret for each in prepare.process.secret_env] == ["wandb"]
        # The newest value goes with the next launch.
        await give(controller, value=b"newer")
        await heard.exit(name, 1)
        later = await heard.until(lambda a: orders(a, "RUN")[1:])
        assert [each.value for each in later[0].secrets] == [b"newer"]
    listed = await secrets(controller).ListSecrets(secret_pb2.ListSecretsRequest(all=True), timeout=WITHIN_S)
    assert [(each.project or each.user, each.name) for each in listed.secrets] == [
        ("vision", "other"),
        ("ann", "wandb"),
    ]
    assert await audited(controller, "SetSecret") == {"secret/wandb", "secret/vision/other"}
    assert_nowhere(config.state_dir)


async def test_users_see_and_use_their_own_and_nobody_elses(controller: Controller) -> None:
    await give(controller)
    theirs = await secrets(controller, "bob").ListSecrets(secret_pb2.ListSecretsRequest(), timeout=WITHIN_S)
    assert [each.name for each in theirs.secrets] == []
    stub = job_stub(controller.channel("user/bob"))
    _, error = await refusal(stub.CreateJob(job_pb2.CreateJobRequest(job=needing()), timeout=WITHIN_S))
    assert isinstance(error, InvalidSpec)


async def test_a_name_that_is_not_there_is_refused_with_its_place_and_the_likely_one(
    controller: Controller, config: ControllerConfig
) -> None:
    await give(controller)
    for name, fix in (("wand", "did you mean wandb?"), ("sk-canary-77", "keep it first: holdfast secret set NAME")):
        code, error = await refusal(submit(controller, needing(name)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and isinstance(error, InvalidSpec)
        place = "jobSpec.workerPoolSpecs[0].processSpec.secretEnv[0].secret"
        assert f"{place}: neither user ann nor project default has a secret of this name ({fix})" in str(error)
    nameless = secret_pb2.RemoveSecretRequest(name=CANARY.decode() + "/+=")
    await refusal(secrets(controller).RemoveSecret(nameless, timeout=WITHIN_S))
    assert await audited(controller, "RemoveSecret") == {"secret/?"}
    assert_nowhere(config.state_dir)


async def test_a_secret_that_was_removed_by_force_is_what_the_next_launch_lacks(controller: Controller) -> None:
    await give(controller)
    async with agent(controller) as heard:
        name = await submit(controller, needing())
        await heard.until(lambda a: orders(a, "RUN"))
        request = secret_pb2.RemoveSecretRequest(name="wandb")
        _, error = await refusal(secrets(controller).RemoveSecret(request, timeout=WITHIN_S))
        assert isinstance(error, WrongState) and name in str(error)
        request.force = True
        await secrets(controller).RemoveSecret(request, timeout=WITHIN_S)
        await heard.exit(name, 1)
        again = await heard.until(lambda a: orders(a, "PREPARE")[1:])
        assert again[0].lacks.startswith("The secret wandb of user ann, for KEY, is not there any more.")
        assert not again[0].secrets


async def test_a_new_key_seals_everything_anew_and_a_lost_one_costs_only_the_values(
    config: ControllerConfig, certificates: Certificates
) -> None:
    key = config.secrets_key
    async with serving(config, certificates) as controller:
        await give(controller)
    [old] = secret_keys.load(key)
    secret_keys.write(key, (b"\1" * 32, old))
    async with serving(config, certificates) as controller:
        assert secret_keys.load(key) == (b"\1" * 32,)
        async with agent(controller) as heard:
            await submit(controller, needing())
            [run] = await heard.until(lambda a: orders(a, "RUN"))
            assert run.secrets[0].value == CANARY
    key.unlink()
    async with serving(config, certificates) as controller:
        found = await secrets(controller).ListSecrets(secret_pb2.ListSecretsRequest(), timeout=WITHIN_S)
        assert [(each.name, each.unreadable) for each in found.secrets] == [("wandb", True)]
        await give(controller)
        found = await secrets(controller).ListSecrets(secret_pb2.ListSecretsRequest(), timeout=WITHIN_S)
        assert not found.secrets[0].unreadable
