"""Waiting for an array: who does, and the last line; cancelling one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.cli.jobs import cancelling, templates, waiting
from holdfast.cli.jobs.waiting import array_ended, summary
from holdfast.v1 import job_pb2

DONE, FAILED, CANCELLED = (
    job_pb2.JOB_STATE_SUCCEEDED,
    job_pb2.JOB_STATE_FAILED,
    job_pb2.JOB_STATE_CANCELLED,
)


def element(index: int, state: job_pb2.JobState.ValueType) -> job_pb2.CustomJob:
    job = job_pb2.CustomJob(id=f"a-{index}", state=state)
    job.array.id, job.array.index = "a", index
    return job


def test_it_counts_and_names_those_that_did_not_succeed() -> None:
    jobs = [element(index, FAILED if index in (4, 9, 17) else DONE) for index in range(1, 21)]
    assert summary(jobs) == "17 succeeded, 3 failed: 4, 9, 17"
    assert summary(jobs[:3]) == "3 succeeded"
    assert summary([element(index, FAILED) for index in (5, 3, 4)]) == "0 succeeded, 3 failed: 3-5"
    assert summary([element(1, CANCELLED), element(2, FAILED)]) == "0 succeeded; 1 cancelled: 1; 1 failed: 2"


def test_it_comes_last_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    class Ended:
        async def list_jobs(self, filter: str) -> AsyncGenerator[job_pb2.CustomJob]:
            assert filter == "array=a"
            yield element(1, DONE)
            yield element(2, FAILED)

    client: Any = Ended()
    assert anyio.run(array_ended, client, element(1, DONE)) == 125
    out, err = capfd.readouterr()
    assert out.splitlines() == ["a-1  SUCCEEDED", "a-2  FAILED"]
    assert err.splitlines()[-1] == "holdfast: 1 succeeded, 1 failed: 2"


@pytest.mark.parametrize(("words", "status", "said"), [(["--wait"], 125, ""), ([], 0, "sweep-x\n")])
def test_an_array_of_a_template_is_waited_for(
    words: list[str], status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = job_pb2.CustomJob(id="sweep-x-1")
    created.array.id, created.array.index = "sweep-x", 1

    class Submits:
        async def create_job(self, job: job_pb2.CustomJob, **_: object) -> job_pb2.CustomJob:
            return created

    def with_client(work: Callable[[Any], Awaitable[int]]) -> int:
        return anyio.run(work, Submits())

    async def ended(client: object, element: job_pb2.CustomJob) -> int:
        assert element is created
        return 125

    monkeypatch.setattr(templates, "with_client", with_client)
    monkeypatch.setattr(waiting, "array_ended", ended)
    result = CliRunner().invoke(root, ["template", "run", "sweep", *words])
    assert (result.exit_code, result.stdout) == (status, said)


@pytest.mark.parametrize(
    ("counts", "cancelled", "said"),
    [
        ({"done": 3}, 0, "has ended already: 3 succeeded"),
        ({"done": 2, "failed": 1}, 0, "has ended already: 2 succeeded, 1 failed"),
        ({"done": 2, "failed": 1}, 1, "is cancelled"),
        ({"running": 1, "failed": 2}, 2, "is cancelled; 1 of its jobs are being stopped"),
    ],
)
def test_an_array_that_had_ended_is_not_called_cancelled(
    counts: dict[str, int],
    cancelled: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Cancels:
        async def cancel_job(self, job_id: str) -> job_pb2.CustomJob:
            return job_pb2.CustomJob(id="a-0", array=job_pb2.JobArray(id=job_id, **counts))

        async def newest_jobs(self, count: int, filter: str) -> list[job_pb2.CustomJob]:
            assert filter == "array=a AND state=CANCELLED"
            return [element(0, CANCELLED)] * min(count, cancelled)

    def with_client(work: Callable[[Any], Awaitable[bool]]) -> bool:
        return anyio.run(work, Cancels())

    monkeypatch.setattr(cancelling, "with_client", with_client)
    assert CliRunner().invoke(root, ["cancel", "a"]).exit_code == 0
    assert capfd.readouterr().err == f"holdfast: array a {said}\n"
