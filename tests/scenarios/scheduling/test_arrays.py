"""Arrays: one submission makes all elements, and only so many of them have their turn at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.queue_stories import job_of, policies, states, why
from tests.scenarios.scheduling.test_dependencies import after, complete, fail, succeed
from tests.scenarios.world import World, gang

from holdfast.errors import HoldfastError, TooMany
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling import submit
from holdfast_controller.core.scheduling.projections.dry_run import dry_run
from holdfast_controller.core.step.commands import JobSubmission, Once


def asked(indices: tuple[int, ...], at_once: int = 0, what: Gang | None = None, *, job: str = "a") -> JobSubmission:
    return JobSubmission(
        1, "ann", "r1", job, JobPlan("sweep", what or small(), '{"spec":1}', indices=indices, at_once=at_once)
    )


def small(**rules: object) -> Gang:
    """Four of them fit on a host."""
    return gang(1, gpus=1, **rules)  # type: ignore[arg-type]


def array(world: World, count: int, at_once: int = 0, what: Gang | None = None, *, job: str = "a") -> list[str]:
    return world.step(asked(tuple(range(1, count + 1)), at_once, what, job=job))


def refusal(world: World, *args: object, **kwargs: object) -> HoldfastError | None:
    return submit.refusal(world.cluster, asked(*args, **kwargs), world.policies)  # type: ignore[arg-type]


def running(world: World) -> list[str]:
    return [job for job, state in states(world).items() if state in ("PENDING", "RUNNING")]


@pytest.fixture
def world() -> World:
    return World(hosts=2)


@pytest.fixture
def fragile() -> Gang:
    """Ends with its first failure."""
    one = small()
    return replace(one, retries=replace(one.retries, disabled=True))


def test_one_submission_makes_a_job_for_each_index_in_one_step(world: World) -> None:
    told = world.step(asked((2, 5, 7)))
    assert [line for line in told if "submitted" in line or line.startswith(">")][:4] == [
        "a-2 submitted",
        "a-5 submitted",
        "a-7 submitted",
        "> reply a-2",
    ]
    assert running(world) == ["a-2", "a-5", "a-7"]
    assert dict(job_of(world, "a-5").gang.pools[0].task.env) == {
        "HOLDFAST_ARRAY_ID": "a",
        "HOLDFAST_ARRAY_INDEX": "5",
        "HOLDFAST_ARRAY_COUNT": "3",
    }


def test_a_submission_that_is_repeated_makes_no_second_array(world: World) -> None:
    first = asked((1, 2, 3))
    world.step(Once("ann", "r1", "same", first))
    assert world.step(Once("ann", "r1", "same", replace(first, job_id="b"))) == ["> reply a-1"]
    world.restart_controller()
    world.cluster.answers.clear()
    assert world.step(Once("ann", "r1", "same", replace(first, job_id="c"))) == ["> reply a-1"]
    assert sorted(world.cluster.jobs) == ["a-1", "a-2", "a-3"]


def test_no_more_than_so_many_have_their_turn_and_the_next_comes_in_the_step_of_an_end(world: World) -> None:
    array(world, 5, 2)
    assert running(world) == ["a-1", "a-2"]
    assert why(world, "a-3") == "waits for its turn: 2 of the 5 elements of a run at once"
    assert len(world.cluster.queue) == 0
    told = succeed(world, "a-2")
    ended = told.index("a-2 ended SUCCEEDED")
    assert told[ended + 1 : ended + 3] == ["a-3 has its turn", "a-3 placed g1 on host-0"]
    assert running(world) == ["a-1", "a-3"]
    for job in ("a-1", "a-3", "a-4", "a-5"):
        succeed(world, job)
    assert set(states(world).values()) == {"SUCCEEDED"}
    assert all(job.attempt == 1 for job in world.cluster.jobs.values())


def test_a_turn_is_kept_over_failures(world: World) -> None:
    array(world, 2, 1, small(retries=1))
    world.run("a-1")
    world.exit("a-1", 0, 1)
    world.report("a-1", 0, "EMPTY")
    assert states(world)["a-1"] == "RUNNING" and job_of(world, "a-1").generation == 2
    assert "turn" in why(world, "a-2")


def test_a_paused_element_leaves_its_turn_to_the_next_one_and_waits_for_another(world: World) -> None:
    array(world, 3, 1)
    world.run("a-1")
    world.pause("a-1")
    world.report("a-1", 0, "EMPTY")
    assert states(world) == {"a-1": "PAUSED", "a-2": "PENDING", "a-3": "QUEUED"}
    world.resume("a-1")
    assert "turn" in why(world, "a-1")
    world.pause("a-3")
    succeed(world, "a-2")
    assert states(world) == {"a-1": "PENDING", "a-2": "SUCCEEDED", "a-3": "PAUSED"}
    world.resume("a-3")
    assert states(world)["a-3"] == "QUEUED"
    succeed(world, "a-1")
    assert states(world)["a-3"] == "PENDING"


def test_an_array_is_cancelled_whole_and_no_element_starts_meanwhile(world: World) -> None:
    array(world, 6, 2)
    succeed(world, "a-1")
    world.run("a-2")
    told = world.cancel("a")
    assert "> reply a-1" in told and not [line for line in told if "turn" in line or "placed" in line]
    for job in ("a-2", "a-3"):
        world.report(job, 0, "EMPTY")
    assert states(world) == {"a-1": "SUCCEEDED", **{f"a-{n}": "CANCELLED" for n in range(2, 7)}}
    assert world.cancel("a") == ["> reply a-1"]


def test_calls_for_one_job_name_an_element_where_an_array_is_named(world: World) -> None:
    array(world, 2)
    assert world.pause("a") == ["> refuse NOT_FOUND"]


def test_a_cancelled_element_gives_its_turn_on(world: World) -> None:
    array(world, 3, 1)
    world.cancel("a-2")
    succeed(world, "a-1")
    assert states(world) == {"a-1": "SUCCEEDED", "a-2": "CANCELLED", "a-3": "PENDING"}


def test_a_restarted_controller_gives_each_turn_once(world: World) -> None:
    array(world, 4, 2)
    world.run("a-1")
    world.run("a-2")
    places = [world.place(job, 0, "RUNNING") for job in ("a-1", "a-2")]
    for _ in range(2):
        world.restart_controller()
        for host in ("host-0", "host-1"):
            on = [each for each in places if job_of(world, each.key.job).places[0].host == host]
            world.join(host, places=on)
    assert running(world) == ["a-1", "a-2"]
    complete(world, "a-1")
    assert running(world) == ["a-2", "a-3"]


def test_a_job_after_an_array_waits_for_its_last_element(world: World, fragile: Gang) -> None:
    array(world, 2, 1, fragile)
    for job, words in (("well", "a"), ("ends", "a:any"), ("badly", "a:failed")):
        world.submit(job, after(words))
    assert why(world, "well") == "waits for a (0 of 2 ended) to succeed"
    fail(world, "a-1")
    assert why(world, "ends") == "waits for a (1 of 2 ended) to end"
    told = succeed(world, "a-2")
    assert "well waited in vain for a FAILED" in told
    assert [states(world)[job] for job in ("well", "ends", "badly")] == ["FAILED", "PENDING", "PENDING"]
    error = job_of(world, "well").error
    assert error is not None and error.message == "a ended as FAILED, and this job waited for it to succeed."
    assert world.submit("late", after("a")) == ["> refuse INVALID_SPEC"]
    assert world.submit("later", after("a:failed"))[0] == "later submitted"


def test_all_elements_wait_for_another_job_and_take_turns_then(world: World) -> None:
    world.submit("prep")
    array(world, 3, 2, small(after=after("prep").after))
    assert why(world, "a-1") == "waits for prep (PENDING) to succeed"
    succeed(world, "prep")
    assert running(world) == ["a-1", "a-2"]
    array(world, 3, 2, small(after=after("a").after), job="b")
    for job in ("a-1", "a-2", "a-3"):
        succeed(world, job)
    assert running(world) == ["b-1", "b-2"]


def test_the_time_to_wait_for_hosts_begins_with_the_turn(world: World) -> None:
    array(world, 2, 1, small(max_wait_s=60.0))
    world.run("a-1")
    world.wait(600, beating=["host-0", "host-1"])
    assert states(world)["a-2"] == "QUEUED"
    world.submit("fills", gang(2))
    complete(world, "a-1")
    assert states(world)["a-2"] == "PENDING"


def test_an_element_is_kept_until_its_array_has_ended(world: World) -> None:
    array(world, 2, 1)
    succeed(world, "a-1")
    assert world.delete("a-1") == ["> refuse WRONG_STATE"]
    succeed(world, "a-2")
    world.delete("a-1")
    assert world.submit("late", after("a")) == ["> refuse INVALID_SPEC"], "how the deleted one ended is not known"
    for job in ("a-1", "a-2"):
        world.delete(job)
        world.output_gone(job, "host-0")
    assert not world.cluster.jobs and "a" not in world.cluster.arrays


def test_elements_count_among_the_jobs_that_a_user_may_have_waiting() -> None:
    world = World(hosts=1, policies=replace(policies(), waiting_jobs_per_user=5))
    assert isinstance(refusal(world, tuple(range(6))), TooMany)
    array(world, 5, 1)
    assert refusal(world, (1,), job="b") is None
    too_many = refusal(world, (1, 2), job="b")
    assert "The array has 2 elements, and ann has 4 jobs waiting of 5 that it may have." in str(too_many)


def test_elements_count_among_all_jobs_and_among_those_of_a_project() -> None:
    assert "with 3 more than 2 jobs would wait or run" in str(
        refusal(World(hosts=1, policies=replace(policies(), max_jobs=2)), (1, 2, 3))
    )
    few = World(hosts=1, policies=replace(policies(), waiting_jobs_per_project=2))
    assert "project default has 0 jobs waiting of 2 that it may have" in str(refusal(few, (1, 2, 3)))


def test_what_all_elements_keep_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "MOST_ARRAY_CHARS", 20)
    assert refusal(world, (1, 2)) is None
    assert "jobSpec.scheduling.array: each element keeps the whole spec" in str(refusal(world, (1, 2, 3)))


@pytest.mark.parametrize("kept", [{"annotations": {"note": "x" * 65_536}}, {"labels": {"k": "x" * 65_536}}])
def test_what_is_kept_beside_the_spec_counts_too(world: World, kept: dict[str, dict[str, str]]) -> None:
    many = asked(tuple(range(1, 1001)))
    many = replace(many, plan=replace(many.plan, **kept))  # type: ignore[arg-type]
    few = replace(many, plan=replace(many.plan, indices=(1, 2)))
    assert submit.refusal(world.cluster, few, world.policies) is None
    found = str(submit.refusal(world.cluster, many, world.policies))
    assert "labels and annotations: 62 MiB, and 32 are allowed" in found


def test_ends_are_counted_for_each_element(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "MOST_ENDS", 4)
    world.submit("prep")
    assert isinstance(refusal(world, (1, 2, 3, 4, 5), 0, after("prep")), TooMany)
    assert refusal(world, (1, 2, 3, 4), 0, after("prep")) is None


def test_an_id_that_an_element_would_have_is_not_given_twice(world: World) -> None:
    world.submit("a-2", small())
    assert "the job id a-2 is taken" in str(refusal(world, (1, 2)))


def test_a_quota_holds_elements_and_the_queue_s_order_goes_by_index(world: World) -> None:
    array(world, 10)
    assert running(world) == [f"a-{n}" for n in range(1, 9)]
    succeed(world, "a-3")
    assert states(world)["a-9"] == "PENDING" and states(world)["a-10"] == "QUEUED"


def test_a_dry_run_says_where_the_first_would_run(world: World) -> None:
    found = dry_run(world.cluster, asked((1, 2)), world.policies, Now(Mono(world.mono), Wall(world.wall)))
    assert found.places and not found.wait_reason
