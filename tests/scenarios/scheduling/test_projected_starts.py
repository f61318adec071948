"""Backfill by time: who may start ahead of its turn, and that the first to wait starts no later than projected."""

from __future__ import annotations

import dataclasses
import os
import random

import pytest
from bench.fleet.reactor import Play
from tests.scenarios.queue_stories import finish, job_of, placed
from tests.scenarios.scheduling.loans.test_spot_loans import QUIET as STRICT
from tests.scenarios.scheduling.test_fleet_bench import drawn
from tests.scenarios.world import World, gang, inventory

from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Mono, Now, Wall, time_of_day
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill, RunTimes
from holdfast_controller.core.scheduling.projections import kept_starts
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, wait_reason
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies
from holdfast_controller.core.views.job_summary import summary_of

HOUR_S = 3600.0
QUIET = dataclasses.replace(STRICT, backfill=Backfill.PROJECTED)
MORE = int(os.environ.get("HOLDFAST_QUEUES", "16"))
"""Random queues."""


def lasting(hours: float, workers: int = 1, **rules: object) -> Gang:
    """Workers that fill a host each; the job declares how long it runs."""
    return gang(workers, expected_s=hours * HOUR_S, max_wait_s=0.0, **rules)  # type: ignore[arg-type]


def why(world: World, name: str) -> str:
    """The words that users see, with the time when the job is expected to start."""
    hosts = schedulable_hosts(world.cluster)
    now = Now(Mono(world.mono), Wall(world.wall))
    return wait_reason(world.cluster, job_of(world, name), hosts, QueueView(world.cluster, hosts, {}, now))


def waits_for_both(policies: Policies = QUIET) -> World:
    """One of two hosts is busy for two more hours, and a job waits for both."""
    world = World(hosts=2, policies=policies)
    world.submit("busy", lasting(2))
    world.run("busy")
    world.submit("large", lasting(5, workers=2))
    return world


# --- Who may pass -------------------------------------------------------------------------------------------------


def test_job_that_ends_before_the_projected_start_passes_and_the_event_says_so() -> None:
    world = waits_for_both()
    assert placed(world.submit("short", lasting(2))) == ["short placed g1 on host-1"]
    (event,) = [event for event in world.log if isinstance(event, ev.JobPlaced) and event.job_id == "short"]
    assert (event.ahead_of, event.loan_of) == ("large", "")
    assert message_of(event, job_of(world, "short")) == (
        "placed on host-1, ahead of large, which is not expected to start later for it"
    )


def test_job_that_would_delay_the_projected_start_waits() -> None:
    world = waits_for_both()
    assert not placed(world.submit("long", lasting(2.1)))
    assert not placed(world.submit("untold", gang(1)))
    assert placed(world.submit("short", lasting(1))) == ["short placed g1 on host-1"]


def test_longer_job_passes_where_it_leaves_what_the_projected_start_needs() -> None:
    world = World(hosts=3, policies=QUIET)
    world.submit("a", lasting(2))
    world.submit("b", lasting(4))
    world.run("a")
    world.run("b")
    world.submit("large", lasting(5, workers=2))
    assert not placed(world.submit("all", lasting(30)))
    world.join("host-3")
    told = world.submit("more", lasting(1, workers=2))
    assert placed(told) == [], "large has started: host-2 and host-3 were enough"
    assert job_of(world, "large").places


def test_under_strict_nothing_passes() -> None:
    world = waits_for_both(STRICT)
    assert not placed(world.submit("short", lasting(0.1)))


def test_of_two_that_wait_for_different_hosts_both_have_a_projected_start() -> None:
    """Else the second would starve behind the first."""
    world = World(policies=QUIET)
    for name, model in (("h", "NVIDIA H100"), ("h2", "NVIDIA H100"), ("a", "NVIDIA A100"), ("a2", "NVIDIA A100")):
        world.join(name, inventory(4, model=model, name=name))
    world.submit("busy-h", typed(1, "NVIDIA_H100", 2))
    world.submit("busy-a", typed(1, "NVIDIA_A100", 2))
    world.run("busy-h")
    world.run("busy-a")
    world.submit("large-h", typed(2, "NVIDIA_H100", 9))
    world.submit("large-a", typed(2, "NVIDIA_A100", 9))
    assert not placed(world.submit("long-a", typed(1, "NVIDIA_A100", 3)))
    assert placed(world.submit("short-a", typed(1, "NVIDIA_A100", 1)))
    assert not placed(world.submit("long-h", typed(1, "NVIDIA_H100", 3)))


