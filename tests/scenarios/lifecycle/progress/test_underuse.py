"""GPUs that a job doesn't use: told, paused or stopped after the policy's time, and never by what isn't known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.scenarios.hang_stories import comes_back
from tests.scenarios.training import Training, training
from tests.scenarios.world import World

from holdfast._base.job_file.choices import (
    HangAction,
    NotificationEvent,
    SuccessPolicy,
    UnderuseAction,
    UnderuseShare,
)
from holdfast.hang.pipeline.features import GpuUse
from holdfast_controller.core.fold.underuse import unused_gpu_s
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.messages.notice import notice_of
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.underuse import Underuse, UnderusePolicy
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.views.alerts import Alert, ControllerStatus, Kind, alerts
from holdfast_controller.core.views.job_summary import Condition, Summary, summary_of, what_follows
from holdfast_controller.core.views.overview import overview

TERM_S = 1200.0
LOOK_S = 70.0
"""The longest from the term's end until it is told: a look each minute, and a vector to wake it."""
USED, UNKNOWN = GpuUse(known=True), GpuUse()
NOTIFY = UnderusePolicy(duration_s=TERM_S)
PAUSE = UnderusePolicy(UnderuseAction.PAUSE, duration_s=TERM_S, of=UnderuseShare.ALL)
STOP = UnderusePolicy(UnderuseAction.STOP, duration_s=TERM_S, of=UnderuseShare.ALL)


