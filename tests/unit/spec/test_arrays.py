"""Indices of arrays, as Slurm writes them."""

from __future__ import annotations

import pytest

from holdfast.spec.rules.arrays import ELEMENTS_MOST, ArrayIndices, read_array


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        ("", (), 0),
        ("7", (7,), 0),
        ("0-3", (0, 1, 2, 3), 0),
        ("1,3,7", (1, 3, 7), 0),
        ("1-20:5", (1, 6, 11, 16), 0),
        ("9,1-3%2", (1, 2, 3, 9), 2),
        ("0-999%16", tuple(range(1000)), 16),
        ("5-5", (5,), 0),
    ],
)
def test_indices_come_lowest_first(text: str, indices: tuple[int, ...], at_once: int) -> None:
    assert read_array(text) == ArrayIndices(indices, at_once)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5-1", "the range 5-1 ends before it begins"),
        ("1-9:0", "the range 1-9:0 has the step 0"),
        ("1-20%0", "'0' behind % is no number above 0"),
        ("1-20%", "'' behind % is no number above 0"),
        ("%4", "'' is no index or range"),
        ("1,,2", "'' is no index or range"),
        ("-1", "'-1' is no index or range"),
        ("1 - 3", "'1 - 3' is no index or range"),
        ("1-3,2", "names the index 2 twice"),
        ("١", "'١' is no index or range"),
        ("0-1000", f"has more than {ELEMENTS_MOST:,} indices"),
        ("0-999,5000", f"has more than {ELEMENTS_MOST:,} indices"),
        ("0-999999999", "the index 999,999,999 is above 999,999"),
        ("9" * 4000, "'99999999999999999999' is no index or range"),
    ],
)
def test_what_is_no_array_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_array(text)
    assert str(refused.value) == problem
