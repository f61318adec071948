"""Times as people give them on the command line."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from holdfast._sdk.host_calls import _set_window
from holdfast.cli.hosts.hosts import events
from holdfast.cli.hosts.maintenance import point
from holdfast.cli.jobs.goodput import goodput
from holdfast.cli.jobs.jobs import list_
from holdfast.cli.jobs.logs import _stamp, logs
from holdfast.cli.jobs.series import series
from holdfast.cli.jobs.waiting import wait
from holdfast.cli.kit.parameters import moment, utc_day
from holdfast.v1 import host_pb2


@pytest.fixture
def berlin() -> Iterator[None]:
    """Clocks that go back on October 25, 2026 at 3, and forth on March 29, 2026 at 2."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


def test_times_beyond_what_a_message_holds_are_the_furthest_that_it_does() -> None:
    cordon = host_pb2.CordonRequest()
    _set_window(cordon, -1e13, 1e13)
    assert (cordon.start.ToDatetime().year, cordon.end.ToDatetime().year) == (1, 9999)
    stamp = _stamp(1e13)
    assert stamp is not None and stamp.ToDatetime().year == 1


@pytest.mark.parametrize("command", [logs, series, goodput, wait, list_, events], ids=lambda command: command.name)
def test_a_span_that_a_help_gives_as_an_example_is_taken_as_it_stands(command: click.Command) -> None:
    option = next(each for each in command.params if each.name == "since")
    example = re.search(r"\d+[mhd](?: \w+)?(?=[,.])", getattr(option, "help", ""))
    assert example is not None
    assert isinstance(option.type.convert(example[0], option, None), float)


def here(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).astimezone()


@pytest.mark.parametrize(
    ("now", "clock", "then"),
    [
        ("2026-10-24 22:30", "22:00", "2026-10-25 22:00"),
        ("2026-10-25 01:00", "22:00", "2026-10-25 22:00"),
        ("2026-03-28 22:30", "9:00", "2026-03-29 09:00"),
        ("2026-10-24 21:30", "22:00", "2026-10-24 22:00"),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_a_time_of_day_is_that_of_the_clock_then(now: str, clock: str, then: str) -> None:
    assert point(clock, here(now)) == here(then).timestamp()


@pytest.mark.parametrize(
    ("now", "word", "then"),
    [
        ("2026-10-25 15:00", "today", "2026-10-25 00:00"),
        ("2026-10-26 15:00", "yesterday", "2026-10-25 00:00"),
        ("2026-03-29 15:00", "today", "2026-03-29 00:00"),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_a_day_begins_at_its_midnight_also_where_clocks_change(now: str, word: str, then: str) -> None:
    assert moment(word, here(now)) == here(then)


def test_yesterday_begins_at_midnight_here() -> None:
    found = [moment("yesterday"), moment("today")]
    assert all(isinstance(each, datetime.datetime) and each.tzinfo is datetime.UTC for each in found)
    local = [each.astimezone() for each in found if isinstance(each, datetime.datetime)]
    assert [(each.hour, each.minute) for each in local] == [(0, 0)] * 2
    assert datetime.timedelta(hours=22) <= local[1] - local[0] <= datetime.timedelta(hours=26)


@pytest.mark.usefixtures("berlin")
def test_a_day_of_accounting_is_one_of_utc_wherever_it_is_asked_for() -> None:
    assert utc_day("2026-11-01") == datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
    assert utc_day("2026-11-01T04:00:00Z") == datetime.datetime(2026, 11, 1, 4, tzinfo=datetime.UTC)
    assert utc_day("30d") == 30 * 86_400
    day = utc_day("today")
    assert isinstance(day, datetime.datetime) and day.timestamp() % 86_400 == 0


def test_spans_of_accounting_that_meet_share_no_day(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "holdfast.cli.jobs.goodput._show_all", lambda by, since, until, output: asked.append((since, until))
    )
    for words in (("--until", "30d"), ("--since", "30d"), ("--until", "2026-11-30T22:00:00Z")):
        CliRunner().invoke(goodput, words, catch_exceptions=False)
    [(_, until), (since, _), (_, given)] = asked
    assert until == since and until % 86_400 == 0 and 30 <= (time.time() - until) / 86_400 < 31.01
    assert given == datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC).timestamp()


def test_accounting_takes_its_days_as_those_of_utc() -> None:
    assert {option.name: option.type for option in goodput.params}["since"].func is utc_day  # type: ignore[attr-defined]
