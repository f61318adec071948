"""Times in words."""

from __future__ import annotations

from datetime import date, timedelta

from holdfast_controller.core.model.clock import Mono, Now, Wall, moment


def test_a_day_is_written_as_the_calendar_has_it() -> None:
    began = date(1970, 1, 1)
    now = Now(Mono(0.0), Wall(-1e12))
    for days in range(0, 2_000_000, 97):
        assert moment(Wall(days * 86_400.0), now) == f"{(began + timedelta(days)).isoformat()} 00:00 UTC"
    for days in range(146_097):  # a whole cycle
        assert moment(Wall(days * 86_400.0 + 46_805), now) == f"{(began + timedelta(days)).isoformat()} 13:00 UTC"
