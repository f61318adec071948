"""A search in the ranks' output that finds nothing says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.v1 import job_pb2


class Logs:
    """A client whose one job has printed these lines."""

    def __init__(self, *lines: bytes, generation: int = 1) -> None:
        self._lines = lines
        self._generation = generation

    async def get_job(self, job_id: str) -> job_pb2.CustomJob:
        job = job_pb2.CustomJob(id=job_id, generation=self._generation)
        job.job_spec.worker_pool_specs.add(replica_count=1)
        return job

    async def stream_logs(self, job_id: str, **asked: Any) -> AsyncGenerator[job_pb2.StreamLogsResponse]:
        for line in self._lines:
            yield job_pb2.StreamLogsResponse(
                data=line, worker="workerpool0-0", generation=1, stream=job_pb2.LOG_STREAM_STDOUT
            )


def logs(client: Logs, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    def with_client(work: Callable[[Any], Awaitable[None]]) -> None:
        anyio.run(work, client)

    monkeypatch.setattr("holdfast.cli.jobs.logs.with_client", with_client)
    return CliRunner().invoke(root, ["logs", "j1", *words], catch_exceptions=False).exit_code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--grep", "nan"), "no line holds 'nan' (case counts: -i)"),
        (("--grep", "nan", "-i"), "no line holds 'nan'"),
        (("--grep", "1234"), "no line holds '1234'"),
    ],
)
def test_a_text_that_no_line_holds_is_named_on_stderr(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert logs(Logs(), monkeypatch, *words) == 0
    assert capfd.readouterr() == ("", f"holdfast: {said}\n")


def test_output_that_was_not_read_is_not_said_to_lack_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Away(Logs):
        async def stream_logs(self, job_id: str, **asked: Any) -> AsyncGenerator[job_pb2.StreamLogsResponse]:
            yield job_pb2.StreamLogsResponse(problem="h1 is not connected", worker="workerpool0-0", generation=1)

    assert logs(Away(), monkeypatch, "--grep", "nan") == 0
    said = capfd.readouterr().err.splitlines()
    assert said == [
        "holdfast: workerpool0-0 rank 0: h1 is not connected",
        "holdfast: no line that could be read holds 'nan' (case counts: -i)",
    ]


def test_nothing_is_said_beside_a_line_that_was_found_or_where_none_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert logs(Logs(b"loss nan\n"), monkeypatch, "--grep", "nan") == 0
    assert capfd.readouterr() == ("loss nan\n", "")
    assert logs(Logs(), monkeypatch) == 0
    assert capfd.readouterr() == ("", "")


def test_a_job_that_has_not_started_is_not_searched(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert logs(Logs(generation=0), monkeypatch, "--grep", "nan") == 0
    assert capfd.readouterr().err == "holdfast: job j1 has not started yet.\n"
