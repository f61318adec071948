"""Cron expressions against an independent count minute by minute, over changes of the clocks."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import sys
import zoneinfo
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from holdfast._base import cron

ZONES = {
    "UTC": "2026-03-28",
    "Europe/Berlin": "2026-03-27",
    "America/New_York": "2026-03-07",
    "Australia/Lord_Howe": "2026-04-03",
    "Asia/Kathmandu": "2026-03-28",
    "Africa/Cairo": "2026-04-23",
    "America/Santiago": "2026-09-04",
    "Pacific/Apia": "2011-12-28",
    "America/St_Johns": "2026-10-30",
    "Europe/Dublin": "2026-10-24",
    "Asia/Beirut": "2026-03-27",
    "Antarctica/Troll": "2026-03-27",
}
"""A day shortly before a change of the clocks, where there is one."""
TEXTS = (
    "30 2 * * *", "0 0 * * *", "*/30 * * * *", "15 */2 * * *", "0,30 1-3 * * *", "5 3 1,30 4 *", "0 0 1 * 0",
)  # fmt: skip


def _set(text: str, least: int, most: int, names: str = "") -> set[int]:
    """A field, read in another way than the code under test does."""
    for number, name in enumerate(names.split()):
        text = text.replace(name, str(number))
    found = set()
    for part in text.split(","):
        body, _, step = part.partition("/")
        low, _, high = (f"{least}-{most}" if body == "*" else body).partition("-")
        found |= {
            n
            for n in range(int(low), int(high or (most if step else low)) + 1)
            if (n - int(low)) % int(step or 1) == 0
        }
    return found


@functools.lru_cache
def local_times(zone: str, first: float, minutes: int) -> list[dt.datetime]:
    """What a clock on the wall shows at each of so many minutes."""
    tz = zoneinfo.ZoneInfo(zone)
    return [dt.datetime.fromtimestamp(first + 60 * n, tz).replace(tzinfo=None) for n in range(minutes)]


def by_the_minute(text: str, zone: str, first: float, minutes: int) -> list[float]:
    """Each minute looked at by itself; what was left out of the clocks is due at the first minute after it."""
    fields = text.split()
    minute, hour, day, month = (
        _set(f, a, b) for f, a, b in zip(fields, (0, 0, 1, 1), (59, 23, 31, 12), strict=False)
    )
    week = {n % 7 for n in _set(fields[4], 0, 6, "SUN MON TUE WED THU FRI SAT")}
    both = fields[2][0] == "*" or fields[4][0] == "*"
    by_interval = fields[0][0] == "*" or fields[1][0] == "*"

    def due(local: dt.datetime) -> bool:
        days = local.day in day, local.isoweekday() % 7 in week
        when = local.minute in minute and local.hour in hour and local.month in month
        return when and (all(days) if both else any(days))

    found, shown = [], set()
    times = local_times(zone, first - 60, minutes + 1)
    for n, (previous, local) in enumerate(itertools.pairwise(times)):
        skipped = int((local - previous).total_seconds() // 60) - 1
        if by_interval:
            hit = due(local)
        else:
            hit = due(local) and local not in shown
            hit |= any(due(previous + dt.timedelta(minutes=m)) for m in range(1, skipped + 1))
            shown.add(local)
        if hit:
            found.append(first + 60 * n)
    return found


@pytest.mark.parametrize("zone", sorted(ZONES))
@pytest.mark.parametrize("text", TEXTS)
def test_each_run_is_where_a_count_minute_by_minute_finds_it(zone: str, text: str) -> None:
    first = dt.datetime.fromisoformat(f"{ZONES[zone]}T00:00").replace(tzinfo=dt.UTC).timestamp()
    minutes = 3 * 1440
    # It remembers which times it has shown: it begins a day earlier.
    wanted = [at for at in by_the_minute(text, zone, first - 86_400, minutes + 1440) if at > first]
    found = []
    for at in cron.runs(text, zone, first):
        if at >= first + minutes * 60:
            break
        found.append(at)
    assert found == wanted
    # From any moment in between the same ones follow.
    for after in range(int(first), int(first) + minutes * 60, 29_321):
        assert cron.next_run(text, zone, after) == next(
            (at for at in wanted if at > after), cron.next_run(text, zone, first + minutes * 60 - 60)
        )


@pytest.mark.parametrize(
    ("zone", "text", "after", "shown"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T20:00Z", "2026-03-29 03:00 CEST"),
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T20:00Z", "2026-10-25 02:30 CEST"),
        ("Europe/Berlin", "30 2 * * *", "2026-10-25T00:30Z", "2026-10-26 02:30 CET"),
        ("Africa/Cairo", "0 0 * * *", "2026-04-23T20:00Z", "2026-04-24 01:00 EEST"),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T14:00Z", "2026-10-04 02:30 +11"),
    ],
)
def test_a_time_left_out_is_due_at_the_change_and_one_that_comes_twice_once(
    zone: str, text: str, after: str, shown: str
) -> None:
    found = cron.next_run(text, zone, dt.datetime.fromisoformat(after).timestamp())
    assert found is not None
    assert cron.in_zone(found, zone) == shown


def test_the_last_of_many_missed_runs_is_found() -> None:
    now = dt.datetime(2026, 6, 1, 12, 0, 30, tzinfo=dt.UTC).timestamp()
    for text in ("* * * * *", "0 3 * * *", "0 0 1 * *", "0 0 29 2 *"):
        for ago in (3_600, 86_400, 300 * 86_400, 3 * 365 * 86_400):
            every = _until(text, now - ago, now) if text != "* * * * *" or ago < 90_000 else None
            found = cron.last_run(text, "UTC", now - ago, now)
            if every is not None:
                assert found == (every[-1] if every else None)
            else:
                assert found == now - 30


def _until(text: str, after: float, until: float) -> list[float]:
    found = []
    for at in cron.runs(text, "UTC", after):
        if at > until:
            break
        found.append(at)
    return found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("0 3 * *", "has 4 fields"),
        ("", "has 0 fields"),
        ("60 * * * *", "not a number from 0 to 59"),
        ("0 24 * * *", "not a number from 0 to 23"),
        ("0 0 0 * *", "not a number from 1 to 31"),
        ("0 0 * * 8", "not a number from 0 to 7"),
        ("5-1 * * * *", "whose end is before"),
        ("*/0 * * * *", "a step of '0'"),
        ("1,,2 * * * *", "has ''"),
        ("-1 * * * *", "has ''"),
        ("٣ * * * *", "not a number"),
        ("0 0 * FOO *", "has 'FOO' as month"),
        ("@reboot", "has 1 fields"),
        ("* " * 300, "more than 200 characters"),
    ],
)
def test_what_means_nothing_or_never_comes_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(cron.BadCron, match=said.replace("(", r"\(")):
        cron.parse(text)


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b"])
def test_a_name_that_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(cron.BadCron, match="no time zone"):
        cron.zone_of(name)


def test_a_range_of_one_day_of_the_week_is_that_day() -> None:
    days = {"SUN-SUN": {0}, "0-0": {0}, "7-7": {0}, "6-6": {6}, "SAT-SUN": {6, 0}, "0-7": set(range(7))}
    assert {text: cron.parse(f"0 0 * * {text}").weekdays for text in days} == days


def test_a_day_that_is_rare_is_found() -> None:
    found = cron.next_run("0 0 29 2 *", "UTC", dt.datetime(2096, 3, 1, tzinfo=dt.UTC).timestamp())
    assert found is not None
    assert cron.in_zone(found, "UTC") == "2104-02-29 00:00 UTC"


DENSE = ("* * * * *", "0-59 0-23 * * *", "*/2 * * * *", "0 * * * *")
MOST_LINES = 1000
"""Lines of Python for one look, a day's changes of the clocks included: far below a millisecond."""


