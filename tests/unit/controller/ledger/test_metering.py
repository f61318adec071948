"""What the controller counts of a job's life, and what it does not count twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.job_examples import EXIT, GANG, INVENTORY, JOB_EVENTS

from holdfast._daemon.metrics.series import Family, Histogram
from holdfast._session.reports import ExitReason
from holdfast.hang.judge.finding import Rule
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job import Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import EndReason, Recover, of_rank
from holdfast_controller.core.model.runtime import Started
from holdfast_controller.core.views import metric_families as fam
from holdfast_controller.core.views.metering import Meter

PLACES = (Place("h1"), Place("h1"), Place("h2"))
MEETING = Rendezvous("10.0.0.1", 20001, "s", ("10.0.0.1",) * 3, (1, 2, 3))
STARTED = {0: Started(7, (8, 9)), 1: Started(10, (11,)), 2: Started(12, (13,))}


class Story:
    """A cluster of two hosts, and its meter."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.meter = Meter(self.cluster)
        for name in ("h1", "h2"):
            self.tell(
                ev.HostJoined(
                    host=name,
                    at=Wall(0.5),
                    address="10.0.0.1",
                    boot_id="b",
                    agent_version="1.0",
                    inventory=INVENTORY,
                )
            )

    def tell(self, *events: ev.Event) -> None:
        """All at once, as a commit holds several: the state is ahead of what is counted."""
        for event in events:
            fold(self.cluster, event)
        for event in events:
            self.meter.take(event)

    def count(self, family: Family, *labels: str) -> float:
        found = self.meter.series.of(family)[labels]
        assert not isinstance(found, Histogram)
        return found

    def observed(self, family: Family, *labels: str) -> tuple[int, float]:
        """(how many, their sum)."""
        found = self.meter.series.of(family).get(labels)
        if found is None:
            return 0, 0.0
        assert isinstance(found, Histogram)
        return sum(found.counts), round(found.sum, 6)


@pytest.fixture
def story() -> Story:
    return Story()


def submitted(at: float = 10.0) -> ev.JobSubmitted:
    return ev.JobSubmitted(
        job_id="a",
        at=Wall(at),
        owner="ann",
        request_id="",
        display_name="train",
        labels={},
        gang=GANG,
        spec_json="{}",
    )


def running(story: Story) -> None:
    story.tell(submitted(), ev.JobPlaced(job_id="a", at=Wall(40.0), attempt=1, generation=1, places=PLACES))
    story.tell(
        ev.GangLaunched(job_id="a", at=Wall(41.0), generation=1, rendezvous=MEETING),
        ev.GangStarted(job_id="a", at=Wall(42.5), generation=1, started=STARTED),
    )


def test_wait_counts_to_the_first_placement_and_start_from_there(story: Story) -> None:
    running(story)
    assert story.count(fam.JOBS_SUBMITTED) == 1
    assert story.observed(fam.JOB_WAIT) == (1, 30.0)
    assert story.observed(fam.JOB_START) == (1, 2.5)
    assert story.observed(fam.RECOVERY_LOST) == (0, 0.0)


def test_wait_of_a_job_that_runs_after_others_begins_with_the_last_of_their_ends(story: Story) -> None:
    others = tuple(map(Dependency, "bc"))
    story.tell(replace(submitted(), gang=replace(GANG, after=others)))
    for at, on in ((2000.0, "b"), (3000.0, "c")):
        story.tell(ev.DependencyEnded(job_id="a", at=Wall(at), on=on, state=JobState.SUCCEEDED, met=True))
    story.tell(ev.JobPlaced(job_id="a", at=Wall(3005.0), attempt=1, generation=1, places=PLACES))
    assert story.observed(fam.JOB_WAIT) == (1, 5.0)


def restart(generation: int, at: float, *, worker: int | None = None) -> ev.RestartDecided:
    return ev.RestartDecided(
        job_id="a",
        at=Wall(at),
        generation=generation,
        end_reason=EndReason.SIGNALED,
        related=of_rank("workerpool0-0", 0),
        stop_reason=ExitReason.STOPPED,
        failed_at=Wall(at - 2.0),
        charged=0,
        worker=worker,
    )


def test_restart_in_place_is_told_by_reason_and_phase_and_is_no_start(story: Story) -> None:
    running(story)
    story.tell(ev.RankExited(job_id="a", at=Wall(98.0), worker="workerpool0-0", exit=EXIT), restart(2, 100.0))
    story.tell(
        ev.GangLaunched(job_id="a", at=Wall(103.0), generation=2, rendezvous=MEETING),
        ev.GangStarted(job_id="a", at=Wall(107.0), generation=2, started=STARTED),
    )
    story.tell(ev.CaughtUp(job_id="a", at=Wall(127.0), generation=2, step=700.0))
    assert story.count(fam.JOB_RESTARTS, "SIGNALED", "in_place") == 1
    assert story.count(fam.RANK_EXITS, "SIGNALED") == 1
    spent = {phase: story.observed(fam.RECOVERY, phase)[1] for phase in ("detect", "stop", "start", "catch_up")}
    assert spent == {"detect": 2.0, "stop": 3.0, "start": 4.0, "catch_up": 20.0}
    assert story.observed(fam.RECOVERY_LOST) == (1, 9.0)
    assert story.observed(fam.JOB_START) == (1, 2.5)


