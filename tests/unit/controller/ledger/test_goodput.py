"""The goodput ledger: every millisecond of every share is in one category, and late knowledge moves only names."""

from __future__ import annotations

import pytest
from tests.unit.controller.ledger.goodput_stories import STORIES

from holdfast_controller.core.goodput.causes import PAYERS
from holdfast_controller.core.model.recovery import EndReason


@pytest.mark.parametrize("name", STORIES)
def test_story_adds_up(name: str) -> None:
    STORIES[name]()


def test_every_reason_has_a_payer() -> None:
    assert {reason.value for reason in EndReason} <= PAYERS.keys()
