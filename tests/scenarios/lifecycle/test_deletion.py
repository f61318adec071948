"""Jobs that have ended are deleted, by their users or because of their age: hosts first, then the job itself."""

from __future__ import annotations

from tests.scenarios.world import World

from holdfast_controller.core.step.access_commands import HostRemovalAsked
from holdfast_controller.core.step.commands import WorkerReported
from holdfast_controller.core.step.step import Policies

DAY_S = 86_400.0


def over(job: str, world: World) -> None:
    """Submit a job of two workers, and let it end."""
    world.submit(job)
    world.run(job)
    world.cancel(job)
    world.empty(job)


def test_only_a_job_that_has_ended_is_deleted() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.run("a")
    assert world.delete("a") == ["> refuse WRONG_STATE"]
    world.cancel("a")
    assert world.delete("a") == ["> refuse WRONG_STATE"], "it still ends"


def test_deleted_job_is_found_no_more_and_goes_when_its_hosts_have_deleted_its_output() -> None:
    world = World(hosts=2)
    over("a", world)
    assert world.delete("a", by="bob") == [
        "a deleted by bob",
        "> forget a",
        "> host-0 delete output of a",
        "> host-1 delete output of a",
        "> reply a",
    ]
    for again in (world.delete("a"), world.cancel("a"), world.pause("a"), world.resume("a"), world.restart("a")):
        assert again == ["> refuse NOT_FOUND"]
    assert world.output_gone("a", "host-0") == ["a output gone from host-0"]
    assert world.output_gone("a", "host-0") == [], "it says so twice"
    assert world.output_gone("a", "host-1") == ["a output gone from host-1", "a purged", "> forget a for good"]
    assert "a" not in world.cluster.jobs
    world.restart_controller()
    assert world.delete("a") == ["> refuse NOT_FOUND"]
    assert world.submit("a") == ["> refuse INVALID_INPUT"], "its id is not given again"


def test_host_that_was_away_is_told_when_it_is_back() -> None:
    world = World(hosts=2)
    over("a", world)
    world.hang_up("host-1")
    world.delete("a")
    world.output_gone("a", "host-0")
    world.restart_controller()
    assert "> host-1 delete output of a" in world.join("host-1")
    assert world.output_gone("a", "host-1") == ["a output gone from host-1", "a purged", "> forget a for good"]


def test_host_that_can_not_delete_says_why_and_is_asked_again() -> None:
    world = World(hosts=2)
    over("a", world)
    world.delete("a")
    refused = world.output_gone("a", "host-1", "/logs/a: Read-only file system")
    assert refused == ["> note output.not_deleted host-1 a /logs/a: Read-only file system"]
    assert "> host-1 delete output of a" in world.join("host-1")


def test_nothing_is_waited_for_from_a_host_that_was_removed() -> None:
    world = World(hosts=2)
    over("a", world)
    world.hang_up("host-1")
    world.delete("a")
    world.output_gone("a", "host-0")
    lines = world.step(HostRemovalAsked(99, "ann", "host-1", force=True))
    assert lines[:2] == ["a output gone from host-1", "host-1 removed"]
    assert "a purged" in lines


def test_job_that_never_ran_goes_at_once() -> None:
    world = World(hosts=2)
    world.submit("first")
    world.submit("second")
    world.cancel("second")
    assert world.delete("second") == [
        "second deleted by ann",
        "second purged",
        "> forget second",
        "> reply second",
        "> forget second for good",
    ]


def test_job_stays_until_its_withheld_share_is_proven_empty() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.run("a")
    world.hang_up("host-1")
    world.cancel("a")
    world.report("a", 0, "EMPTY")
    world.wait(200, beating=["host-0"])
    assert world.cluster.jobs["a"].terminal
    world.delete("a")
    world.output_gone("a", "host-0")
    back = world.join("host-1", places=[world.place("a", 1, "RUNNING")])
    assert "> host-1 STOP a w1 g1" in back
    assert "a purged" not in world.output_gone("a", "host-1"), "its share is still withheld"
    lines = world.report("a", 1, "EMPTY")
    assert "a purged" in lines


def test_host_with_leftovers_of_a_job_that_is_long_gone_forgets_them() -> None:
    world = World(hosts=2)
    over("a", world)
    left = world.place("a", 1, "EMPTY")
    world.delete("a")
    world.output_gone("a", "host-0")
    world.output_gone("a", "host-1")
    assert "> host-1 dismiss a workerpool1-0 g1" in world.join("host-1", places=[left])
    answer = WorkerReported("host-1", world.sessions["host-1"], left)
    assert world.step(answer) == [], "its answer to that is a report like the one before"


def keeping(days: float = 0.0, jobs: int = 0) -> World:
    """A controller that has just started, with two hosts."""
    world = World(policies=Policies(secret_key=b"k", keep_jobs_s=days * DAY_S, keep_jobs=jobs))
    world.restart_controller()
    world.join("host-0")
    world.join("host-1")
    return world


def test_job_is_deleted_when_it_was_kept_long_enough() -> None:
    world = keeping(days=1)
    over("a", world)
    assert "a deleted by holdfast" not in world.wait(0.9 * DAY_S)
    over("b", world)
    later = world.wait(0.3 * DAY_S)
    assert "a deleted by holdfast" in later
    assert "b deleted by holdfast" not in later


def test_the_oldest_ended_jobs_go_beyond_the_number_that_is_kept() -> None:
    world = keeping(jobs=2)
    for job in ("a", "b", "c"):
        over(job, world)
    world.submit("d")
    gone = [line for line in world.wait(2 * 3600) if "deleted" in line]
    assert gone == ["a deleted by holdfast"]


def test_nothing_is_deleted_for_its_age_on_the_word_of_a_clock_that_was_just_set_forward() -> None:
    world = keeping(days=90)
    over("a", world)
    world.wait(2 * 3600)
    world.jumped += 3650 * DAY_S
    lines = world.wait(0.9 * DAY_S)
    assert any("clock.jumped" in line for line in lines)
    assert "a deleted by holdfast" not in lines
    world.jumped -= 3650 * DAY_S
    assert "a deleted by holdfast" not in world.wait(3 * DAY_S)


def test_clock_that_is_far_ahead_at_the_start_deletes_nothing_for_a_day() -> None:
    world = keeping(days=90)
    over("a", world)
    world.jumped += 3650 * DAY_S
    world.restart_controller()
    world.join("host-0")
    world.join("host-1")
    assert "a deleted by holdfast" not in world.wait(0.9 * DAY_S)
    assert "a deleted by holdfast" in world.wait(0.3 * DAY_S), "it was off so long"