@dataclass
class Cards:
    """A job on two hosts of four GPUs each; ``use`` is what each host's agent sees of its GPUs now."""

    program: Training
    use: list[list[GpuUse]] = field(default_factory=lambda: [[USED] * 4, [USED] * 4])

    @property
    def world(self) -> World:
        return self.program.world

    def idle(self, *gpus: int) -> None:
        """These GPUs of the eight are idle from now on, and no others."""
        for gpu in range(8):
            known = self.use[gpu // 4][gpu % 4]
            since_s = known.idle_since_s if known.idle_since_s is not None else self.world.mono
            self.use[gpu // 4][gpu % 4] = GpuUse(True, since_s) if gpu in gpus else USED

    def passes(self, for_s: float, hosts: Sequence[int] = (0, 1)) -> list[str]:
        """What is told meanwhile; a vector of each host comes every ten seconds."""
        told: list[str] = []
        for _ in range(round(for_s / 10)):
            told += self.world.wait(10, beating=self.program.beating)
            for vector in self.program.vectors():
                number = int(vector.host[-1])
                if number in hosts and vector.host in self.world.sessions:
                    told += self.world.features("a", replace(vector, gpus=tuple(self.use[number])))
        return told


def cards(policy: UnderusePolicy | None = NOTIFY, **rules: Any) -> Cards:
    program = training(underuse=policy, action=HangAction.OFF, **rules)
    return Cards(program)


@pytest.fixture
def job() -> Cards:
    return cards()


def in_words(job: Cards) -> Summary:
    world = job.world
    queue = QueueView(world.cluster, schedulable_hosts(world.cluster), world.policies.quotas)
    return summary_of(world.cluster, world.cluster.jobs["a"], queue, Now(Mono(world.mono), Wall(world.wall)))


def found(job: Cards) -> Underuse | None:
    return job.world.cluster.jobs["a"].underuse


def test_gpus_that_stay_unused_are_told_once_after_the_term_and_not_before(job: Cards) -> None:
    job.idle(*range(3, 8))
    assert job.passes(TERM_S - 10) == []
    assert job.passes(LOOK_S) == ["a leaves 5 of 8 GPUs unused, NOTIFY"]
    assert job.passes(3 * TERM_S) == []
    event = [event for event in job.world.log if event.__class__.__name__ == "UnderuseNoticed"][-1]
    assert notice_of(event, job.world.cluster.jobs["a"]) is NotificationEvent.UNDERUSED


def test_a_gpu_that_is_used_right_before_the_end_of_the_term_begins_a_new_one(job: Cards) -> None:
    job.idle(*range(8))
    assert job.passes(TERM_S - 20) == []
    job.idle()
    assert job.passes(20) == []
    job.idle(*range(8))
    assert job.passes(TERM_S - 20) == []
    assert job.passes(LOOK_S + 10) == ["a leaves 8 of 8 GPUs unused, NOTIFY"]


def test_what_cannot_be_read_is_never_idle(job: Cards) -> None:
    job.use = [[UNKNOWN] * 4, [UNKNOWN] * 4]
    assert job.passes(5 * TERM_S) == []
    job = cards(STOP)
    job.idle(*range(8))
    job.use[1][3] = UNKNOWN
    assert job.passes(3 * TERM_S) == ["a leaves 7 of 8 GPUs unused"]
    state = found(job)
    assert state is not None and (state.unknown, state.in_words) == (1, "does not use 7 of 8 GPUs")


def test_a_host_that_is_not_heard_of_is_unknown() -> None:
    job = cards(STOP)
    job.idle(*range(8))
    assert job.passes(TERM_S - 60) == []
    assert job.passes(TERM_S, hosts=(0,)) == ["a leaves 4 of 8 GPUs unused"]


def test_a_host_that_is_silent_for_a_while_tells_and_counts_nothing_twice(job: Cards) -> None:
    job.idle(*range(8))
    began = job.world.mono
    assert job.passes(TERM_S + LOOK_S) == ["a leaves 8 of 8 GPUs unused, NOTIFY"]
    assert job.passes(2 * LOOK_S, hosts=(0,)) == []
    assert job.passes(2 * LOOK_S) == []
    assert job.passes(2 * LOOK_S, hosts=()) == []
    assert job.passes(2 * LOOK_S) == []
    spent = unused_gpu_s(job.world.cluster.jobs["a"], Wall(job.world.wall))
    assert spent == pytest.approx(8 * (job.world.mono - began))
    job.idle(1)
    assert job.passes(2 * LOOK_S) == ["a leaves 1 of 8 GPUs unused"]


def test_all_gpus_have_to_be_unused_before_work_ends_and_a_part_is_shown_meanwhile() -> None:
    job = cards(STOP)
    job.idle(*range(7))
    assert job.passes(2 * TERM_S) == ["a leaves 7 of 8 GPUs unused"]
    job.idle(*range(8))
    told = job.passes(TERM_S + LOOK_S)
    assert told[:2] == ["a leaves 8 of 8 GPUs unused, STOP", "a cancelled by its underuse policy"]
    assert "a ending CANCELLED" in told
    error = job.world.cluster.jobs["a"].error
    assert error is not None
    assert error.message == "The job left its GPUs below 5 % for 20 min, and was stopped by its underuse policy."


def test_a_job_whose_primary_is_done_has_succeeded_and_is_not_stopped_in_its_end_grace() -> None:
    job = cards(STOP, success=SuccessPolicy.PRIMARY, end_grace_s=3 * TERM_S)
    job.world.exit("a", 0)
    job.idle(*range(8))
    assert job.passes(2 * TERM_S) == []
    assert "a ending SUCCEEDED" in job.passes(TERM_S + LOOK_S)


def test_a_paused_job_says_who_paused_it_and_begins_a_fresh_term_when_it_is_resumed() -> None:
    job = cards(PAUSE)
    job.idle(*range(8))
    told = job.passes(TERM_S + LOOK_S)
    assert told[0] == "a leaves 8 of 8 GPUs unused, PAUSE"
    assert any("to pause" in line for line in told)
    job.world.empty("a")
    assert job.world.state("a") is JobState.PAUSED and found(job) is None
    summary = in_words(job)
    assert summary.happened.endswith("and was paused by its underuse policy")
    job.world.resume("a")
    job.world.run("a")
    job.use = [[USED] * 4, [USED] * 4]
    job.idle(*range(8))
    assert job.passes(TERM_S - 10) == []
    assert job.passes(LOOK_S)[0] == "a leaves 8 of 8 GPUs unused, PAUSE"


def test_ranks_are_warned_of_a_pause_as_of_any_other() -> None:
    job = cards(PAUSE, warning=WarningSignal(10, 600.0))
    job.idle(*range(8))
    assert any("gets 10" in line or "warned" in line for line in job.passes(TERM_S + LOOK_S))
    assert job.world.cluster.jobs["a"].pause_due is not None
    job.idle()
    job.passes(660)
    job.world.empty("a")
    assert job.world.state("a") is JobState.PAUSED


def test_a_job_that_is_held_for_a_look_is_left_alone_until_then() -> None:
    job = cards(STOP)
    job.world.hold("a", 3 * TERM_S)
    job.idle(*range(8))
    assert job.passes(2 * TERM_S) == ["a leaves 8 of 8 GPUs unused"]
    assert "a cancelled by its underuse policy" in job.passes(TERM_S + LOOK_S)


def test_ranks_that_are_restarted_in_between_begin_a_fresh_term(job: Cards) -> None:
    job.idle(*range(8))
    job.passes(TERM_S + LOOK_S)
    assert found(job) is not None
    job.world.restart("a")
    assert found(job) is None
    job.program.restarts()
    job.use = [[USED] * 4, [USED] * 4]
    assert job.passes(600) == []


def test_a_restart_of_the_controller_costs_no_time_and_tells_nothing_twice(job: Cards) -> None:
    job.idle(*range(8))
    assert job.passes(TERM_S - 60) == []
    comes_back(job.program)
    assert job.passes(130) == ["a leaves 8 of 8 GPUs unused, NOTIFY"]
    comes_back(job.program)
    assert job.passes(TERM_S) == []
    assert found(job) is not None


def test_more_and_fewer_gpus_are_noted_and_told_anew_only_once_all_were_used(job: Cards) -> None:
    job.idle(0, 1)
    assert job.passes(TERM_S + LOOK_S) == ["a leaves 2 of 8 GPUs unused, NOTIFY"]
    job.idle(0, 1, 2)
    assert job.passes(TERM_S + LOOK_S) == ["a leaves 3 of 8 GPUs unused"]
    job.idle(2)
    assert job.passes(LOOK_S) == ["a leaves 1 of 8 GPUs unused"]
    job.idle()
    assert job.passes(LOOK_S) == ["a uses its GPUs again"]
    job.idle(5)
    assert job.passes(TERM_S + LOOK_S) == ["a leaves 1 of 8 GPUs unused, NOTIFY"]


def test_unused_time_is_added_up_from_the_last_use_on(job: Cards) -> None:
    job.idle(0, 1)
    began = job.world.mono
    job.passes(3 * TERM_S)
    at = Wall(job.world.wall)
    assert unused_gpu_s(job.world.cluster.jobs["a"], at) == pytest.approx(2 * (job.world.mono - began))
    job.idle()
    job.passes(LOOK_S)
    after = job.world.cluster.jobs["a"].unused_gpu_s
    assert after == pytest.approx(2 * (job.world.mono - began), abs=2 * LOOK_S)
    job.passes(TERM_S)
    assert unused_gpu_s(job.world.cluster.jobs["a"], Wall(job.world.wall)) == after


def test_a_job_without_a_policy_or_gpus_is_not_looked_at() -> None:
    job = cards(None)
    job.idle(*range(8))
    assert job.passes(3 * TERM_S) == []


def test_the_job_in_words_says_how_many_it_uses(job: Cards) -> None:
    job.idle(*range(3, 8))
    job.passes(TERM_S + LOOK_S)
    summary = in_words(job)
    assert summary.condition is Condition.WORKS
    assert "; it uses 3 of 8 GPUs: 5 below 5 % since " in summary.health
    assert summary.command == "holdfast job series a --figure gpu_util"
    assert summary.advice.startswith("Nothing has to be done; to see what its GPUs do: ")


def needs_attention(job: Cards, *, seen: bool = True) -> list[Alert]:
    now = Now(Mono(job.world.mono), Wall(job.world.wall))
    found = overview(job.world.cluster, now)
    listed, _ = alerts(job.world.cluster, found, lambda _: seen, {}, ControllerStatus("1", {}), now)
    return [alert for alert in listed if alert.kind is Kind.UNDERUSED]


def test_what_follows_by_itself_is_said_to_whom_the_job_concerns_until_it_is_over() -> None:
    job = cards(PAUSE)
    job.idle(*range(3, 8))
    job.passes(TERM_S + LOOK_S)
    follows = "it is paused once none of its GPUs was used for 20 min"
    assert in_words(job).advice.startswith(
        f"Use them, or {follows}; to see what its GPUs do: holdfast job series a "
    )
    (told,) = needs_attention(job)
    assert told.subject == "job/a" and told.since == job.world.cluster.jobs["a"].underuse.since  # type: ignore[union-attr]
    assert told.message.startswith("uses 3 of 8 GPUs: 5 below 5 % since ") and told.message.endswith(f"; {follows}")
    assert needs_attention(job, seen=False) == []
    job.idle()
    job.passes(LOOK_S)
    assert needs_attention(job) == []


def test_nothing_is_promised_that_has_come_already_or_that_no_policy_does(job: Cards) -> None:
    job.idle(*range(3, 8))
    job.passes(TERM_S + LOOK_S)
    (told,) = needs_attention(job)
    assert told.message.endswith(" UTC")
    unused = Underuse(5, 8, Wall(0.0))
    assert what_follows(unused, STOP) == "it is stopped once none of its GPUs was used for 20 min"
    assert what_follows(replace(unused, acted=True), STOP) == what_follows(unused, NOTIFY) == ""
    assert what_follows(unused, replace(STOP, of=UnderuseShare.ANY)) == "", "it has come, or a person holds the job"


@pytest.mark.parametrize(
    ("idle", "gpus", "unknown", "words"),
    [
        (5, 8, 0, "uses 3 of 8 GPUs"),
        (8, 8, 0, "uses none of its 8 GPUs"),
        (1, 1, 0, "does not use its GPU"),
        (5, 8, 1, "does not use 5 of 8 GPUs"),
    ],
)
def test_words(idle: int, gpus: int, unknown: int, words: str) -> None:
    assert Underuse(idle, gpus, Wall(0.0), unknown).in_words == words
