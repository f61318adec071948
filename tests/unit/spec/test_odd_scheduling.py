"""Expected run times that say nothing, and segments that no gang has."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.spec.test_lifecycle_rules import SCHEDULING, complaints, job

from holdfast import spec

SEGMENT = {"size": 2, "within": "rack"}


@pytest.mark.parametrize(
    ("scheduling", "complaint"),
    [
        ({"expectedDuration": "0s"}, "expectedDuration: must be longer than 0 seconds"),
        ({"expectedDuration": -0.5}, "expectedDuration: must be a duration of 0 or more, not -0.5"),
        ({"expectedDuration": float("nan")}, "expectedDuration: must be "),
        ({"expectedDuration": True}, "expectedDuration: must be a duration, not true"),
        ({"placement": {"segment": SEGMENT}}, "placement.segment.size: is 2, which doesn't divide the job's 1"),
        ({"placement": {"segment": {**SEGMENT, "size": 0}}}, "placement.segment.size: must be at least 1, not 0"),
        ({"placement": {"segment": {"size": 1}}}, "placement.segment.within: is missing"),
    ],
)
def test_what_can_not_be_is_refused(scheduling: dict[str, Any], complaint: str) -> None:
    [found] = complaints(job(scheduling))
    assert found.startswith(f"{SCHEDULING}.{complaint}")


@pytest.mark.parametrize("written", [0.5, "0.5s", "500ms"])
def test_a_run_may_be_expected_to_take_half_a_second(written: Any) -> None:
    assert spec.parse(job({"expectedDuration": written})).job_spec.scheduling.expected_duration == 0.5


@pytest.mark.parametrize(
    ("pools", "size", "divides"), [([1, 5], 2, True), ([1, 5], 4, False), ([1, 2, 4], 3, False)]
)
def test_segments_divide_the_workers_of_all_pools_together(pools: list[int], size: int, divides: bool) -> None:
    data = job({"placement": {"segment": {**SEGMENT, "size": size}}})
    data["jobSpec"]["workerPoolSpecs"] = [
        {"replicaCount": count, "processSpec": {"command": ["x"]}} for count in pools
    ]
    expected = (
        f"{SCHEDULING}.placement.segment.size: is {size}, which doesn't divide the job's {sum(pools)} workers"
    )
    found = complaints(data)
    assert len(found) == (0 if divides else 1) and all(each.startswith(expected) for each in found)
