"""Cron expressions: when a schedule is due next, in a time zone.

Five fields: minute, hour, day of month, month, day of week (0 and 7 are Sunday). Each is ``*``, a number, a range
``1-5``, a list ``1,15``, and a step ``*/10`` or ``1-30/5``; months and days have names (``JAN``, ``MON``). ``@hourly``,
``@daily``, ``@weekly``, ``@monthly`` and ``@yearly`` stand for the usual five. As in Vixie's cron, a day has to match
both day fields where one of them begins with ``*``, and else either.

Where clocks are set forward, a time of day that is left out is due at the moment of the change; where they are set
back, one that comes twice is due the first time. A schedule whose minute or hour begins with ``*`` means intervals, not
a time of day: it goes by the clock on the wall, and what is left out is left out, what comes twice is due twice.

Pure but for the rules of time zones, which are read once from the machine's own files.
"""

from __future__ import annotations

import bisect
import calendar
import functools
import itertools
import math
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from holdfast._base.dataclass import dataclass

SEARCHED_YEARS = 50
"""29 February on one day of the week comes every 28 or 40 years."""
MOST_CHARS = 200
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = {
    "JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6,
    "JUL": 7, "AUG": 8, "SEP": 9, "OCT": 10, "NOV": 11, "DEC": 12,
}  # fmt: skip
_DAYS = dict(zip(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], range(7), strict=True))


class BadCron(ValueError):
    """The expression or the time zone means nothing, or no day ever matches. Its text says what is wrong."""


@dataclass(frozen=True)
class Cron:
    """A parsed expression. ``intervals``: its minute or its hour begins with ``*``."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    intervals: bool

    def matches(self, day: date) -> bool:
        """Whether it is due on a date."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month and of_week if self.both_days else of_month or of_week


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Cron:
    """Read an expression. Raises ``BadCron``, also for one that no day of the calendar matches."""
    if len(text) > MOST_CHARS:
        raise BadCron(f"has more than {MOST_CHARS} characters")
    words = _MACROS.get(text.strip().lower(), text).split()
    if len(words) != 5:
        known = ", ".join(name for name in _MACROS if name not in ("@midnight", "@annually"))
        raise BadCron(
            f"has {len(words)} fields, not the five of minute, hour, day, month, day of week, nor {known}"
        )
    minute, hour, day, month, weekday = words
    found = Cron(
        tuple(sorted(_field("minute", minute, 0, 59))),
        tuple(sorted(_field("hour", hour, 0, 23))),
        frozenset(_field("day of month", day, 1, 31)),
        frozenset(_field("month", month, 1, 12, _MONTHS)),
        frozenset(each % 7 for each in _field("day of week", weekday, 0, 7, _DAYS)),
        both_days=day.startswith("*") or weekday.startswith("*"),
        intervals=minute.startswith("*") or hour.startswith("*"),
    )
    if next(_days(found, date(2000, 1, 1)), None) is None:
        raise BadCron("never comes: no day of the calendar matches")
    return found


def _field(what: str, text: str, least: int, most: int, names: dict[str, int] | None = None) -> set[int]:
    """The numbers that a field stands for."""

    def number(word: str) -> int:
        named = (names or {}).get(word.upper())
        if named is not None:
            return named
        if not (word.isascii() and word.isdecimal()) or len(word) > 3 or not least <= int(word) <= most:
            raise BadCron(f"has {word[:20]!r} as {what}, not a number from {least} to {most}")
        return int(word)

    found: set[int] = set()
    for term in text.split(","):
        span, slash, by = term.partition("/")
        if slash and not (by.isascii() and by.isdecimal() and len(by) <= 3 and int(by)):
            raise BadCron(f"has a step of {by[:20]!r} in {what}, not a number from 1 on")
        if span == "*":
            first, last = least, most if most != 7 else 6
        elif "-" in span:
            first, last = map(number, span.split("-", 1))
            if last == 0 < first and most == 7:  # FRI-SUN
                last = 7
            if last < first:
                raise BadCron(f"has the range {span!r} in {what}, whose end is before its beginning")
        else:
            first = number(span)
            last = most if slash else first
        found |= set(range(first, last + 1, int(by) if slash else 1))
    return found


