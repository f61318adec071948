"""Why ranks ended whose shim is gone."""

from __future__ import annotations

import pytest

from holdfast._session.reports import ExitReason
from holdfast_agent.core.worker.events import Journal
from holdfast_agent.core.worker.exit_reasons import unseen_exits


@pytest.mark.parametrize(
    ("journal", "found", "reason"),
    [
        (None, 0, ExitReason.NOT_STARTED),
        (Journal(1, (0, 1)), 0, ExitReason.NOT_STARTED),
        (Journal(1, (0, 1), forked=True), 0, ExitReason.LOST_SHIM_DIED),
        (Journal(1, (0, 1), wrote_output=True), 0, ExitReason.LOST_SHIM_DIED),
        (Journal(1, (0, 1)), 1, ExitReason.LOST_SHIM_DIED),
    ],
    ids=["nothing written", "no fork begun", "forks begun", "output", "processes found"],
)
def test_only_ranks_that_were_certainly_not_forked_never_started(
    journal: Journal | None, found: int, reason: ExitReason
) -> None:
    """Others may have run and ended without a word before their shim could record that they had started."""
    assert {exit_.reason for exit_ in unseen_exits(journal, 1, (0, 1), found)} == {reason}
