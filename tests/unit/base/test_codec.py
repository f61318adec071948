"""Dataclasses as plain JSON values and back: by field, with the path to what is wrong."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest

from holdfast._base.codec import Format, from_plain, to_plain


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    low_s: float
    high_s: float = 9.0


@dataclass(frozen=True, slots=True)
class Part:
    cpu_s: float = 0.0
    colour: Colour = Colour.RED
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    parts: tuple[Part, ...] = ()
    pair: Pair = field(default_factory=lambda: Pair(1.0))
    by_rank: Mapping[str, Part] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    persistence: tuple[tuple[str, bool], ...] = ()


WHOLE = Whole("a", (Part(1.23456), Part(line=7)), Pair(2.0), {"0": Part()}, frozenset("yx"), (("GPU-0", True),))
CAMEL = Format(camel=True, without_defaults=True, digits=2, skip_unknown=True)


def test_a_value_comes_back_from_its_json() -> None:
    assert from_plain(Whole, json.loads(json.dumps(to_plain(WHOLE)))) == WHOLE


def test_a_form_says_how_keys_and_numbers_are_written() -> None:
    written = to_plain(WHOLE, CAMEL)
    assert written["byRank"] == {"0": {}} and written["parts"] == [{"cpuS": 1.23}, {"line": 7}]
    assert from_plain(Whole, written, CAMEL) == replace(WHOLE, parts=(Part(1.23), Part(line=7)))


def test_what_equals_its_default_may_be_left_out() -> None:
    assert to_plain(Whole("a"), CAMEL) == {"name": "a", "pair": {"lowS": 1.0, "highS": 9.0}, "byRank": {}}
    assert to_plain(Part(line=3), CAMEL) == {"line": 3}


@pytest.mark.parametrize(
    ("plain", "problem"),
    [
        ({}, "missing 1 required positional argument: 'name'"),
        ([], r"no record of Whole: \[\] is no dict"),
        ({"name": 5}, "no record of Whole: name: 5 is no str"),
        ({"name": "a", "parts": {}}, "parts: {} is no list"),
        ({"name": "a", "parts": [{}, {"cpu_s": "1"}]}, r"parts\[1\].cpu_s: '1' is no float"),
        ({"name": "a", "parts": [{"cpu_s": True}]}, r"parts\[0\].cpu_s: True is no float"),
        ({"name": "a", "parts": [{"line": 1.5}]}, r"parts\[0\].line: 1.5 is no int"),
        ({"name": "a", "parts": [{"colour": "BLUE"}]}, r"parts\[0\].colour: 'BLUE' is no Colour"),
        ({"name": "a", "parts": [{"colour": []}]}, r"parts\[0\].colour: \[\] is no Colour"),
        ({"name": "a", "by_rank": {"3": 1}}, r"by_rank\[3\]: 1 is no dict"),
        ({"name": "a", "persistence": [["GPU-0"]]}, r"persistence\[0\]: has 1 items, not 2"),
        ({"name": "a", "colour": 1}, "has no field 'colour'"),
    ],
)
def test_what_is_no_such_record_is_refused_with_its_path(plain: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        from_plain(Whole, plain)


def test_unknown_keys_can_be_passed_over_and_missing_ones_refused() -> None:
    assert from_plain(Part, {"x": 1}, Format(skip_unknown=True)) == Part()
    with pytest.raises(ValueError, match="lacks the field 'colour'"):
        from_plain(Part, {"cpu_s": 1.0}, Format(complete=True))


def test_single_types_can_have_their_own_form() -> None:
    seen: list[Part] = []
    write = Format(write={Part: lambda part: seen.append(part) or len(seen) - 1})  # type: ignore[func-returns-value]
    plain = to_plain(Whole("a", (Part(1.0), Part(2.0))), write)
    assert plain["parts"] == [0, 1]
    assert from_plain(Whole, plain, Format(read={Part: seen.__getitem__})).parts == (Part(1.0), Part(2.0))
