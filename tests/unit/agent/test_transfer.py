"""When the agent dials the stream that carries output and shells."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest

from holdfast_agent.shell.session import transfer


@pytest.fixture(autouse=True)
def hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """So long it waits after a failure."""
    monkeypatch.setattr(transfer, "RETRY_FIRST_S", 3600.0)
    monkeypatch.setattr(transfer, "RETRY_MAX_S", 3600.0)


class Dialled(transfer.Transfer):
    """Counts its tries; ``serves``: each has an answer, and ends after it."""

    def __init__(self, *, serves: bool) -> None:
        super().__init__(*[cast("Any", None)] * 13)
        self.tries, self._serves = 0, serves

    async def _session(self) -> bool:
        self.tries += 1
        if self._serves:
            self.dial()  # the session's welcome came first
        return self._serves


async def tries(dialled: Dialled, *, answers: int) -> int:
    """How often it has tried once the controller has answered that many sessions."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dialled.run)
        await anyio.wait_all_tasks_blocked()
        for _ in range(answers):
            dialled.dial()
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return dialled.tries


async def test_it_waits_after_a_failure() -> None:
    assert await tries(Dialled(serves=False), answers=0) == 1


async def test_it_tries_at_once_when_the_controller_answers_a_session() -> None:
    assert await tries(Dialled(serves=False), answers=2) == 3


async def test_an_answer_from_before_it_was_served_hastens_nothing() -> None:
    assert await tries(Dialled(serves=True), answers=0) == 1
