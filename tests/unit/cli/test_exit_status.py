"""The numbers that scripts rely on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import click
import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.cli.hosts import maintenance
from holdfast.cli.kit.exit_status import of_job
from holdfast.errors import HoldfastError, InvalidInput, NotFound
from holdfast.v1 import job_pb2


@pytest.mark.parametrize(
    ("state", "error", "status"),
    [
        ("SUCCEEDED", {}, 0),
        ("FAILED", {"exit_code": 7}, 7),
        ("FAILED", {"exit_code": 139}, 139),
        ("FAILED", {}, 125),
        ("FAILED", {"exit_code": 0}, 125),
        ("FAILED", {"exit_code": 256}, 125),
        ("FAILED", {"code": 4}, 124),
        ("FAILED", {"code": 4, "exit_code": 143}, 124),
        ("EXPIRED", {}, 124),
        ("CANCELLED", {"code": 1}, 130),
        ("CANCELLED", {"code": 1, "exit_code": 143}, 130),
        ("PARTIALLY_SUCCEEDED", {}, 125),
    ],
)
def test_a_job_that_has_ended(state: str, error: dict[str, Any], status: int) -> None:
    job = job_pb2.CustomJob(state=job_pb2.JobState.Value(f"JOB_STATE_{state}"))
    if error:
        job.error.CopyFrom(job_pb2.JobError(**error))
    assert of_job(job) == status


@pytest.mark.parametrize(
    ("errors", "status"),
    [([InvalidInput([])], 2), ([NotFound("no")], 125), ([InvalidInput([]), NotFound("no")], 125)],
)
def test_what_is_done_for_several_hosts_ends_as_for_one(
    errors: list[HoldfastError], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(errors)

    async def call(client: object, name: str) -> str:
        raise left.pop()

    def with_client(work: Callable[[Any], Awaitable[object]]) -> object:
        return anyio.run(work, None)

    monkeypatch.setattr(maintenance, "with_client", with_client)
    with pytest.raises(SystemExit) as ended:
        maintenance.for_each(tuple(f"h{index}" for index in range(len(errors))), call)
    assert ended.value.code == status


@pytest.mark.parametrize("words", [["verify"], ["verify", "j1"]])
def test_a_form_that_a_verification_does_not_have_is_refused(words: list[str]) -> None:
    refused = CliRunner().invoke(root, ["goodput", *words, "-o", "json"])
    assert (refused.exit_code, refused.stdout) == (2, "")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (click.Abort(), 130, ""),
        (KeyboardInterrupt(), 130, ""),
        (EOFError("marshal data too short"), 125, "marshal"),
    ],
)
def test_an_interrupted_question_is_an_interruption_and_a_fault_of_ours_is_none(
    error: BaseException, status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object, **more: object) -> None:
        raise error

    monkeypatch.setattr("holdfast.cli.cluster.secrets._value", ask)
    ended = CliRunner().invoke(root, ["secret", "set", "KEY"])
    assert ended.exit_code == status
    assert (said in ended.stderr) if said else (ended.stderr == "")
