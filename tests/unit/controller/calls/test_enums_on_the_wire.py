"""Every value of an enumeration that is sent by its name has its place in the contract."""

from __future__ import annotations

import enum
from collections.abc import Callable

import pytest

from holdfast.hang.judge.finding import Rule
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.recovery import Budget, EndReason, Recover
from holdfast_controller.shell.convert.recovery_to_proto import (
    budget_to_proto,
    end_reason_to_proto,
    hang_outcome_to_proto,
    hang_rule_to_proto,
    recovery_kind_to_proto,
)

SENT: list[tuple[type[enum.Enum], Callable[..., int]]] = [
    (Rule, hang_rule_to_proto),
    (HangOutcome, hang_outcome_to_proto),
    (EndReason, end_reason_to_proto),
    (Recover, recovery_kind_to_proto),
    (Budget, budget_to_proto),
]


@pytest.mark.parametrize(("values", "sent"), SENT, ids=lambda each: getattr(each, "__name__", ""))
def test_every_value_has_a_number_of_its_own(values: type[enum.Enum], sent: Callable[..., int]) -> None:
    numbers = [sent(value) for value in values]
    assert len(set(numbers)) == len(numbers)