@functools.lru_cache(maxsize=1024)
def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """The time zone of that name, such as ``Europe/Berlin``. Raises ``BadCron``."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise BadCron(f"{name[:60]!r} is no time zone that this machine knows") from None


def next_run(text: str, zone: str, after: float) -> float | None:
    """The first time after ``after`` at which it is due, in seconds since the epoch; None once there is no other.

    Raises ``BadCron``.
    """
    return next(runs(text, zone, after), None)


def last_run(text: str, zone: str, after: float, until: float) -> float | None:
    """The last time after ``after``, and at ``until`` at the latest, at which it is due; None if there is none."""
    cron, tz = parse(text), zone_of(zone)
    first = _date(after, tz) - _DAY
    for day in _days(cron, first, _date(until, tz) + _DAY, back=True):
        for due in _on(cron, tz, day, math.nextafter(after, math.inf), until, back=True):
            return due
    return None


def runs(text: str, zone: str, after: float) -> Iterator[float]:
    """All times after ``after`` at which it is due, in their order."""
    cron, tz = parse(text), zone_of(zone)
    for day in _days(cron, _date(after, tz) - _DAY):
        for due in _on(cron, tz, day, after):
            if due > after:
                yield due
                after = due


_DAY = timedelta(days=1)


def _date(at: float, tz: zoneinfo.ZoneInfo) -> date:
    return datetime.fromtimestamp(at, tz).date()


def _days(cron: Cron, first: date, last: date = date.max, *, back: bool = False) -> Iterator[date]:
    """Dates that match, from ``first`` to ``last``, for so many years at the most; ``back``: the last one first."""
    earliest = max(first.year, last.year - SEARCHED_YEARS) if back else first.year
    years = range(earliest, min(earliest + SEARCHED_YEARS + back, last.year + 1, 9990))
    way = -1 if back else 1
    months = sorted(cron.months)[::way]
    days = (sorted(cron.days) if cron.both_days else range(1, 32))[::way]
    for year, month in itertools.product(years[::way], months):
        if not (first.year, first.month) <= (year, month) <= (last.year, last.month):
            continue
        length = calendar.monthrange(year, month)[1]
        for number in days:
            if number <= length and first <= (day := date(year, month, number)) <= last and cron.matches(day):
                yield day


@dataclass(frozen=True)
class _Piece:
    """A part of a date within which clocks run on: its local seconds, which are times of ``moved`` seconds more."""

    begin: int
    end: int
    moved: int
    new_from: int
    """Local seconds before it were shown already."""
    left_out: tuple[int, int]
    """Local seconds, from and to, that clocks left out just before it; none where they are equal."""
    since: int
    """The time at which it begins, also where that is on another date."""


def _on(
    cron: Cron, tz: zoneinfo.ZoneInfo, day: date, after: float, until: float = math.inf, *, back: bool = False
) -> Iterator[float]:
    """Times from ``after`` to ``until`` at which it is due on a date, sorted; ``back``: the last one first."""
    for piece in _pieces(tz, day)[:: -1 if back else 1]:
        # A time of day that was left out is due where the piece begins.
        at_gap = (
            not cron.intervals
            and after <= piece.since <= until
            and next(_times(cron, *piece.left_out), None) is not None
        )
        if at_gap and not back:
            yield piece.since
        begin = piece.begin if cron.intervals else max(piece.begin, piece.new_from)
        least = max(begin, math.floor(after) - piece.moved)
        most = piece.end if until == math.inf else min(piece.end, math.floor(until) - piece.moved + 1)
        for second in _times(cron, least, most, back=back):
            if after <= (due := second + piece.moved) <= until:
                yield due
        if at_gap and back:
            yield piece.since


def _times(cron: Cron, begin: int, end: int, *, back: bool = False) -> Iterator[int]:
    """Seconds of a day, from ``begin`` to before ``end``, at which it is due; ``back``: the last one first."""
    if begin >= end:
        return
    way = -1 if back else 1
    hours = cron.hours[
        bisect.bisect_left(cron.hours, begin // 3600) : bisect.bisect_left(cron.hours, -(-end // 3600))
    ]
    for hour in hours[::way]:
        for minute in cron.minutes[::way]:
            if begin <= (second := hour * 3600 + minute * 60) < end:
                yield second


@functools.lru_cache(maxsize=4096)
def _pieces(tz: zoneinfo.ZoneInfo, day: date) -> tuple[_Piece, ...]:
    """The parts of a date between changes of the clocks, in their order."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=tz)
    if len({(midnight + timedelta(hours=h)).utcoffset() for h in (-25, 0, 12, 25)}) == 1:
        # Two days, since a change at midnight itself belongs to both.
        start = round(midnight.timestamp())
        return (_Piece(0, 86_400, start, 0, (0, 0), start),)
    counted_as_utc = calendar.timegm(day.timetuple())
    first, last = counted_as_utc - _NEAR_S, counted_as_utc + 86_400 + _NEAR_S
    looks = [(at, _offset(tz, at)) for at in range(first, last + 1, 7200)]
    changes = [_change(tz, early, late) for (early, was), (late, now) in itertools.pairwise(looks) if was != now]
    found: list[_Piece] = []
    shown = 0
    for begin, end in itertools.pairwise([first, *changes, last]):
        moved = counted_as_utc - _offset(tz, begin)
        starts, ends = max(begin - moved, 0), min(end - moved, 86_400)
        left_out = (shown, max(shown, min(starts, 86_400))) if found else (0, 0)
        found.append(_Piece(starts, ends, moved, shown, left_out, begin))
        shown = max(shown, ends)
    return tuple(found)


_NEAR_S = 26 * 3600
"""Clocks show a date at most so long before and after those of UTC do."""


def _offset(tz: zoneinfo.ZoneInfo, at: int) -> int:
    """Seconds that clocks there are ahead of UTC."""
    offset = datetime.fromtimestamp(at, tz).utcoffset()
    return round(offset.total_seconds()) if offset is not None else 0


def _change(tz: zoneinfo.ZoneInfo, early: int, late: int) -> int:
    """The moment between two at which the clocks were set."""
    before = _offset(tz, early)
    while late - early > 1:
        middle = (early + late) // 2
        if _offset(tz, middle) == before:
            early = middle
        else:
            late = middle
    return late


def in_zone(at: float, zone: str) -> str:
    """A moment as clocks there show it, such as ``2026-03-29 03:00 CEST``."""
    return datetime.fromtimestamp(at, zone_of(zone)).strftime("%Y-%m-%d %H:%M %Z")


def stamp(at: float) -> str:
    """A moment as twelve digits, in UTC, such as ``202603290100``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%d%H%M")
