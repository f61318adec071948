"""Times as people say them."""

from __future__ import annotations

import datetime

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def age(seconds: float) -> str:
    """``42s``, ``3m``, ``2h``, ``5d``: one unit, for tables. Never negative: clocks differ."""
    seconds = max(0.0, seconds)
    for size, unit in _STEPS:
        if seconds >= size * (2 if unit == "d" else 1):
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def span(seconds: float) -> str:
    """``71ms``, ``4.2s``, ``42s``, ``3m 12s``, ``2h 5m``, ``3d 4h``: two units, for sentences."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for (size, unit), (below, below_unit) in zip(_STEPS, (*_STEPS[1:], (1, "s")), strict=True):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size}{unit} {rest}{below_unit}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def local(seconds_since_epoch: float) -> str:
    """A moment in the reader's own time zone, to the second."""
    return datetime.datetime.fromtimestamp(seconds_since_epoch).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock(seconds_since_epoch: float, now: float) -> str:
    """The time of day in the reader's own time zone, or day and minute when that was not today."""
    moment = datetime.datetime.fromtimestamp(seconds_since_epoch).astimezone()
    today = datetime.datetime.fromtimestamp(now).astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%m-%d %H:%M")
