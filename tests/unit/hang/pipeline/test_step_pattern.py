"""Step patterns are matched in linear time; what cannot be so matched is refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.hang.pipeline.step_pattern import MAX_STEP_LINE, BadPattern, TooLarge, compiled, compiled_earlier

USUAL = [
    r"step=(\d+)",
    r"step\s*[=:]?\s*(\d+)",
    r"(?i)iter (?P<step>[0-9.]+)",
    r"(?i)\b(?:step|iter|it)\b[ =:]*(\d{1,9})",
    r"Epoch \d+.*?step (\d+)",
    r"\[\s*(\d+)/\d+\]",
    r"^\s*(\d+)\s",
    r"global_step[ :=]+(\d+(?:\.\d+)?)",
    r"loss.*lr.*step (\d+)",
    r"([\d,]+) samples",
    r"(\d{3},)*(\d+)",
    r".*step=(\d+).*",
    r"[^|]*\|\s*(\d+)",
]
# Python's own matcher takes for ever, or many seconds, for each of these.
WORST = [
    r"(a+)+(\d)b",
    r"(\d+)*x",
    r"(.*)*(x)",
    r"((\s*\d)*,)*x",
    r".*.*.*.*(x)",
    r"\d+\d+\d+\d+$()x",
    r"(?i)k+[A-Z]+\w+(K)",
    r"(a?)" * 30 + "a" * 30 + "b",
]
TEXTS = ["a", "1", "x ", " ", "step ", "step=", "a1 ", "loss lr ", "1,", "111,", "|", "x|1 ", "é", "\0"]


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_are_taken(pattern: str) -> None:
    assert compiled(pattern).groups >= 1


def test_the_first_group_is_found_behind_characters_of_several_bytes() -> None:
    found = compiled(r"step=(\d+)").search("époque 3 – step=41")
    assert found is not None
    assert found.group(1) == "41"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pattern", USUAL + WORST)
def test_every_pattern_is_matched_in_a_moment_whatever_the_line(pattern: str) -> None:
    """One that goes back over a line would outlast the time that a test has."""
    matcher = compiled(pattern)
    for text in TEXTS:
        matcher.search((text * MAX_STEP_LINE)[:MAX_STEP_LINE])


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("step=(", "is no regular expression: missing ), unterminated subpattern at position 5"),
        (r"\q(1)", r"is no regular expression: bad escape \q at position 0"),
        ("(x{1,99999999999})", "is no regular expression: the repetition number is too large"),
        ("(x{0,100})" * 90, "is too large: its repeats, written out, take more memory"),
        ("(?:(?:a|b){0,1000}c)" * 40, "is too large"),
        ("x" * 1025, "has 1,025 characters; at most 1,024 are allowed"),
        ("(((x{90}){90}){90})", "is no regular expression: "),
        ("\udc80(x)", "is no regular expression: it holds half of a surrogate pair"),
        (r"(\d+)\1+", "refers back to one of its groups"),
        (r"(?P<n>\d+)(?P=n)", "refers back to one of its groups"),
        (r"(a)?(?(1)b|c)", "refers back to one of its groups"),
        (r"(?=.*x)(\d+)", "has a look-ahead, look-behind or atomic group"),
        (r"(?!x)(\d+)", "has a look-ahead, look-behind or atomic group"),
        (r"(?<=step )(\d+)", "has a look-ahead, look-behind or atomic group"),
        (r"(?<!step )(\d+)", "has a look-ahead, look-behind or atomic group"),
        (r"(?>a+)(\d+)", "has a look-ahead, look-behind or atomic group"),
    ],
)
def test_what_cannot_be_matched_in_linear_time_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern) as refused:
        compiled(pattern)
    assert str(refused.value).startswith(why)


def test_a_pattern_that_release_0_1_accepted_is_still_matched() -> None:
    found = compiled_earlier(r"(?<=step )(\d+)").search("step 12")
    assert found is not None
    assert found.group(1) == "12"
    assert type(compiled_earlier(r"step (\d+)")).__module__ == "re2"


SLOW = [
    "(?i)" + "[À-힣][\U00010400-\U00010fff]" * 100,
    "(?i)" + "[\u0100-\uffff]?" * 150,
    "(?is)" + "a{0,100}" * 120,
    "(?:(?:a|a)|s{0,1000})" * 45,
    "(" + "(?:" * 9 + "[^a]" + "){0,2}" * 9 + ")",
    "é{0,1000}" * 110,
]


@pytest.mark.parametrize("pattern", SLOW)
def test_every_pattern_is_refused_or_so_small_that_a_line_takes_a_moment(pattern: str) -> None:
    """A search takes at most a step for each instruction and byte of the line."""
    for compile_one in (compiled, compiled_earlier):
        try:
            found: Any = compile_one(pattern)
        except TooLarge:
            continue
        assert found.programsize <= 5_000
        found.search("a" * MAX_STEP_LINE)


def test_a_pattern_that_is_too_large_never_meets_a_matcher_that_backtracks() -> None:
    with pytest.raises(TooLarge) as refused:
        compiled_earlier("(x{0,100})" * 90)
    assert refused.value.fix.startswith("use fewer or smaller repeats")


def test_what_no_release_accepted_is_refused() -> None:
    with pytest.raises(BadPattern, match="no regular expression"):
        compiled_earlier("step=(")
