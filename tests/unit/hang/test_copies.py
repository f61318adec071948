"""Fast copies of frozen dataclasses are those that ``dataclasses.replace`` makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from holdfast.hang.pipeline.copies import copier


@dataclass(frozen=True, slots=True)
class Reading:
    rank: int
    at_s: float = 0.0
    work: str = ""


def test_a_copy_has_the_new_values_and_keeps_the_others() -> None:
    copied, one = copier(Reading, "work", "at_s"), Reading(3, 1.0, "disk")
    assert copied(one, "GPU", 2.0) == replace(one, work="GPU", at_s=2.0) == Reading(3, 2.0, "GPU")
    assert one == Reading(3, 1.0, "disk")


def test_a_field_that_is_not_there_and_a_value_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="'host' is not in list"):
        copier(Reading, "host")
    with pytest.raises(ValueError, match="shorter"):
        copier(Reading, "work", "at_s")(Reading(0), "disk")
