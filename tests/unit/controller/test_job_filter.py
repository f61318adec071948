"""The filter language of ListJobs."""

from __future__ import annotations

import pytest
from tests.unit.controller.examples import job

from holdfast.errors import InvalidInput
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.shell.calls.job_filter import parse_filter


def made() -> Job:
    found = job()
    found.state, found.labels, found.display_name = JobState.RUNNING, {"team": "vision", "a.b": "x=y"}, "my run"
    return found


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("", True),
        ("   ", True),
        ("state=RUNNING", True),
        ("state=JOB_STATE_RUNNING", True),
        ("state=running|failed", True),
        ("state=FAILED", False),
        ("owner=ann", True),
        ("owner=bob", False),
        ("name=my run", True),
        ("active=true", True),
        ("active=false", False),
        ("label.team=vision", True),
        ("label.team=nlp", False),
        ("label.nope=", False),
        ("label.a.b=x=y", True),
        ("state=RUNNING AND label.team=vision", True),
        ("state = RUNNING   AND  owner = bob", False),
    ],
)
def test_filter_takes_what_it_says(text: str, takes: bool) -> None:
    assert parse_filter(text)(made()) is takes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("RUNNING", "'RUNNING' is no term"),
        ("=x", "'=x' is no term"),
        ("state=FLYING", "no job is ever in state 'FLYING'"),
        ("state=", "no job is ever in state ''"),
        ("color=red", "'color' can't be asked for"),
        ("active=maybe", "'active' can't be asked for"),
        ("state=RUNNING AND", "no job is ever in state 'RUNNING AND'"),
        ("owner=ann AND  AND owner=bob", "'AND owner' can't be asked for"),
    ],
)
def test_wrong_filter_names_the_field_and_the_way_out(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as failure:
        parse_filter(text)
    violation = failure.value.violations[0]
    assert violation.path == "filter"
    assert problem in violation.problem
    assert violation.fix.startswith("use state=RUNNING")
