"""Views of jobs that are made in slices, between which the cluster goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.budgets import Recovery
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.shell.calls import committed_views

pytestmark = pytest.mark.anyio


async def test_recoveries_are_those_of_one_moment_however_many_slices_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    gang = Gang((Pool(1, Task(("train",))),))
    submitted = ev.JobSubmitted(
        job_id="a",
        at=Wall(1.0),
        owner="ann",
        request_id="",
        display_name="train",
        labels={},
        gang=gang,
        spec_json="{}",
    )
    fold(cluster, submitted)
    job = cluster.jobs["a"]
    job.state = JobState.RUNNING  # else it has a reason to wait
    job.recoveries = [Recovery(1, 2 + n, Wall(2.0 + n), EndReason.SIGNALED, Related()) for n in range(5)]
    rests = 0

    class Slices:
        async def rest(self) -> None:
            nonlocal rests
            rests += 1
            job.recoveries[-1].ended_at = Wall(99.0)
            job.recoveries.append(Recovery(1, 9, Wall(98.0), EndReason.SIGNALED, Related()))

    async def done(*_: Any) -> None:
        pass

    monkeypatch.setattr(committed_views, "TURNS", SimpleNamespace(begin=Slices))
    driver = SimpleNamespace(cluster=cluster, bring=done, settled=done)
    picture = await committed_views.committed_job(cast("Any", driver), "a", "ann", workers=False)
    assert rests == len(picture.recoveries) == 5
    assert [each.generation for each in picture.recoveries] == [2, 3, 4, 5, 6]
    assert not any(each.HasField("ended_at") for each in picture.recoveries)
