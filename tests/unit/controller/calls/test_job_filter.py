"""The filter language of ListJobs."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from tests.support.work import calls_of
from tests.unit.controller.examples import job

from holdfast.errors import InvalidInput
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.jobs import head_of
from holdfast_controller.shell.calls.job_filter import ENDED, read_filter

ALL = frozenset(state.name for state in JobState)


def made() -> Job:
    found = job()
    found.state, found.labels, found.display_name = (
        JobState.RUNNING,
        {"team": "vision", "a.b": "x=y", 'q"\\': "1"},
        "my run",
    )
    found.created_at = Wall(1.0)
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
        ("id=a", True),
        ("id!=a", False),
        ("id=train", False),
        ("id:a*", True),
        ("id:b", False),
        ("id:b*", False),
        ('id:x* OR name="my run"', True),
        ("active=true", True),
        ("active=false", False),
        ("label.team=vision", True),
        ("label.team=nlp", False),
        ("label.nope=", False),
        ("label.a.b=x=y", True),
        ("state=RUNNING AND label.team=vision", True),
        ("state = RUNNING   AND  owner = bob", False),
        # as managed services document them
        ('state="JOB_STATE_RUNNING" AND display_name:"my*"', True),
        ('state="JOB_STATE_SUCCEEDED" AND display_name:"my_job_*"', False),
        ('state!="JOB_STATE_FAILED" OR display_name="my_job"', True),
        ('state!="JOB_STATE_RUNNING" OR display_name="my run"', True),
        ('NOT display_name="my run"', False),
        ('NOT displayName="my_job"', True),
        ('create_time>"1970-01-01T00:00:00Z"', True),
        ('createTime<"1970-01-01T00:00:01Z"', False),
        ('create_time<="1970-01-01T00:00:01Z" AND create_time>=1970-01-01T00:00:01+00:00', True),
        ('create_time!="2021-05-18T00:00:00Z"', True),
        ("labels.team=vision", True),
        ("labels.team:*", True),
        ("labels.nope:*", False),
        ("labels.nope!=x", True),
        ('labels."a.b"="x=y"', True),
        (r'labels."q\"\\"=1', True),
        (r'labels."q\"\\":*', True),
        ('state="JOB_STATE_PARTIALLY_SUCCEEDED"', False),
        # OR before AND, parentheses, repeated NOT
        ("owner=bob AND owner=ann OR owner=ann", False),
        ("(owner=bob AND owner=ann) OR owner=ann", True),
        ("owner=bob\t \nOR\n\t owner=ann", True),
        ('owner="bob"  OR  owner="ann"', True),
        ("owner=ann AND (state=FAILED OR (NOT owner=bob AND name:run))", True),
        ("NOT (owner=ann OR owner=bob)", False),
        ("NOT NOT owner=ann", True),
        ("-owner=bob", True),
        ("NOT(owner=bob)", True),
        ("( owner = ann )", True),
        ("owner!=ann", False),
        ("active!=true", False),
        ('name="my run" AND owner="ann"', True),
        ("name='my run'", True),
        ("name:run", True),
        ("name:*y*r*n", True),
        ("name:my*my", False),
        ("name:*", True),
        ('name="\\m\\y run"', True),
        ('name="x AND owner=ann"', False),
    ],
)
def test_filter_takes_what_it_says(text: str, takes: bool) -> None:
    job = made()
    assert list(read_filter(text).found([job])) == [job] * takes


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("", ALL),
        ("active=true", ALL - ENDED),
        ("active=false", ENDED),
        ("state=RUNNING|PENDING", {"RUNNING", "PENDING"}),
        ("state=running|failed", {"RUNNING", "FAILED"}),
        ("state!=FAILED", ALL),
        ("NOT state=RUNNING", ALL),
        ("NOT active=false", ALL),
        ("NOT NOT state=RUNNING", {"RUNNING"}),
        ("owner=ann AND state=QUEUED", {"QUEUED"}),
        ("state=QUEUED OR owner=ann", ALL),
        ("state=QUEUED OR active=false", ENDED | {"QUEUED"}),
        ("state=QUEUED|FAILED AND active=false", {"FAILED"}),
        ("state=QUEUED AND state=RUNNING", set()),
        ("(state=QUEUED OR state=PAUSED) AND owner=ann", {"QUEUED", "PAUSED"}),
        ("(state=QUEUED OR owner=ann)", ALL),
        ("-(state=QUEUED)", ALL),
        ("(owner=ann AND state=QUEUED) OR active=true", ALL - ENDED),
    ],
)
def test_filter_says_of_which_states_all_are_that_match(text: str, states: set[str]) -> None:
    filtered, found, _ = read_filter(text)
    assert found & ALL == states
    job = made()
    for state in JobState:
        job.state = state
        assert state.name in found or not filtered([job]), state


@pytest.mark.parametrize(
    "text",
    [
        "owner=ann AND state=RUNNING",
        "owner=ann AND (state=RUNNING OR state=FAILED)",
        "state=RUNNING|FAILED AND NOT owner=bob AND project=default",
        "owner=ann OR owner=bob AND state=RUNNING",
        "NOT (owner=ann AND state=RUNNING)",
    ],
)
def test_of_many_jobs_those_are_found_that_are_found_alone(text: str) -> None:
    jobs = [replace(made(), owner=owner, state=state) for owner in ("ann", "bob") for state in JobState]
    filtered = read_filter(text).found
    assert list(filtered(jobs)) == [each for each in jobs if filtered([each])] != []
    assert len(filtered(jobs)) < len(jobs)


def test_no_call_is_made_for_each_job_of_another_owner_or_in_another_state() -> None:
    """A hundred thousand calls hold a list up by tens of milliseconds."""
    jobs = [head_of(replace(made(), owner="bob", state=JobState.FAILED))] * 1000
    jobs += [head_of(replace(made(), state=JobState.SUCCEEDED))] * 1000
    filtered = read_filter("owner=ann AND state=FAILED AND NOT id=x").found
    assert calls_of(lambda: filtered(jobs)) < 50


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
        ("(owner=ann", "lacks a closing parenthesis"),
        ('owner="ann"AND owner="bob"', "'AND owner=\"bob\"' follows what is complete"),
        ('owner="ann" owner="bob"', "'owner=\"bob\"' follows what is complete"),
        ("state:RUNNING", "'state' takes = and !=, not :"),
        ("owner>ann", "'owner' takes = and !=, not >"),
        ("labels.a:b", "'labels.a' takes = and !=, not :"),
        ("create_time:2026", "'create_time' takes =, !=, <, <=, > and >=, not :"),
        ("create_time>soon", "'soon' is no time such as"),
        ("NOT", "'NOT' is no term"),
        ("owner=ann AND (foo)", "'foo' is no term"),
        ("((", "lacks a term"),
        ("(" * 30 + "owner=ann" + ")" * 30, "has more than 20 parentheses in each other"),
        (" OR ".join(["owner=ann"] * 65), "has more than 64 terms"),
        (" " * 100_000 + "owner=ann", "has 100,009 characters; at most 4,096 are allowed"),
        ("owner=" + "x" * 5000, "has 5,006 characters; at most 4,096 are allowed"),
    ],
)
def test_wrong_filter_names_the_field_and_the_way_out(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as failure:
        read_filter(text)
    violation = failure.value.violations[0]
    assert violation.path == "filter"
    assert problem in violation.problem
    assert violation.fix.startswith("use state=RUNNING")


@pytest.mark.parametrize(
    "part", [" ", "NOT ", "(", ")", "AND ", " AND", '"', "'", "\\", "*", "owner=a OR ", "-", "labels.", "=", "x"]
)
def test_a_long_filter_is_read_in_time_proportional_to_its_length(part: str) -> None:
    """The most that a caller may send, of whatever could be read again and again."""

    def read(text: str) -> None:
        with contextlib.suppress(InvalidInput):
            read_filter(text).found([made()])

    for text in (
        part * (4096 // len(part)),
        f"owner=a{part * (4089 // len(part))}",
        f'name:"{part * 4000}"'[:4096],
    ):
        assert calls_of(lambda text=text: read(text)) < 30 * 4096  # type: ignore[misc]
