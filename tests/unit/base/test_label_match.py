"""Conditions on labels: what is read, what holds, and what can't hold together."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._base.job_file.label_match import CONDITIONS_MOST, Condition, contradiction, read_match


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", []),
        ("  ", []),
        ("gpu in (h100,h200),!old,rack!=r7", ["gpu in (h100,h200)", "!old", "rack!=r7"]),
        (" a == b , c notin ( y , x, x ) ", ["a=b", "c notin (x,y)"]),
        ("a in (b)", ["a=b"]),
        ("in", ["in"]),
        ("in in (in)", ["in=in"]),
        ("notin notin (in)", ["notin!=in"]),
        ("a in(b)", ["a=b"]),
        ("! a", ["!a"]),
        ("example.org/disk=nvme", ["example.org/disk=nvme"]),
    ],
)
def test_conditions_are_read(text: str, read: list[str]) -> None:
    assert [str(each) for each in read_match(text)] == read


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,", "ends with a comma"),
        ("a,,b", "',b' is no condition"),
        ("a in ()", "'a in ()' is no condition"),
        ("a in (b", "'a in (b' is no condition"),
        ("a in b", "'a in b' is no condition"),
        ("a=", "'a=' is no condition"),
        ("=a", "'=a' is no condition"),
        ("a b", "'a b' is no condition"),
        ("ok, a = b c", "'a = b c' is no condition"),
        ("a>3", "'a>3' is no condition"),
        ('a="b"', "'a=\"b\"' is no condition"),
        ("!", "'!' is no condition"),
        ("!!a", "'!!a' is no condition"),
        ("!a=b", "'!a=b' is no condition"),
        ("x" * 65, "is no condition"),
        (",".join("a" * (CONDITIONS_MOST + 1)), f"more than {CONDITIONS_MOST} conditions"),
    ],
)
def test_what_is_no_condition_is_named(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"condition|comma") as raised:
        read_match(text)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("condition", "without", "with_x", "with_y"),
    [
        ("a=x", False, True, False),
        ("a in (x,z)", False, True, False),
        ("a!=x", True, False, True),
        ("a notin (x,z)", True, False, True),
        ("a", False, True, True),
        ("!a", True, False, False),
    ],
)
def test_what_holds_of_a_host(condition: str, without: bool, with_x: bool, with_y: bool) -> None:
    [read] = read_match(condition)
    assert [read.holds(labels) for labels in ({}, {"a": "x"}, {"a": "y"}, {"a": ""})] == [
        *(without, with_x, with_y),
        with_y,
    ]


conditions = st.builds(
    Condition,
    st.sampled_from("ab"),
    st.lists(st.sampled_from("xyz"), unique=True, max_size=3).map(lambda found: tuple(sorted(found))),
    st.booleans(),
)


@given(st.lists(conditions, max_size=5))
def test_a_contradiction_is_found_where_no_labels_meet_all(asked: list[Condition]) -> None:
    values = (None, "x", "y", "z", "other")
    worlds = [
        {key: value for key, value in zip("ab", pair, strict=True) if value is not None}
        for pair in itertools.product(values, repeat=2)
    ]
    possible = any(all(each.holds(labels) for each in asked) for labels in worlds)
    assert (contradiction(asked) == "") == possible


@given(st.lists(conditions, min_size=1, max_size=5))
def test_what_is_printed_is_read_back(asked: list[Condition]) -> None:
    assert list(read_match(",".join(map(str, asked)))) == asked
