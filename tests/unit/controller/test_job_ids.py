"""Ids of new jobs."""

from __future__ import annotations

import itertools

import pytest

from holdfast_controller.shell import job_service


def test_an_id_that_is_taken_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = itertools.chain("b" * 6, "c" * 6)
    monkeypatch.setattr(job_service.secrets, "choice", lambda letters: next(drawn))
    assert job_service._new_id("python train.py", {"train-bbbbbb"}) == "train-cccccc"
