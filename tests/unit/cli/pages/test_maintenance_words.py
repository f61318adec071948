"""Hosts named by patterns, and times as people write them."""

from __future__ import annotations

import datetime
import time

import click
import pytest

from holdfast.cli.hosts.maintenance import point, window
from holdfast.cli.kit.host_names import expand

NOW = datetime.datetime(2026, 11, 22, 21, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["a", "b", "a"], ["a", "b"]),
        (["gpu-[8-11]"], ["gpu-8", "gpu-9", "gpu-10", "gpu-11"]),
        (["gpu-[08-10]"], ["gpu-08", "gpu-09", "gpu-10"]),
        (["r[a,c]-[1,3-4]"], ["ra-1", "ra-3", "ra-4", "rc-1", "rc-3", "rc-4"]),
        (["n[00-12/4]"], ["n00", "n04", "n08", "n12"]),
        (["n[1,3-4],login1", "r[a,b]"], ["n1", "n3", "n4", "login1", "ra", "rb"]),
    ],
)
def test_patterns_of_hosts(words: list[str], names: list[str]) -> None:
    assert expand(words) == names


@pytest.mark.parametrize(
    "word",
    ["", "a[", "a]b", "a[]", "a[1,,2]", "a[4-1]", "a[1-4/0]", "a,,b", "a,", "a[1-99999999]", "a[1-999]b[1-999]"],
)
def test_patterns_that_are_none(word: str) -> None:
    with pytest.raises(click.BadParameter):
        expand([word])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("22:00", datetime.datetime(2026, 11, 22, 22, 0, tzinfo=datetime.UTC)),
        ("9:00", datetime.datetime(2026, 11, 23, 9, 0, tzinfo=datetime.UTC)),
        ("+90m", datetime.datetime(2026, 11, 22, 23, 0, tzinfo=datetime.UTC)),
        ("2026-12-01T08:00:00Z", datetime.datetime(2026, 12, 1, 8, 0, tzinfo=datetime.UTC)),
    ],
)
def test_moments(text: str, moment: datetime.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC0")
        time.tzset()
        assert point(text, NOW) == moment.timestamp()
    time.tzset()


@pytest.mark.parametrize("text", ["", "soon", "25:00", "+", "+soon", "2026-13-01"])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        point(text, NOW)


def test_an_end_is_given_once() -> None:
    assert window(1000.0, 60.0, None).end == 1060.0
    with pytest.raises(click.UsageError):
        window(None, 60.0, 70.0)
