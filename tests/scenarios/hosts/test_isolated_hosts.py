"""The default: a gang goes on without a lost host once a peer says that the host's ranks have stopped, not before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import RestartScope
from holdfast_controller.core.model.gang import Retries
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason

OTHERS = ["host-0", "host-2"]
MOVED = [
    "a exit g1 r1 LOST_HOST",
    "a leaves to RETRY: LOST_HOST of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
    "a fenced w1",
    "> host-0 STOP a w0 g1",
]


def running(hosts: int = 3, workers: int = 2, **rules: Any) -> World:
    """Job ``a`` runs on the first hosts, one worker on each."""
    world = World(hosts=hosts)
    world.submit("a", replace(gang(workers, retries=3, replace_if_isolated=True), **rules))
    world.run("a")
    return world


def why(world: World) -> str:
    return wait_reason(world.cluster, world.cluster.jobs["a"], list(world.cluster.hosts.values()))


def lose(world: World, *, seconds: float = 70.0, beating: list[str] | None = None) -> list[str]:
    """Nothing more is heard of host-1."""
    world.hang_up("host-1")
    told = world.wait(seconds, beating=OTHERS if beating is None else beating)
    assert "host-1 lost" in told
    return [words for words in told if not words.startswith("> note")]


def test_a_host_that_its_peers_miss_is_left_as_soon_as_it_is_lost() -> None:
    world = running()
    world.hang_up("host-1")
    world.wait(65, beating=OTHERS)
    assert world.report("a", 0, "RUNNING", silent=[(1, 1)]) == [], "not before the controller's own count is over"
    assert [words for words in world.wait(1, beating=OTHERS) if not words.startswith("> note")] == [
        "host-1 lost",
        *MOVED,
    ]
    world.exit("a", 0, "STOPPED:15")
    assert world.report("a", 0, "EMPTY")[1] == "a placed g2 on host-0 host-2"
    assert list(world.cluster.hosts["host-1"].allocations) == ["a/1"], "withheld until its host has proven it empty"


def test_a_peer_that_misses_it_later_is_enough() -> None:
    world = running()
    assert lose(world) == ["host-1 lost"]
    assert world.report("a", 0, "RUNNING", silent=[(1, 1)]) == MOVED


def test_a_host_that_only_we_do_not_hear_runs_on_and_the_page_says_why() -> None:
    world = running()
    world.hang_up("host-1")
    world.wait(20, beating=OTHERS)
    assert why(world) == (
        "nothing is heard from host-1 since 13:48:20 UTC; the job is moved at 13:49:26 UTC unless it returns or its "
        "peers still reach it; now by: holdfast host fence host-1"
    )
    told = world.wait(100_000, beating=OTHERS)
    assert [words for words in told if not words.startswith("> note")] == ["host-1 lost"]
    assert world.cluster.jobs["a"].state is JobState.RUNNING
    assert why(world) == (
        "nothing is heard from host-1 since 13:48:20 UTC, but its peers may still reach it, and its ranks run on; "
        "the job is moved once a peer misses it; now by: holdfast host fence host-1"
    )


def test_a_silent_peer_on_a_host_that_we_hear_is_no_reason_for_anything() -> None:
    world = running()
    assert world.report("a", 0, "RUNNING", silent=[(1, 1)]) == []
    assert world.wait(1000, beating=[*OTHERS, "host-1"]) == []


def test_a_peer_that_hears_it_again_takes_its_word_back() -> None:
    world = running()
    world.report("a", 0, "RUNNING", silent=[(1, 1)])
    world.report("a", 0, "RUNNING")
    assert lose(world) == ["host-1 lost"]


def test_the_word_of_a_peer_that_has_gone_itself_does_not_count() -> None:
    world = running(hosts=5)
    world.report("a", 0, "RUNNING", silent=[(1, 1)])
    world.hang_up("host-0")
    lose(world, beating=["host-2", "host-3", "host-4"])
    assert world.cluster.jobs["a"].state is JobState.RUNNING


@pytest.mark.parametrize("silent", [[(1, 2)], [(0, 1)], [(7, 1)], [(-1, 1)]])
def test_the_word_must_be_of_the_generation_that_may_run_there(silent: list[tuple[int, int]]) -> None:
    world = running()
    lose(world)
    assert world.report("a", 0, "RUNNING", silent=silent) == []


def test_a_gang_that_failed_with_the_host_leaves_it_though_its_next_generation_waits_there() -> None:
    world = running()
    world.hang_up("host-1")
    world.exit("a", 0, 7)
    world.wait(5, beating=OTHERS)
    assert world.cluster.jobs["a"].generation == 2
    world.report("a", 0, "PREPARED")
    assert why(world) == "restarting in place on host-1 (host-1 not connected)"
    world.wait(20, beating=OTHERS)
    assert why(world).startswith(
        "restarting in place on host-1; nothing is heard from host-1 since 13:48:20 UTC; the"
    )
    world.wait(50, beating=OTHERS)
    told = world.report("a", 0, "PREPARED", silent=[(1, 1)])
    assert told[:3] == [
        "a exit g1 r1 LOST_HOST",
        "a leaves to RETRY: LOST_HOST of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
        "a fenced w1",
    ]
    assert world.report("a", 0, "EMPTY")[1] == "a placed g3 on host-0 host-2"


def test_a_worker_that_was_ready_for_its_next_generation_has_stopped() -> None:
    world = running()
    world.exit("a", 0, 7)
    world.wait(5, beating=[*OTHERS, "host-1"])
    world.report("a", 1, "PREPARED")
    assert "a fenced w1" in lose(world)


@pytest.mark.parametrize("rules", [{}, {"replace_if_isolated": False}])
def test_where_nothing_was_started_a_lost_host_is_left_whatever_the_policy(rules: dict[str, Any]) -> None:
    world = World(hosts=3)
    world.submit("a", replace(gang(retries=3, replace_if_isolated=True), **rules))
    assert "a fenced w1" in lose(world)
    assert world.report("a", 0, "EMPTY")[1] == "a placed g2 on host-0 host-2"


def test_a_job_that_keeps_its_hosts_is_not_moved_by_what_peers_say() -> None:
    world = running(replace_if_isolated=False)
    assert lose(world) == ["host-1 lost"]
    assert world.report("a", 0, "RUNNING", silent=[(1, 1)]) == []
    assert why(world).endswith(
        "its ranks may run on there, so the job waits for it, or for: holdfast host fence host-1"
    )


def test_a_job_on_one_host_has_nobody_to_ask_and_says_so() -> None:
    world = running(workers=1)
    world.hang_up("host-0")
    world.wait(100, beating=["host-1", "host-2"])
    assert world.cluster.jobs["a"].state is JobState.RUNNING
    assert why(world).endswith(
        "no other host of the job can tell whether its ranks run on; waits for it, or for: holdfast host fence host-0"
    )


def test_two_hosts_that_are_cut_off_together_are_both_left_for_the_word_of_a_third() -> None:
    world = running(hosts=6, workers=3)
    for host in ("host-1", "host-2"):
        world.hang_up(host)
    others = ["host-0", "host-3", "host-4", "host-5"]
    world.wait(70, beating=others)
    told = world.report("a", 0, "RUNNING", silent=[(1, 1), (2, 1)])
    assert [words for words in told if "fenced" in words] == ["a fenced w1", "a fenced w2"]


def test_without_another_host_the_job_waits_with_its_reason_until_the_host_is_back() -> None:
    world = running(hosts=2)
    lose(world, beating=["host-0"])
    world.report("a", 0, "RUNNING", silent=[(1, 1)])
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert why(world) == (
        "needs 4 GPUs on one host (0 free on the best); 1 of 2 workers would fit now; host-1 is lost since 13:48:20 "
        "UTC, and what it held is free once it returns, or by: holdfast host fence host-1"
    )
    world.join("host-1", places=[])
    assert world.cluster.jobs["a"].state is JobState.PENDING


def test_a_controller_that_was_away_for_an_hour_finds_everything_as_it_was() -> None:
    world = running()
    world.restart_controller(down_s=3600)
    for worker, host in enumerate(["host-0", "host-1"]):
        world.join(host, places=[world.place("a", worker, "RUNNING", 1)])
    world.join("host-2")
    told = world.wait(1000, beating=["host-0", "host-1", "host-2"])
    assert [words for words in told if not words.startswith("> note")] == []
    job = world.cluster.jobs["a"]
    assert (job.state, job.generation) == (JobState.RUNNING, 1)


def test_a_controller_that_starts_anew_learns_it_from_the_peers_hello() -> None:
    world = running()
    lose(world)
    world.restart_controller(down_s=5)
    world.join("host-2")
    told = world.join("host-0", places=[world.place("a", 0, "RUNNING", 1, silent=[(1, 1)])])
    assert "a fenced w1" in told


def test_a_job_that_is_paused_meanwhile_is_paused_without_the_host() -> None:
    world = running()
    world.hang_up("host-1")
    world.pause("a")
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    world.wait(20, beating=OTHERS)
    assert "the job is paused at 13:49:26 UTC unless" in why(world)
    world.wait(50, beating=OTHERS)
    assert world.report("a", 0, "EMPTY", silent=[(1, 1)])[-1] == "a paused"


def test_a_single_worker_that_is_relaunched_alone_is_missed_in_its_own_generation() -> None:
    world = running(retries=Retries(scope=RestartScope.WORKER, job_retries=3))
    world.exit("a", 1, 7)
    world.report("a", 1, "PREPARED")
    world.report("a", 1, "RUNNING")
    lose(world)
    assert world.report("a", 0, "RUNNING", silent=[(1, 1)]) == [], "its first generation has ended, and was missed"
    assert "a fenced w1" in world.report("a", 0, "RUNNING", silent=[(1, 2)])
