"""What an address owes that has called for enrolment without end."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.shell.enrolment.service import CALLS_PER_S, WAIT_MOST_S, Enrolment

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_calls_that_are_given_up_before_their_turn_pile_up_no_debt() -> None:
    made = Enrolment.__new__(Enrolment)
    made._calls = Buckets(1, CALLS_PER_S)
    for _ in range(5):
        calls = [asyncio.ensure_future(made._take_turn("10.0.0.1")) for _ in range(1_000)]
        await asyncio.sleep(0)
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
    assert made._calls.owed_s("10.0.0.1", time.monotonic()) <= WAIT_MOST_S + 0.1
