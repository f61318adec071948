"""What the queue does about clocks that are set, victims that can't be stopped now, and hosts that change meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.scenarios.queue_stories import finish, job_of, placed, why
from tests.scenarios.world import World, gang

from holdfast_controller.core.model import run_times
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill, RunTimes
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.scheduling.fair_share.guarantees import warning
from holdfast_controller.core.step.share_commands import GuaranteeAsked
from holdfast_controller.core.step.step import Policies

HOUR = 120.0
"""Short ones, since hosts beat all the while."""
SPOT = Strategy.SPOT
SAVES = WarningSignal(10, 600.0)


def cluster(hosts: int, **policies: Any) -> World:
    return World(hosts, Policies(secret_key=b"k", **{"backfill": Backfill.PROJECTED, **policies}))


def runs(hours: float, workers: int = 1, **rules: Any) -> Any:
    return gang(workers, expected_s=hours * HOUR, timeout_s=7 * 24 * HOUR, **rules)


def hosts_of(world: World, job: str) -> list[str]:
    return [place.host for place in job_of(world, job).places]


def preempted(told: list[str]) -> list[str]:
    return [words for words in told if "PREEMPTED" in words]


def beat_all(world: World, seconds: float) -> list[str]:
    return world.wait(seconds, beating=list(world.sessions))


# --- Estimates ----------------------------------------------------------------------------------------------------


def test_no_more_kinds_of_jobs_are_remembered_than_there_may_be_and_the_newest_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_times, "KINDS", 30)
    known = RunTimes()
    for number in range(1000):
        name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        job: Any = SimpleNamespace(project="p", owner="ann", gpus=number, display_name=name)
        for _ in range(run_times.FEWEST):
            known.learn(job, 100.0 + number)
    assert len(known._known) == 30
    job = SimpleNamespace(project="p", owner="ann", gpus=999, display_name="jjj", gang=gang(1))
    assert known.estimate(job).seconds == 1099.0
    job.gpus = 1
    assert known.estimate(job).runs == 0


def test_a_run_that_ended_before_it_began_by_a_clock_set_back_teaches_nothing() -> None:
    world = cluster(1)
    for name in ("train-1", "train-2", "train-3"):
        world.submit(name, gang(1))
        world.run(name)
        beat_all(world, 2.0)
        world.jumped -= 9.0  # less than is noticed
        world.exit(name, 0, 0)
        world.report(name, 0, "EMPTY")
        world.jumped += 9.0
        assert world.state(name) is JobState.SUCCEEDED
    world.submit("train-4", gang(1))
    estimate = world.cluster.run_times.estimate(job_of(world, "train-4"))
    assert estimate.basis is run_times.Basis.TIMEOUT, "not that such jobs take no time, and so may pass any other"


def test_a_clock_set_back_gives_a_job_no_time_beyond_its_timeout() -> None:
    world = cluster(1)
    world.submit("long", gang(1, timeout_s=7_200.0))
    world.run("long")
    beat_all(world, HOUR)
    world.jumped -= 86_400.0
    world.pause("long")
    world.exit("long", 0, "STOPPED:15")
    world.report("long", 0, "EMPTY")
    assert job_of(world, "long").ran_s == HOUR, "neither is a day added to its timeout, nor an hour"
    world.resume("long")
    world.run("long")
    beat_all(world, 7_190.0 - HOUR)
    assert world.state("long") is JobState.RUNNING
    assert any("long ending FAILED" in words for words in beat_all(world, 20.0))


@pytest.mark.parametrize("jump_h", [-50, -3, 3, 50])
def test_a_clock_that_is_set_lets_none_wait_for_longer_than_what_runs(jump_h: int) -> None:
    world = cluster(2)
    world.submit("busy", runs(4))
    world.run("busy")
    world.submit("large", runs(1, 2))
    world.jumped += jump_h * HOUR
    world.submit("short", runs(2))
    world.submit("long", runs(30))
    beat_all(world, HOUR)
    assert world.state("long") is JobState.QUEUED, "it would delay the one ahead, whatever the clock says"
    if world.state("short") is not JobState.QUEUED:
        finish(world, "short")
    assert "large placed g1 on host-0 host-1" in finish(world, "busy")
    finish(world, "large")
    assert not len(world.cluster.queue)


# --- Victims ------------------------------------------------------------------------------------------------------


def test_a_victim_that_is_about_to_be_paused_is_not_stopped_a_second_time() -> None:
    world = cluster(1)
    world.submit("s", gang(1, strategy=SPOT, warning=SAVES))
    world.run("s")
    world.pause("s")
    assert job_of(world, "s").pause_due is not None
    assert not preempted(world.submit("standard", gang(1)))
    world.exit("s", 0, "COMPLETED:0")
    told = world.report("s", 0, "EMPTY")
    assert placed(told) == ["standard placed g1 on host-0"] and world.state("s") is JobState.PAUSED


def test_a_victim_in_doubt_after_a_restore_is_not_stopped_before_its_host_has_said_what_runs() -> None:
    world = cluster(1)
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    world.restore(world.back_up())
    assert job_of(world, "s").unreconciled is not None
    assert not preempted(world.submit("standard", gang(1)))
    assert world.state("standard") is JobState.QUEUED


def test_a_job_that_is_held_for_debugging_gives_way_all_the_same() -> None:
    world = cluster(1)
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    world.hold("s", 3600.0)
    assert preempted(world.submit("standard", gang(1)))


def test_a_victim_whose_host_is_silent_frees_nothing_and_another_one_is_stopped() -> None:
    world = cluster(2)
    for name in ("s-0", "s-1"):
        world.submit(name, gang(1, strategy=SPOT))
        world.run(name)
    assert hosts_of(world, "s-0") == ["host-0"]
    world.hang_up("host-0")
    told = world.submit("standard", gang(1))
    assert preempted(told) and job_of(world, "s-1").vacating is not None and job_of(world, "s-0").vacating is None


def test_two_that_wait_stop_the_one_victim_once_and_the_first_has_its_host() -> None:
    world = cluster(2)
    world.submit("busy", gang(1))
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    told = world.submit("first", gang(1)) + world.submit("second", gang(1))
    assert len(preempted(told)) == 1
    world.exit("s", 0, "STOPPED:15")
    told = world.report("s", 0, "EMPTY")
    assert placed(told) == ["first placed g1 on host-1"] and world.state("second") is JobState.QUEUED


def test_a_victim_that_has_been_warned_of_its_own_end_gives_way_without_a_second_notice() -> None:
    world = cluster(1)
    world.submit("s", gang(1, strategy=SPOT, warning=SAVES, timeout_s=700.0))
    world.run("s")
    world.wait(500.0, beating=["host-0"])
    assert preempted(world.submit("standard", gang(1)))
    world.exit("s", 0, "STOPPED:15")
    assert placed(world.report("s", 0, "EMPTY")) == ["standard placed g1 on host-0"]


# --- Hosts --------------------------------------------------------------------------------------------------------


def test_a_label_that_changes_moves_nothing_and_counts_for_the_next_worker() -> None:
    world = cluster(0)
    for number, rack in enumerate("aab"):
        world.join(f"host-{number}", labels={"rack": rack})
    near = Locality(("rack",), "rack", required=True)
    world.submit("job", gang(2, retries=3, near=near))
    world.run("job")
    assert hosts_of(world, "job") == ["host-0", "host-1"]
    running = [world.place("job", 0, "RUNNING")]
    world.join("host-0", places=running, labels={"rack": "b"})
    assert world.state("job") is JobState.RUNNING and hosts_of(world, "job") == ["host-0", "host-1"]
    world.submit("other", gang(1, near=near, gpus=4))
    assert hosts_of(world, "other") == ["host-2"]


def test_racks_of_one_name_in_two_pods_are_two() -> None:
    world = cluster(0)
    for number, pod in enumerate("ab"):
        world.join(f"host-{number}", labels={"pod": pod, "rack": "r1"})
    near = Locality(("pod", "rack"), "rack", required=True)
    assert world.submit("job", gang(2, near=near)) == ["> refuse NEVER_FITS"]


def test_a_spare_that_is_cordoned_is_followed_by_another_one() -> None:
    world = cluster(3, spares=(SpareRule("any", 1),))
    world.submit("small", gang(1))
    assert hosts_of(world, "small") == ["host-1"] and world.cluster.spares == {"host-0": "any"}
    world.cordon("host-0")
    world.submit("next", gang(1))
    assert world.state("next") is JobState.QUEUED and world.cluster.spares == {"host-2": "any"}


def test_a_host_that_is_lost_leaves_more_guaranteed_than_there_is_and_that_is_said() -> None:
    world = cluster(2)
    world.step(GuaranteeAsked(1, "root", "vision", 8))
    assert not warning(world.cluster)
    world.hang_up("host-1")
    world.wait(80, beating=["host-0"])
    assert warning(world.cluster) == "8 GPUs are guaranteed in all, and the hosts have 4"
    world.submit("job", gang(2, project="vision"))
    assert why(world, "job").startswith("needs 4 GPUs on one host"), "it waits for hosts, and not for its turn"
    world.cancel("job")
    world.submit("small", gang(1, project="vision"))
    assert hosts_of(world, "small") == ["host-0"]