def test_behind_as_many_hosts_as_one_pass_looks_at_nothing_more_is_projected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits there is kept whole; a pass that looks at fewer hosts lets the same job start."""
    world = World(policies=QUIET)
    for name, model in (("h", "NVIDIA H100"), ("h2", "NVIDIA H100"), ("a", "NVIDIA A100"), ("a2", "NVIDIA A100")):
        world.join(name, inventory(4, model=model, name=name))
    for kind in ("h", "a"):
        model = "NVIDIA_H100" if kind == "h" else "NVIDIA_A100"
        world.submit(f"busy-{kind}", typed(1, model, 2))
        world.run(f"busy-{kind}")
        world.submit(f"large-{kind}", typed(2, model, 9))
    monkeypatch.setattr(kept_starts, "MOST_LOOKED_AT", 1)
    assert not placed(world.submit("short-a", typed(1, "NVIDIA_A100", 1)))
    assert not placed(world.submit("short-h", typed(1, "NVIDIA_H100", 1)))
    monkeypatch.undo()
    world.submit("other", typed(3, "NVIDIA_H100", 1))
    world.join("h", inventory(4, model="NVIDIA H100", name="h"), places=[world.place("busy-h", 0, "RUNNING")])
    assert job_of(world, "short-a").places
    assert job_of(world, "short-h").places


def typed(workers: int, model: str, hours: float) -> Gang:
    made = lasting(hours, workers)
    return dataclasses.replace(made, pools=tuple(dataclasses.replace(p, gpu_type=model) for p in made.pools))


def test_job_that_can_be_projected_nowhere_keeps_its_hosts() -> None:
    """A host under repair: it may be back in a moment, and no run time says when."""
    world = World(hosts=2, policies=QUIET)
    world.cordon("host-0")
    world.submit("large", lasting(5, workers=2))
    assert not placed(world.submit("short", lasting(0.1)))


def test_estimate_that_was_outlived_is_doubled() -> None:
    world = waits_for_both()
    world.wait(2.5 * HOUR_S)
    assert placed(world.submit("short", lasting(1.4))), "busy is expected to end after four hours now"
    world = waits_for_both()
    world.wait(2.5 * HOUR_S)
    assert not placed(world.submit("long", lasting(1.6)))


def test_half_a_second_that_was_declared_is_doubled_until_it_is_longer_than_the_run() -> None:
    world = waits_for_both()
    assert placed(world.submit("brief", lasting(0.5 / HOUR_S)))
    world.run("brief")
    world.wait(HOUR_S / 2)
    estimate = world.cluster.run_times.estimate(job_of(world, "brief"), HOUR_S / 2)
    assert HOUR_S / 2 < estimate.seconds <= HOUR_S


def test_nothing_passes_a_job_any_more_that_is_late() -> None:
    """What runs took longer than expected; else the same again and again would put it off for ever."""
    world = waits_for_both()
    assert placed(world.submit("short", lasting(1)))
    world.run("short")
    world.wait(2 * HOUR_S + 600)
    finish(world, "short")
    assert not placed(world.submit("tiny", lasting(0.1)))


def test_a_job_that_is_late_is_passed_where_it_cannot_start_by_then() -> None:
    world = World(hosts=3, policies=QUIET)
    for name, made in (("half", gang(1, gpus=2, expected_s=30 * HOUR_S)), ("busy", lasting(2))):
        world.submit(name, made)
        world.run(name)
    world.submit("large", lasting(5, workers=2))
    world.submit("short", lasting(1))
    world.wait(2 * HOUR_S + 600)
    finish(world, "short")
    assert not placed(world.submit("tiny", lasting(0.1)))
    assert placed(world.submit("beside", gang(1, gpus=2, expected_s=50 * HOUR_S))) == ["beside placed g1 on host-0"]
    finish(world, "busy")
    assert {place.host for place in job_of(world, "large").places} == {"host-1", "host-2"}


def test_spot_job_that_passes_is_on_loan_all_the_same() -> None:
    world = waits_for_both()
    world.submit("s", lasting(1, strategy=Strategy.SPOT))
    assert job_of(world, "s").loan is not None


# --- Learned estimates --------------------------------------------------------------------------------------------


def ran(world: World, name: str, seconds: float, owner: str = "ann") -> None:
    """A job that ran so long and succeeded."""
    world.submit(name, gang(1, max_wait_s=0.0), owner=owner)
    world.run(name)
    world.wait(seconds)
    world.exit(name, 0, 0)
    world.report(name, 0, "EMPTY")
    assert world.state(name) is JobState.SUCCEEDED


def test_run_times_are_learned_from_three_equal_jobs_and_outlast_a_restart() -> None:
    world = World(hosts=1, policies=QUIET)
    for name in ("train-1", "train-2", "train-3"):
        ran(world, name, HOUR_S)
    world.join("host-1")
    world.submit("busy", lasting(2))
    world.run("busy")
    world.submit("large", lasting(5, workers=2))
    world.restart_controller(down_s=1)
    world.join("host-0", places=[world.place("busy", 0, "RUNNING")])
    world.join("host-1")
    assert placed(world.submit("train-4", gang(1)))
    estimate = world.cluster.run_times.estimate(job_of(world, "train-4"))
    assert (round(estimate.seconds), estimate.runs) == (3600, 3)


def test_failed_and_cancelled_jobs_teach_nothing() -> None:
    world = World(hosts=1, policies=QUIET)
    for number in range(4):
        world.submit(f"t{number}", gang(1))
        world.run(f"t{number}")
        finish(world, f"t{number}")
    world.submit("t9", gang(1))
    assert world.cluster.run_times.estimate(job_of(world, "t9")).seconds == job_of(world, "t9").gang.timeout_s


# --- Words --------------------------------------------------------------------------------------------------------


def test_words_say_when_a_job_is_expected_to_start_and_on_what_basis() -> None:
    world = waits_for_both()
    began = job_of(world, "busy").placement.running_since
    assert began is not None
    at = time_of_day(Wall(began + 2 * HOUR_S))[:5]
    assert why(world, "large") == (
        "needs 4 GPUs on one host (0 free on the best); 1 of 2 workers would fit now;"
        f" expected to start about {at} UTC, from the declared duration of busy"
    )


def test_words_claim_no_end_that_rests_on_runs_of_other_programs() -> None:
    """Else the start of one that waits behind a new program would be now, again and again."""
    world = World(hosts=1, policies=QUIET)
    for name in ("short-1", "short-2", "short-3"):
        ran(world, name, 20.0)
    world.submit("new", gang(1, timeout_s=1200.0))
    world.run("new")
    began = job_of(world, "new").placement.running_since
    assert began is not None
    world.submit("next", gang(1))
    latest = time_of_day(Wall(began + 1200 + 60))[:5]
    words = f"; expected to start by {latest} UTC at the latest, when new runs out of time"
    for _ in range(3):
        assert words in why(world, "next")
        world.wait(200)


def test_words_claim_no_end_once_the_usual_time_is_over_but_the_bound() -> None:
    world = World(hosts=1, policies=QUIET)
    for name in ("train-1", "train-2", "train-3"):
        ran(world, name, 600.0)
    world.submit("train-4", gang(1, timeout_s=2000.0))
    world.run("train-4")
    world.submit("next", gang(1))
    assert "expected to start about" in (usual := why(world, "next"))
    assert ", from how long earlier runs of train-4 took" in usual
    world.wait(570, beating=list(world.sessions))
    assert "expected to start within a minute, from" in why(world, "next")
    world.wait(60, beating=list(world.sessions))
    assert "UTC at the latest, when train-4 runs out of time" in why(world, "next")


def test_words_tell_of_no_time_of_a_job_that_should_have_ended_by_all_that_is_known() -> None:
    run_times, job = RunTimes(), job_of(waits_for_both(), "busy")
    assert run_times.supported(job, job.gang.timeout_s).seconds == float("inf")


def test_words_say_how_short_a_run_would_start_now_and_such_a_run_does() -> None:
    world = waits_for_both()
    began = job_of(world, "busy").placement.running_since
    assert began is not None
    end = time_of_day(Wall(began + 2 * HOUR_S))[:5]
    world.submit("long", gang(1, max_wait_s=0.0))
    world.submit("longer", gang(1, max_wait_s=0.0))
    assert why(world, "long").endswith(f"; a run that ends by {end} UTC would start now: --timeout 119m")
    assert "would start now" not in why(world, "longer"), "it is not told what holds behind the other alone"
    assert "would start now" not in why(world, "large"), "the first needs what is held"
    assert placed(world.submit("short", gang(1, timeout_s=119 * 60.0))) == ["short placed g1 on host-1"]
    assert "would start now" not in why(world, "long"), "no other would any more"


def test_words_promise_no_start_to_shorter_runs_where_none_would() -> None:
    strict = waits_for_both(STRICT)
    strict.submit("long", gang(1))
    assert "would start now" not in why(strict, "long")
    world = waits_for_both()
    world.submit("long", gang(1, max_wait_s=0.0))
    world.wait(2 * HOUR_S - 100, beating=list(world.sessions))
    assert "would start now" not in why(world, "long"), "an option takes a minute to type"


def test_words_say_which_comes_first_the_start_or_the_end_of_the_longest_wait() -> None:
    world = World(hosts=1, policies=QUIET)
    world.submit("busy", lasting(2))
    world.run("busy")
    world.submit("hasty", gang(1, max_wait_s=HOUR_S))
    world.submit("patient", gang(1, max_wait_s=30 * HOUR_S, expected_s=HOUR_S))
    up = time_of_day(Wall(job_of(world, "hasty").created_at + HOUR_S))[:5]
    assert why(world, "hasty").endswith(f"; given up before that, at {up} UTC, unless --max-wait is longer")
    hosts, now = schedulable_hosts(world.cluster), Now(Mono(world.mono), Wall(world.wall))
    view = QueueView(world.cluster, hosts, {}, now)
    assert summary_of(world.cluster, job_of(world, "hasty"), view, now).advice == (
        "It is given up before it is expected to start; to wait for as long as it takes, submit it by: "
        "holdfast job rerun hasty --max-wait 0"
    )
    world.cancel("hasty")
    assert "given up" not in why(world, "patient")
    untold = World(hosts=1, policies=QUIET)
    untold.submit("busy", gang(1))
    untold.run("busy")
    untold.submit("hasty", gang(1, max_wait_s=HOUR_S))
    assert why(untold, "hasty").endswith("UTC if that comes first (--max-wait)"), "a timeout is only a bound"


def test_words_of_a_job_behind_count_those_ahead_of_it_too() -> None:
    world = waits_for_both()
    world.submit("next", gang(2, max_wait_s=0.0))
    told = why(world, "next")
    assert "behind large in the queue" in told
    assert told.endswith(", from declared durations of 2 jobs"), told
    world.submit("last", gang(2, max_wait_s=0.0))
    assert why(world, "last").endswith(" at the latest, when next runs out of time")


def test_words_tell_of_no_time_where_none_is_projected() -> None:
    world = World(hosts=2, policies=QUIET)
    world.cordon("host-0")
    world.submit("large", lasting(5, workers=2))
    assert "expected to start" not in why(world, "large")


# --- The promise --------------------------------------------------------------------------------------------------


class Watched(Play):
    """A run in which each job that has become first starts no later than was projected then."""

    def __init__(
        self,
        seed: int,
        sizes: tuple[int, ...],
        backfill: Backfill = Backfill.PROJECTED,
        late_s: float = 1e-3,
        save_every_s: float = HOUR_S,
    ) -> None:
        dice = random.Random(f"over {seed}")
        trace = drawn(seed, sizes=sizes, jobs=25)
        declared = {name: seconds * dice.choice((1.0, 1.3, 2.0, 5.0)) for name, seconds in trace.durations.items()}
        self.projected: dict[str, float] = {}
        self.early, self.late_s = 0, late_s
        super().__init__(
            trace,
            4,
            8,
            backfill=backfill,
            save_every_s=save_every_s,
            expects=lambda asked: declared[asked.name],
        )

    def step(self, incoming: st.Input) -> None:
        super().step(incoming)
        for name, at in list(self.projected.items()):
            if self.cluster.jobs[name].places:
                del self.projected[name]
                assert self.now <= at + self.late_s, f"{name} starts at {self.now}, and {at} was projected"
                self.early += self.now < at - 1e-3
        head = next(iter(self.cluster.queue), None)
        if head is None or head in self.projected:
            return
        hosts, now = schedulable_hosts(self.cluster), Now(Mono(self.now), Wall(self.now + 1e9))
        found = QueueView(self.cluster, hosts, {}, now).starts.get(head)
        assert found is not None, "everything ends"
        self.projected[head] = found.at - 1e9


@pytest.mark.parametrize("sizes", [(1, 1, 2, 4, 8, 16, 32), (1, 3, 5, 6, 8, 12, 20, 32)], ids=["even", "odd"])
def test_first_job_starts_no_later_than_projected_where_estimates_are_too_long(sizes: tuple[int, ...]) -> None:
    early = 0
    for seed in range(MORE // 2):
        run = Watched(seed, sizes)
        run.run()
        early += run.early
    assert early, "some start earlier"
