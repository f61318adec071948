"""Ids of new jobs."""

from __future__ import annotations

import secrets

import pytest

from holdfast_controller.shell.services import job_ids


def test_an_id_that_is_taken_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = len(job_ids._ALPHABET)
    drawn = iter([0, sum(letters**place for place in range(6))])
    monkeypatch.setattr(secrets, "randbelow", lambda below: next(drawn))
    assert job_ids.new_id("python train.py", {"train-bbbbbb"}) == "train-cccccc"
