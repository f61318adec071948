"""Times and durations as messages: whatever the number, the message can be written as JSON and read back."""

from __future__ import annotations

import datetime
import math

import pytest
from google.protobuf import json_format

from holdfast._base import proto_values
from holdfast_controller.shell.convert import job_to_proto

FAR = (-1e300, -1e18, -4e11, 4e11, 9.3e18, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("make", [proto_values.timestamp, job_to_proto.timestamp])
@pytest.mark.parametrize("far", FAR)
def test_a_time_that_no_calendar_has_is_shown_as_the_nearest_one(make, far: float) -> None:  # type: ignore[no-untyped-def]
    stamp = make(far)
    assert json_format.Parse(json_format.MessageToJson(stamp), type(stamp)()) == stamp
    shown = stamp.ToDatetime(datetime.UTC)
    assert shown.year == (9999 if far > 0 else 1)
    for hours in (-12, 14):
        shown.astimezone(datetime.timezone(datetime.timedelta(hours=hours)))


@pytest.mark.parametrize("far", FAR)
def test_a_duration_beyond_what_a_message_holds_is_the_longest(far: float) -> None:
    message = proto_values.duration(far)
    assert json_format.Parse(json_format.MessageToJson(message), type(message)()) == message
    assert abs(message.seconds) == proto_values.LONGEST_S


@pytest.mark.parametrize("wall_s", [0.0, 1.5, -0.25, 1_700_000_000.123456, 1_700_000_000.9999996])
def test_other_times_stay_as_they_are(wall_s: float) -> None:
    assert proto_values.seconds(proto_values.timestamp(wall_s)) == pytest.approx(wall_s, abs=1e-6)
    assert proto_values.seconds(job_to_proto.timestamp(wall_s)) == pytest.approx(wall_s, abs=1e-6)
    stamp = job_to_proto.timestamp(wall_s)
    assert stamp.nanos % 1000 == 0
    assert stamp.ToDatetime(datetime.UTC) == datetime.datetime.fromtimestamp(wall_s, datetime.UTC)
