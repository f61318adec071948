"""Step patterns that could take for ever are refused, and those that people write are not."""

from __future__ import annotations

import re
import time

import pytest

from holdfast.hang.pipeline.step_pattern import MAX_STEP_LINE, why_endless

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
WORST = [r".*.*(x)", r"\d*\d*(x)", r"\w+\w+ (\d)", r"(.*)(.*)$x", r"(\d+)\d+x?y?z"]
TEXTS = ["a", "1", "x ", " ", "step ", "step=", "a1 ", "loss lr ", "1,", "111,", "|", "x|1 "]


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_are_taken(pattern: str) -> None:
    assert why_endless(pattern) == ""


@pytest.mark.parametrize("pattern", USUAL + WORST)
def test_what_is_taken_is_matched_in_a_moment_whatever_the_line(pattern: str) -> None:
    """The worst of them takes 15 ms; three loose loops would take seconds, a loop in a loop for ever."""
    assert why_endless(pattern) == ""
    matcher = re.compile(pattern)
    began = time.process_time()
    for text in TEXTS:
        matcher.search((text * MAX_STEP_LINE)[:MAX_STEP_LINE])
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a+)+(\d)", "repeats something that repeats or has alternatives itself"),
        (r"(\d+)*x", "repeats something that repeats"),
        (r"(.*)*(x)", "repeats something that repeats"),
        (r"(a|ab)*(\d)", "repeats something that repeats or has alternatives"),
        (r"((\s*\d)*,)*x", "repeats something that repeats"),
        (r"((a?){9})+(\d)", "repeats something that repeats"),
        (r"(\d+)\1+", "refers back to one of its groups"),
        (r"(?=.*x)(\d+)", "repeats something in a look-ahead"),
        (r".*.*.*(x)", "has 3 parts such as .* whose end is not sure"),
        (r"\d+\d+\d+\d+$()", "has 4 parts such as .*"),
        (r"(?i)k+[A-Z]+\w+(K)", "has 3 parts such as .*"),
        (r"(a?)" * 30 + "a" * 30, "has 30 optional parts or alternatives"),
        (r".*.*(a?)(a?)(a?)x", "has 3 optional parts"),
    ],
)
def test_what_could_take_for_ever_is_refused(pattern: str, why: str) -> None:
    assert why_endless(pattern).startswith(why)


def test_what_is_no_pattern_is_said_to_be_none() -> None:
    with pytest.raises(re.error):
        why_endless("step=(")
