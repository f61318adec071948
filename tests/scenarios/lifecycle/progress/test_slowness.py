"""A job that gets slow: told, with the rank it comes from where two signs agree, and without where they don't."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from tests.scenarios.training import Training, training
from tests.scenarios.world import World

from holdfast._base.job_file.choices import HangAction, NotificationEvent
from holdfast.hang.pipeline.features import Motion
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast_controller.core.fold.slowness import slowed_gpu_s
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.messages.notice import notice_of
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.slowness import Sign, Slowdown
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.views.job_summary import summary_of

GOOD_S = 420.0
"""Long enough for a job to have shown its best."""


@dataclass
class Gang:
    """A job whose ranks step together: seconds of each rank's step at work, without a core, and stopped."""

    program: Training
    work_s: dict[int, float] = field(default_factory=dict)
    no_core_s: dict[int, float] = field(default_factory=dict)
    times: dict[int, RankTimes] = field(default_factory=dict)
    step: float = 0.0
    phase: str = ""

    @property
    def world(self) -> World:
        return self.program.world

    def passes(self, for_s: float, every_s: float = 5.0) -> list[str]:
        """What is told meanwhile."""
        told: list[str] = []
        for _ in range(round(for_s / every_s)):
            told += self.world.wait(every_s, beating=self.program.beating)
            vectors = self.program.vectors()
            ranks = [rank.rank for vector in vectors for rank in vector.ranks]
            longest = max(self._takes(rank) for rank in ranks)
            steps = every_s / longest
            self.step += steps
            for vector in vectors:
                with_times = tuple(
                    replace(each, times=self._count(each.rank, every_s, steps)) for each in vector.ranks
                )
                output = replace(vector.output, step=self.step, step_s=vector.at_s, phase=self.phase)
                if vector.host in self.world.sessions:
                    told += self.world.features("a", replace(vector, ranks=with_times, output=output))
        return [line for line in told if "slow" in line or "fast" in line]

    def _takes(self, rank: int) -> float:
        return self.work_s.get(rank, 0.5) + self.no_core_s.get(rank, 0.0)

    def _count(self, rank: int, every_s: float, steps: float) -> RankTimes:
        before = self.times.get(rank, RankTimes(ran_s=0.0, queued_s=0.0))
        assert before.ran_s is not None
        assert before.queued_s is not None
        self.times[rank] = replace(
            before,
            seen_s=before.seen_s + every_s,
            ran_s=before.ran_s + steps * self.work_s.get(rank, 0.5),
            queued_s=before.queued_s + steps * self.no_core_s.get(rank, 0.0),
            looks=before.looks + 2,
        )
        return self.times[rank]


@pytest.fixture
def gang() -> Gang:
    return Gang(training(action=HangAction.OFF))


def words(gang: Gang) -> str:
    world = gang.world
    queue = QueueView(world.cluster, schedulable_hosts(world.cluster), world.policies.quotas)
    return summary_of(world.cluster, world.cluster.jobs["a"], queue, Now(Mono(world.mono), Wall(world.wall))).health


def found(gang: Gang) -> Slowdown | None:
    return gang.world.cluster.jobs["a"].slowdown


def test_a_rank_without_a_core_is_named_within_five_minutes_and_the_job_is_fast_again_after(gang: Gang) -> None:
    assert gang.passes(GOOD_S) == []
    gang.no_core_s = {1: 0.1}
    told = gang.passes(300)
    assert told == ["a is slow, nobody named", "a is slow, r1@host-1 named"]
    slow = found(gang)
    assert slow is not None
    assert (slow.slower_pct, slow.named[0].signs) == (20, (Sign.WAITED_FOR, Sign.NO_CORE))
    assert "20 % slower than at its best since" in words(gang)
    assert "rank 1 on host-1: the others wait for it" in words(gang)
    event = [event for event in gang.world.log if type(event).__name__ == "SlowdownNoticed"][-1]
    assert notice_of(event, gang.world.cluster.jobs["a"]) is NotificationEvent.STRAGGLER
    gang.no_core_s = {}
    assert gang.passes(300) == ["a is fast again"]
    assert found(gang) is None
    assert "slower" not in words(gang)


