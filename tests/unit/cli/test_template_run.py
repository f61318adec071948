"""``holdfast template run``: what it waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.cli.jobs import templates, waiting
from holdfast.v1 import job_pb2


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

    async def array_ended(client: object, element: job_pb2.CustomJob) -> int:
        assert element is created
        return 125

    monkeypatch.setattr(templates, "with_client", with_client)
    monkeypatch.setattr(waiting, "array_ended", array_ended)
    result = CliRunner().invoke(root, ["template", "run", "sweep", *words])
    assert (result.exit_code, result.stdout) == (status, said)
