"""Fair share: weights, what projects have used, and the order of the queue that follows."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from bench.fleet.reactor import QUIET
from tests.scenarios.invariants import durable
from tests.scenarios.queue_stories import finish, job_of, placed, why
from tests.scenarios.scheduling.quotas.endless_work import Play
from tests.scenarios.world import World, gang

from holdfast.errors import InvalidInput
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.accounts.shares import FORGOTTEN_GPU_S, HALF_LIFE_S, Shares
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.scheduling.fair_share.shares import LEAST, MOST, ProjectShare, project_shares
from holdfast_controller.core.scheduling.fair_share.turns import ahead_of, in_turn
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.share_commands import ShareAsked
from holdfast_controller.core.step.step import Policies
from holdfast_controller.shell.store import codec

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def weigh(world: World, project: str, weight: float | None) -> list[str]:
    told = world.step(ShareAsked(1, "root", project, weight))
    last = world.sent[-1]
    if isinstance(last, act.Refuse):
        assert isinstance(last.error, InvalidInput)
        return [f"{each.path}: {each.problem}; {each.fix}" for each in last.error.violations]
    return told


def of(project: str, **rules: Any) -> Gang:
    return gang(1, project=project, **rules)


def order(world: World) -> list[str]:
    return list(in_turn(world.cluster))


def rows(world: World) -> dict[str, ProjectShare]:
    return {each.project: each for each in project_shares(world.cluster, Wall(world.wall))}


# --- Weights ------------------------------------------------------------------------------------------------------


def test_a_weight_is_set_changed_and_cleared() -> None:
    world = World(hosts=1)
    assert weigh(world, "vision", 2.0) == ["weight of project vision set to 2 by root", "> reply vision"]
    assert weigh(world, "vision", 0.5)[0] == "weight of project vision set to 0.5 by root"
    assert weigh(world, "vision", 0.5) == ["> reply vision"], "what is so already is no event"
    assert world.cluster.shares.weights == {"vision": 0.5}
    assert weigh(world, "vision", None)[0] == "weight of project vision cleared by root"
    assert weigh(world, "vision", None) == ["> reply vision"]
    assert not world.cluster.shares.weights


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf, -math.inf, LEAST / 2, MOST * 2])
def test_a_weight_that_is_none_is_refused_with_the_field_and_the_fix(weight: float) -> None:
    world = World(hosts=1)
    [wrong] = weigh(world, "vision", weight)
    assert wrong.startswith(f"weight: is {weight:.12g}; use 0.001 to 1,000,000")
    assert not world.cluster.shares.weights


@pytest.mark.parametrize("project", ["", "Vision", "a/b", "*", "user/ann", "x" * 64, "a\n"])
def test_a_weight_of_what_can_be_no_project_is_refused(project: str) -> None:
    world = World(hosts=1)
    [wrong] = weigh(world, project, 2.0)
    assert wrong.startswith("project: must be lower-case letters, digits and dashes")


# --- Order --------------------------------------------------------------------------------------------------------


def test_without_any_weight_the_queue_is_first_come_first_served() -> None:
    world = World(hosts=1)
    world.submit("running", of("a"))
    for number in range(3):
        world.submit(f"a{number}", of("a"))
        world.submit(f"b{number}", of("b"))
    assert order(world) == list(world.cluster.queue) == ["a0", "b0", "a1", "b1", "a2", "b2"]
    weigh(world, "a", 2.0)
    assert order(world) == ["b0", "b1", "b2", "a0", "a1", "a2"], "a holds all"
    weigh(world, "a", None)
    assert order(world) == list(world.cluster.queue)


def test_who_had_least_for_its_weight_is_next_and_priority_goes_before() -> None:
    world = World(hosts=1)
    weigh(world, "a", 2.0)
    world.submit("running", of("a"))
    world.submit("a1", of("a"))
    world.submit("spot", of("b", strategy=Strategy.SPOT))
    world.submit("b1", of("b"))
    world.submit("urgent", of("a", priority=3))
    assert order(world) == ["urgent", "b1", "a1", "spot"]
    assert [ahead_of(world.cluster, job_of(world, name)) for name in order(world)] == [0, 1, 2, 3]
    assert placed(finish(world, "running")) == ["urgent placed g1 on host-0"]


def test_one_pass_divides_all_that_is_free() -> None:
    world = World(hosts=3)
    weigh(world, "a", 2.0)
    world.submit("whole", gang(3, project="old"))
    for number in range(4):
        world.submit(f"a{number}", of("a"))
    for number in range(4):
        world.submit(f"b{number}", of("b"))
    world.cancel("whole")
    told: list[str] = []
    for index in range(3):
        told += world.report("whole", index, "EMPTY")
    assert [words.split()[0] for words in placed(told)] == ["a0", "b0", "a1"]


def test_projects_that_never_had_anything_are_served_by_age() -> None:
    world = World(hosts=1)
    weigh(world, "a", 5.0)
    world.cordon("host-0")
    for number, project in enumerate(["c", "b", "b", "c", "a", "b"]):
        world.submit(f"j{number}", of(project))
    assert order(world) == [f"j{number}" for number in range(6)]
    assert [ahead_of(world.cluster, job_of(world, name)) for name in order(world)] == list(range(6))


def test_a_job_that_waits_behind_another_project_says_why() -> None:
    world = World(hosts=1)
    world.submit("running", of("a"))
    world.submit("a1", of("a"))
    world.submit("b1", of("b"))
    assert "share factor" not in why(world, "b1")
    weigh(world, "b", 1.0)
    assert why(world, "a1") == (
        "behind b1 in the queue, which needs 4 GPUs on one host (0 free on the best)"
        "; the share factor of a is 0.25, that of the project of b1 1.00"
    )
    assert "share factor" not in why(world, "b1")


def test_the_reason_to_wait_names_no_other_project() -> None:
    """Who reads it may have no role there."""
    world = World(hosts=1)
    world.submit("running", of("a"))
    world.submit("a1", of("a"))
    world.submit("b1", of("secret-merger"))
    weigh(world, "a", 1.0)
    assert "share factor of a is" in why(world, "a1") and "secret-merger" not in why(world, "a1")


def test_a_weight_lets_a_job_start_at_once_that_waited_behind_another() -> None:
    world = World(hosts=2)
    world.submit("a0", of("a"))
    world.submit("a1", gang(2, project="a"))
    assert not placed(world.submit("b1", of("b"))), "host-1 is kept for a1"
    assert placed(weigh(world, "b", 1.0)) == ["b1 placed g1 on host-1"]


@pytest.mark.parametrize("weight", [None, 1.0])
def test_a_loan_is_taken_back_by_an_older_job_behind_a_younger_one_of_its_kind(weight: float | None) -> None:
    """Loans are taken back in the order of submission, whichever project is first in the queue."""
    forever: Any = {"timeout_s": 1e12, "max_wait_s": 0.0}
    world = World(hosts=3, policies=Policies(QUIET, b"k"))
    world.submit("busy", of("a", **forever))
    world.submit("ends", of("x", **forever))
    large: Any = {"strategy": Strategy.SPOT, **forever}
    world.submit("a1", gang(2, project="a", **large))
    assert placed(world.submit("loan", of("c", **large))) == ["loan placed g1 on host-2"]
    world.run("loan")
    world.submit("b1", gang(2, project="b", **large))
    weigh(world, "b", weight)
    assert order(world) == (["a1", "b1"] if weight is None else ["b1", "a1"])
    world.wait(3700)
    assert "loan leaves to RETRY: PREEMPTED of job a1" in [*world.cancel("ends"), *world.report("ends", 0, "EMPTY")]


# --- Use ----------------------------------------------------------------------------------------------------------


def test_use_counts_half_after_each_half_life() -> None:
    world = World(hosts=1)
    world.submit("x", of("a"))
    world.wait(HOUR_S)
    row = rows(world)["a"]
    assert row.state.used_s == pytest.approx(4 * HOUR_S, rel=0.01)
    assert (row.weight, row.state.share, row.state.gpus, row.running) == (None, 1.0, 4, 1)
    finish(world, "x")
    whole = rows(world)["a"].state.used_s
    assert whole == pytest.approx(4 * HOUR_S, rel=0.01)
    [after] = project_shares(world.cluster, Wall(world.wall + HALF_LIFE_S))
    assert after.state.used_s == pytest.approx(whole / 2)
    assert (after.state.gpus, after.running, after.waiting) == (0, 0, 0)


def test_a_job_whose_turn_comes_with_time_alone_starts_though_nothing_has_happened() -> None:
    forever: Any = {"timeout_s": 1e12, "max_wait_s": 0.0}
    world = World(hosts=3, policies=Policies(QUIET, b"k"))
    weigh(world, "a", 1.0)
    world.submit("b0", gang(2, project="b", **forever))
    world.wait(4 * DAY_S)
    for worker in (0, 1):
        world.cancel("b0")
        world.report("b0", worker, "EMPTY")
    world.submit("a0", of("a", **forever))
    world.submit("a1", gang(3, project="a", **forever))
    assert not placed(world.submit("b1", of("b", **forever))), "a has had less, and what is free is kept for a1"
    world.wait(8 * DAY_S)
    assert placed(world.beat("host-0")) == ["b1 placed g1 on host-1"]
    assert order(world) == ["a1"]


def test_a_changed_half_life_counts_from_then_on_and_is_in_the_log() -> None:
    world = World(hosts=1)
    world.submit("x", of("a"))
    world.wait(HOUR_S)
    before = rows(world)["a"].state.used_s
    told = world.step(st.PoliciesChanged(dataclasses.replace(world.policies, usage_half_life_s=DAY_S)))
    assert told == ["what projects have used counts half after 24 h from now on"]
    assert rows(world)["a"].state.used_s == before, "what was used until then stays what it was"
    finish(world, "x")
    [after] = project_shares(world.cluster, Wall(world.wall + DAY_S))
    assert after.state.used_s == pytest.approx(before / 2)


def test_a_list_of_waiting_jobs_compares_the_projects_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(hosts=1)
    world.submit("running", of("a"))
    for number in range(40):
        world.submit(f"j{number}", of(f"p{number % 20}"))
    weigh(world, "p7", 2.0)
    view = QueueView(world.cluster, schedulable_hosts(world.cluster), {})
    looked: list[str] = []
    level = Shares.level

    def counted(self: Shares, name: str, gpus: int) -> float:
        looked.append(name)
        return level(self, name, gpus)

    monkeypatch.setattr(Shares, "level", counted)
    places = [view.ahead_of(job_of(world, name)) for name in world.cluster.queue]
    assert len(looked) < 200, "and not each for each job"
    monkeypatch.undo()
    assert places == [ahead_of(world.cluster, job_of(world, name)) for name in world.cluster.queue]


def test_a_clock_that_is_set_back_adds_nothing_and_takes_nothing() -> None:
    shares = Shares()
    shares.charge("a", 0, Wall(1000.0))
    shares.charge("a", 4, Wall(1100.0))
    used = shares.used["a"].gpu_s
    shares.charge("a", 4, Wall(50.0))
    assert (shares.used["a"].gpu_s, shares.used["a"].as_of) == (used, 50.0)
    assert shares.used_s("a", 4, Wall(150.0)) == pytest.approx(used + 400.0, rel=0.001)


def test_projects_that_count_for_nothing_any_more_are_forgotten() -> None:
    world = World(hosts=1)
    for number in range(300):
        world.cluster.shares.charge(f"p{number}", 0, Wall(world.wall))
    shares = Shares(used=world.cluster.shares.used)
    assert len(shares.used) == 300
    assert all(each.gpu_s < FORGOTTEN_GPU_S for each in shares.used.values())


# --- Whole plays --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_two_projects_converge_to_their_weights_within_three_half_lives(seed: int) -> None:
    play = Play(seed)
    play.feed(ShareAsked(0, "root", "a", 2.0))
    play.run(DAY_S, "b")
    play.run(3 * DAY_S, "a", "b")
    found = {each.project: each for each in project_shares(play.cluster, Wall(play.at + 1e6))}
    used = {name: each.state.used_s for name, each in found.items()}
    assert used["a"] / (used["a"] + used["b"]) == pytest.approx(2 / 3, rel=0.02)
    play.run(DAY_S, "a", "b")
    held = {name: play.gpu_s(name, play.at - DAY_S) for name in "ab"}
    assert held["a"] / (held["a"] + held["b"]) == pytest.approx(2 / 3, rel=0.02)


def test_without_weights_the_same_jobs_start_as_they_came() -> None:
    """Else the test above would prove nothing."""
    play = Play(0)
    play.run(DAY_S, "b")
    play.run(3 * DAY_S, "a", "b")
    used = {each.project: each.state.used_s for each in project_shares(play.cluster, Wall(play.at + 1e6))}
    assert used["a"] / (used["a"] + used["b"]) < 0.6


@pytest.mark.parametrize("seed", range(3))
def test_use_equals_a_recount_from_the_log_and_is_the_same_after_a_restart(seed: int) -> None:
    play = Play(seed)
    play.feed(ShareAsked(0, "root", "a", 2.0))
    snapshot = ""
    for _ in range(6):
        play.run(play.dice.uniform(HOUR_S, 8 * HOUR_S), *"abc"[: play.dice.randrange(1, 4)])
        found = {each.project: each.state.used_s for each in project_shares(play.cluster, Wall(play.at + 1e6))}
        for name, used_s in found.items():
            assert used_s == pytest.approx(play.recounted_s(name, DAY_S), rel=1e-9, abs=1e-6)
        folded = Cluster(epoch=1)
        for event in play.log:
            fold(folded, codec.load_event(*_stored(event)))
        assert folded.shares == play.cluster.shares, "bit by bit"
        snapshot = codec.dump_entity(play.cluster.shares)
        assert codec.load_entity("shares", snapshot) == play.cluster.shares


def _stored(event: ev.Event) -> tuple[str, int, str]:
    name = codec.stored_name(type(event))
    return name, codec.VERSIONS[name], codec.dump_event(event)


def test_shares_survive_a_restart_of_the_controller_and_a_restore() -> None:
    world = World(hosts=1)
    weigh(world, "a", 2.0)
    world.submit("x", of("a"))
    world.submit("y", of("b"))
    world.wait(HOUR_S)
    finish(world, "x")
    before, shares = durable(world.cluster), world.cluster.shares
    world.restart_controller()
    assert durable(world.cluster) == before
    assert world.cluster.shares == shares