def test_launch_that_never_ran_counts_as_a_restart_and_not_as_a_recovery(story: Story) -> None:
    running(story)
    story.tell(restart(2, 100.0))
    story.tell(
        restart(3, 105.0),
        ev.GangLaunched(job_id="a", at=Wall(106.0), generation=3, rendezvous=MEETING),
        ev.GangStarted(job_id="a", at=Wall(107.0), generation=3, started=STARTED),
    )
    assert story.count(fam.JOB_RESTARTS, "SIGNALED", "in_place") == 2
    assert story.observed(fam.RECOVERY_LOST) == (1, 4.0)


def test_worker_alone_and_a_move_to_other_hosts_are_told_apart(story: Story) -> None:
    running(story)
    story.tell(
        restart(2, 100.0, worker=1),
        ev.WorkerStarted(
            job_id="a", at=Wall(101.0), worker="workerpool1-0", generation=2, started=Started(1, (2,))
        ),
    )
    story.tell(
        ev.AttemptEnded(
            job_id="a",
            at=Wall(200.0),
            leaving=Leaving.RETRY,
            end_reason=EndReason.LOST_HOST,
            failed_at=Wall(190.0),
            recover=Recover.JOB_RESCHEDULE,
        )
    )
    assert story.count(fam.JOB_RESTARTS, "SIGNALED", "worker") == 1
    assert story.count(fam.JOB_RESTARTS, "LOST_HOST", "reschedule") == 1
    assert story.observed(fam.RECOVERY_LOST) == (1, 3.0)


def test_pause_is_no_restart(story: Story) -> None:
    running(story)
    story.tell(ev.AttemptEnded(job_id="a", at=Wall(200.0), leaving=Leaving.PAUSE, end_reason=EndReason.PAUSED))
    assert fam.JOB_RESTARTS not in list(story.meter.series)


def test_second_placement_is_a_start_and_no_wait(story: Story) -> None:
    running(story)
    story.tell(
        ev.AttemptEnded(
            job_id="a",
            at=Wall(200.0),
            leaving=Leaving.RETRY,
            end_reason=EndReason.LOST_HOST,
            failed_at=Wall(190.0),
            recover=Recover.JOB_RESCHEDULE,
        )
    )
    for worker in ("workerpool0-0", "workerpool1-0", "workerpool1-1"):
        story.tell(ev.WorkerEmptied(job_id="a", at=Wall(201.0), worker=worker))
    story.tell(
        ev.JobPlaced(job_id="a", at=Wall(210.0), attempt=2, generation=2, places=PLACES),
        ev.GangLaunched(job_id="a", at=Wall(211.0), generation=2, rendezvous=MEETING),
    )
    story.tell(ev.GangStarted(job_id="a", at=Wall(213.0), generation=2, started=STARTED))
    assert story.observed(fam.JOB_WAIT) == (1, 30.0)
    assert story.observed(fam.JOB_START) == (2, 5.5)


def test_hangs_are_told_by_rule_and_by_what_came_of_them(story: Story) -> None:
    running(story)
    story.tell(
        ev.HangNoticed(
            job_id="a",
            at=Wall(50.0),
            generation=1,
            since=Wall(45.0),
            rule=Rule.GPUS_IDLE,
            sentence="still",
            suspects=(),
            hosts=(),
        ),
        ev.HangJudged(job_id="a", at=Wall(51.0), outcome=HangOutcome.SUPPRESSED),
    )
    story.tell(
        ev.HangOver(job_id="a", at=Wall(60.0), note="it moves"),
        ev.CommonCauseNoticed(at=Wall(61.0), sentence="both wait", jobs=("a", "b")),
        ev.CommonCauseNoticed(at=Wall(62.0), sentence="hardware looks ill on 5 hosts", jobs=(), hosts=("h1", "h2")),
    )
    assert story.count(fam.HANG_NOTICES, "GPUS_IDLE") == 1
    assert story.count(fam.HANG_VERDICTS, "NOTIFY", "WITHHELD") == 1
    assert story.count(fam.HANG_VERDICTS, "NOTIFY", "OVER") == 1
    assert story.count(fam.HANG_COMMON_CAUSES) == 1


def test_a_controller_that_starts_in_the_middle_counts_what_it_sees(story: Story) -> None:
    story.tell(submitted(), ev.JobPlaced(job_id="a", at=Wall(40.0), attempt=1, generation=1, places=PLACES))
    story.meter = Meter(story.cluster)
    story.tell(
        ev.GangLaunched(job_id="a", at=Wall(41.0), generation=1, rendezvous=MEETING),
        ev.GangStarted(job_id="a", at=Wall(42.5), generation=1, started=STARTED),
    )
    story.tell(
        ev.JobEnding(job_id="a", at=Wall(50.0), outcome=JobState.SUCCEEDED),
        ev.JobEnded(job_id="a", at=Wall(51.0), state=JobState.SUCCEEDED),
    )
    assert story.count(fam.JOBS_SUBMITTED) == 0
    assert story.observed(fam.JOB_START) == (0, 0.0)
    assert story.count(fam.JOBS_ENDED, "SUCCEEDED") == 1


def test_every_event_of_a_job_can_be_taken(story: Story) -> None:
    for event in JOB_EVENTS:
        story.tell(event)
    assert story.count(fam.JOBS_SUBMITTED) == 1
