"""Commands that a command suggests: they do what is meant when they are typed as they stand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.cli.jobs import job_hangs, schedules


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["schedule", "pause", "nightly", "--project", "vision"], "schedule resume nightly --project vision"),
        (["schedule", "pause", "nightly"], "schedule resume nightly"),
        (["job", "hold", "my run", "--end"], "job hang-action 'my run' on"),
        (["host", "fence", "gpu 1"], "host fence 'gpu 1' --yes-it-is-off"),
    ],
)
def test_a_suggested_command_is_whole(
    words: list[str], suggested: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Paused:
        async def pause(self, name: str, *, project: str) -> None: ...

    def with_client(work: Callable[[Any], Awaitable[object]]) -> object:
        return anyio.run(work, SimpleNamespace(schedules=Paused()))

    monkeypatch.setattr(schedules, "with_client", with_client)
    monkeypatch.setattr(job_hangs, "_turn", lambda *_: None)
    refused = CliRunner().invoke(root, words).stderr
    said = " ".join((capfd.readouterr().err + refused).split())
    assert said.removesuffix(".").endswith(f"holdfast {suggested}")
