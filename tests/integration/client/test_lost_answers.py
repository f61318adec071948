"""Calls whose answers are lost: asked for again where that is safe, and said to be unknown where it stays so."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController
from tests.integration.client.test_run_command import Command, result_of

from holdfast._sdk import transport
from holdfast.client import Client
from holdfast.errors import Unavailable
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio


async def test_a_submission_whose_answer_is_lost_makes_one_job(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CALL_TIMEOUT_S", 1.0)
    late = 2

    async def stalls(_: job_pb2.CustomJob) -> None:
        await asyncio.sleep(30)

    controller.on_create = stalls
    async with Client(controller.settings()) as client:
        created = await client.create_job(job_pb2.CustomJob(display_name="once"))
        assert (created.display_name, len(controller.jobs)) == ("once", 1)

    async def never(*_: object) -> None:
        nonlocal late
        late -= 1
        await asyncio.sleep(30)

    monkeypatch.setattr(controller, "called", never)
    monkeypatch.setattr(transport, "CERTAIN_S", 1.5)
    async with Client(controller.settings()) as client:
        with pytest.raises(Unavailable, match="What was asked for may have been done") as failed:
            await client.create_job(job_pb2.CustomJob(display_name="unknown"))
    assert late < 1, "it was asked again"
    assert "holdfast job list" in failed.value.fix


@pytest.mark.parametrize("words", [("submit", "job.yaml"), ("run", "--", "true"), ("template", "run", "nightly")])
async def test_ctrl_c_before_the_answer_says_that_the_job_may_be_there(
    controller: FakeController, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "job.yaml").write_text('workerPoolSpecs: [{replicaCount: 1, processSpec: {command: ["true"]}}]')
    asked = anyio.Event()

    async def stalls(_: job_pb2.CustomJob) -> None:
        asked.set()
        await asyncio.sleep(60)

    controller.on_create = stalls
    with Command(controller, tmp_path).started(*words) as process:
        with anyio.fail_after(60):
            await asked.wait()
        process.send_signal(signal.SIGINT)
        result = await result_of(process)
    assert (result.code, result.out) == (130, b"")
    assert result.err.endswith("the job may be there, see holdfast ps before you submit it again\n")


async def test_a_word_that_no_message_can_hold_is_named(controller: FakeController, tmp_path: Path) -> None:
    for words in (("host", "show", "\udcff"), ("template", "show", "\udcff"), ("ps", "--label", "a=\udcff")):
        result = await Command(controller, tmp_path)(*words)
        assert (result.code, result.err.count("is not UTF-8, as all texts of a cluster are")) == (2, 1), result.err
