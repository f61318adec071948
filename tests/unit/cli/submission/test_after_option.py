"""The option ``--after JOB[:ok|any|failed]``."""

from __future__ import annotations

import click
import pytest

from holdfast.cli.submission.job_options import dependency_of


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("prep-1", ("prep-1", "ok")),
        ("prep-1:any", ("prep-1", "any")),
        ("step 2: train:failed", ("step 2: train", "failed")),
        ("step 2: train", ("step 2: train", "ok")),
    ],
)
def test_a_name_with_a_colon_is_a_name(word: str, meant: tuple[str, str]) -> None:
    assert dependency_of(word) == meant


@pytest.mark.parametrize("word", ["", ":any"])
def test_no_job_is_refused(word: str) -> None:
    with pytest.raises(click.BadParameter, match="names no job"):
        dependency_of(word)
