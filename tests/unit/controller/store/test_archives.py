"""What is kept of agents' word on archived output."""

from __future__ import annotations

from tests.unit.controller.examples import job
from tests.unit.controller.job_examples import GANG

from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.output_archive import on_archived
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.placement import Attempt
from holdfast_controller.core.step.commands import ArchiveReported
from holdfast_controller.core.step.step import Policies, Step
from holdfast_controller.core.step.timers import Timers


def said(cluster: Cluster, *reports: tuple[str, str, str]) -> list[ev.Event]:
    """The events that reports (host, worker, problem) lead to."""
    step = Step(cluster, Policies(), Timers(), Now(Mono(1.0), Wall(100.0)))
    for host, worker, problem in reports:
        on_archived(step, ArchiveReported(host, 1, "a", worker, problem))
    return [entry.event for entry in step.entries]


def test_news_of_a_host_that_had_the_worker_are_kept_once() -> None:
    cluster = Cluster()
    cluster.jobs["a"] = job()
    places = tuple(Place(f"h{index}") for index in range(len(GANG.members)))
    cluster.jobs["a"].attempts.append(Attempt(1, 1, places))
    worker = GANG.members[0].name
    full = ("h0", worker, "/out: No space left on device; tried again")
    assert said(cluster, ("h9", worker, "x"), ("h0", "workerpool9-9", "x")) == []
    assert len(said(cluster, full, full)) == 1
    assert cluster.jobs["a"].unarchived == {worker: full[2]}
    assert len(said(cluster, ("h0", worker, ""), ("h0", worker, ""))) == 1
    assert cluster.jobs["a"].unarchived == {}