def lines_of(call: Callable[[], object]) -> int:
    """How many lines of ``cron`` a call runs; of what the collector of garbage runs within it, none."""
    count = 0

    def line(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        nonlocal count
        if frame.f_code.co_filename != cron.__file__:
            return None
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("zone", sorted(ZONES))
def test_a_look_near_a_change_of_the_clocks_takes_few_steps_from_any_moment(zone: str) -> None:
    first = dt.datetime.fromisoformat(f"{ZONES[zone]}T00:00").replace(tzinfo=dt.UTC).timestamp()
    cron.zone_of(zone)
    for text in DENSE:
        cron.parse(text)
        for after in range(int(first), int(first) + 4 * 86_400, 14_401):
            for look in (cron.next_run, functools.partial(cron.last_run, until=after + 30.0)):
                ago = after if look is cron.next_run else after - 300 * 86_400
                cron._pieces.cache_clear()
                assert lines_of(functools.partial(look, text, zone, ago)) < MOST_LINES


@pytest.mark.parametrize(
    ("text", "years"),
    [("* * * 1-10 *", 1), ("* * 29 2 *", 40), ("0 0 29 2 */7", 40), ("0 0 * 1 MON", 40), ("59 23 31 12 *", 20)],
)
def test_a_look_back_over_years_takes_few_steps(text: str, years: int) -> None:
    until = dt.datetime(2026, 12, 20, tzinfo=dt.UTC).timestamp()
    cron.parse(text)
    after = until - years * 365.25 * 86_400
    assert lines_of(lambda: cron.last_run(text, "UTC", after, until)) < 4 * MOST_LINES
    assert lines_of(lambda: cron.next_run(text, "UTC", until)) < 4 * MOST_LINES


@pytest.mark.parametrize("zone", sorted(ZONES))
def test_the_last_run_before_any_moment_is_where_the_next_ones_come_to(zone: str) -> None:
    first = dt.datetime.fromisoformat(f"{ZONES[zone]}T00:00").replace(tzinfo=dt.UTC).timestamp()
    for text in (*TEXTS, "* 1-3 * * *"):
        every = [*itertools.takewhile(lambda at: at <= first + 3 * 86_400, cron.runs(text, zone, first))]
        for until in range(int(first), int(first) + 3 * 86_400, 4_111):
            due = [at for at in every if at <= until]
            assert cron.last_run(text, zone, first, until) == (due[-1] if due else None)
