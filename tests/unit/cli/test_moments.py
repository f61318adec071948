"""Times as people give them on the command line."""

from __future__ import annotations

import datetime

from holdfast.cli.kit.parameters import moment


def test_yesterday_begins_at_midnight_here() -> None:
    found = [moment("yesterday"), moment("today")]
    assert all(isinstance(each, datetime.datetime) and each.tzinfo is datetime.UTC for each in found)
    local = [each.astimezone() for each in found if isinstance(each, datetime.datetime)]
    assert [(each.hour, each.minute) for each in local] == [(0, 0)] * 2
    assert datetime.timedelta(hours=22) <= local[1] - local[0] <= datetime.timedelta(hours=26)
