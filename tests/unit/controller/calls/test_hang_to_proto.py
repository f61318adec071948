"""Hangs as the API shows them."""

from __future__ import annotations

import pytest

from holdfast.hang.judge.finding import Rule
from holdfast.v1 import job_pb2
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.shell.convert.recovery_to_proto import hang_outcome_to_proto, hang_rule_to_proto


@pytest.mark.parametrize("rule", Rule)
def test_every_rule_has_its_value_in_the_api(rule: Rule) -> None:
    assert job_pb2.HangRule.Name(hang_rule_to_proto(rule)) == f"HANG_RULE_{rule.name}"


@pytest.mark.parametrize("outcome", HangOutcome)
def test_every_outcome_has_its_value_in_the_api(outcome: HangOutcome) -> None:
    assert job_pb2.HangOutcome.Name(hang_outcome_to_proto(outcome)) == f"HANG_OUTCOME_{outcome.value}"