def test_a_gang_with_a_rank_that_is_stopped_says_so_and_not_that_it_is_slow(gang: Gang) -> None:
    gang.passes(GOOD_S)
    gang.work_s = {1: 0.65}
    gang.passes(900)
    features = gang.world.cluster.runtime["a"].features
    for index, vector in features.items():
        ranks = [replace(each, motion=Motion.STOPPED) if each.rank == 1 else each for each in vector.ranks]
        features[index] = replace(vector, ranks=tuple(ranks))
    assert found(gang) is not None
    assert words(gang).endswith("; rank 1 is stopped by a signal") and "slower" not in words(gang)


def test_a_rank_with_more_work_is_not_named_and_is_said_to_be_waited_for(gang: Gang) -> None:
    gang.passes(GOOD_S)
    gang.work_s = {1: 0.65}
    told = gang.passes(900)
    assert told == ["a is slow, nobody named"] * 2
    assert "the others wait for rank 1, and nothing on its host holds it back" in words(gang)
    events = [event for event in gang.world.log if type(event).__name__ == "SlowdownNoticed"]
    assert [notice_of(event, gang.world.cluster.jobs["a"]) for event in events] == [None, None]


def test_a_cause_that_all_hosts_have_names_no_one(gang: Gang) -> None:
    gang.passes(GOOD_S)
    gang.no_core_s = {0: 0.2, 1: 0.2}
    assert gang.passes(900) == ["a is slow, nobody named"]
    assert "no rank stands out" in words(gang)


def test_a_job_that_was_slow_from_the_start_is_not_called_slow(gang: Gang) -> None:
    gang.no_core_s = {1: 0.3}
    assert gang.passes(1800) == []


@pytest.mark.parametrize("liar", [0, 1])
def test_an_agent_that_tells_of_ranks_of_another_worker_is_not_believed(gang: Gang, liar: int) -> None:
    job = gang.world.cluster.jobs["a"]
    gang.passes(60)
    gang.world.wait(30, beating=gang.program.beating)
    for vector in gang.program.vectors():
        ranks = vector.ranks
        if vector.host == job.places[liar].host:
            ranks = tuple(replace(vector.ranks[0], rank=rank, times=RankTimes(1e6, looks=9)) for rank in (0, 1))
        else:
            ranks = tuple(replace(each, times=gang.times[each.rank]) for each in ranks)
        output = replace(vector.output, step=gang.step + 100, step_s=vector.at_s)
        gang.world.features("a", replace(vector, ranks=ranks, output=output))
    gang.world.wait(12, beating=gang.program.beating)
    mark = gang.world.cluster.runtime_of("a").slow.mark
    assert mark is not None
    assert mark.step == gang.step + 100
    assert {rank: host for rank, (host, _, _) in mark.times.items()} == {0: "host-0", 1: "host-1"}


def test_evaluations_and_saves_are_no_slowness(gang: Gang) -> None:
    gang.passes(GOOD_S)
    for _ in range(10):
        gang.phase, gang.work_s = "evaluate", {0: 5.0, 1: 5.0}
        assert gang.passes(60) == []
        gang.phase, gang.work_s = "", {}
        assert gang.passes(90) == []


def test_a_job_that_counts_something_else_from_then_on_is_not_slow_by_what_it_counted(gang: Gang) -> None:
    gang.passes(GOOD_S)
    gang.step = 1.0  # epochs, say, after the steps of the first
    gang.work_s = dict.fromkeys(range(8), 50.0)
    assert gang.passes(900) == []
    gang.work_s = dict.fromkeys(range(8), 100.0)
    (told,) = gang.passes(600)
    assert "slow" in told


def test_nothing_is_judged_while_a_worker_is_silent(gang: Gang) -> None:
    gang.passes(GOOD_S)
    gang.program.mute = {1}
    gang.no_core_s = {0: 0.5}
    assert gang.passes(600) == []


def test_what_slowness_costs_is_added_up_until_the_ranks_are_stopped(gang: Gang) -> None:
    gang.passes(GOOD_S)
    gang.no_core_s = {1: 0.5}
    gang.passes(600)
    job = gang.world.cluster.jobs["a"]
    weight = job.gang.gpus or job.gang.rank_count
    cost = slowed_gpu_s(job, Wall(gang.world.wall))
    assert 0.3 * 600 * weight < cost < 0.55 * 600 * weight
    gang.world.cancel("a")
    assert job.slowdown is None
    assert slowed_gpu_s(job, Wall(gang.world.wall + 1000)) == pytest.approx(cost, rel=0.05)
