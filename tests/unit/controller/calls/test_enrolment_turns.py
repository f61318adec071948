"""What an address owes that has called for enrolment without end."""

from __future__ import annotations

import time

import anyio

from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.shell.enrolment.service import CALLS_PER_S, WAIT_MOST_S, Enrolment


async def test_calls_that_are_given_up_before_their_turn_pile_up_no_debt() -> None:
    made = Enrolment.__new__(Enrolment)
    made._calls = Buckets(1, CALLS_PER_S)
    for _ in range(5):
        async with anyio.create_task_group() as calls:
            for _ in range(1_000):
                calls.start_soon(made._take_turn, "10.0.0.1")
            await anyio.lowlevel.checkpoint()
            calls.cancel_scope.cancel()
    assert made._calls.owed_s("10.0.0.1", time.monotonic()) <= WAIT_MOST_S + 0.1
