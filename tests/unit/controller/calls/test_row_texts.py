"""Rows of jobs as JSON: the text is what the row would be printed as, and a row that says the same is printed once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast._sdk import json_view
from holdfast.v1 import job_pb2
from holdfast_controller.shell.rest.printed import listed_rows, text_of

pytestmark = pytest.mark.anyio


def row(draw: random.Random) -> job_pb2.CustomJob:
    made = job_pb2.CustomJob(
        id=f"train-{draw.randrange(3)}",
        labels={f"k{n}": draw.choice("ab") for n in draw.sample(range(4), draw.randrange(4))},
        state=job_pb2.JobState.Value(draw.choice(("JOB_STATE_RUNNING", "JOB_STATE_QUEUED"))),
        step=draw.choice((None, 3.0)),
        gpu_count=draw.randrange(3),
        wait_reason=draw.choice(("", '"behind" \u202e\u2028')),
    )
    if draw.random() < 0.5:
        made.create_time.seconds = draw.randrange(2)
    return made


@pytest.mark.parametrize("seed", range(5))
async def test_a_text_is_that_of_the_row(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        rows = [row(draw) for _ in range(draw.randrange(5))]
        page = await listed_rows("jobs", rows, "12")
        whole: dict[str, Any] = {"jobs": [json_view.job_row(each) for each in rows], "nextPageToken": "12"}
        assert page.whole().decode() == text_of(whole)


async def test_a_row_that_says_the_same_is_not_printed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, job_row = list[str](), json_view.job_row

    def noted(job: job_pb2.CustomJob) -> json_view.Json:
        printed.append(job.id)
        return job_row(job)

    monkeypatch.setattr(json_view, "job_row", noted)
    for step in (1.0, 1.0, 2.0):
        rows = [job_pb2.CustomJob(id="still-here"), job_pb2.CustomJob(id="goes-on", step=step)]
        await listed_rows("jobs", rows, "")
    assert printed == ["still-here", "goes-on", "goes-on"]
