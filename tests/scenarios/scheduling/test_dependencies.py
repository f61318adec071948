"""Jobs that run after others: they wait outside the queue, and learn of an end in the step that decides it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.queue_stories import finish, job_of, policies, states, why
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import DependencyEnd
from holdfast.errors import HoldfastError, TooMany
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling import submit
from holdfast_controller.core.scheduling.projections.dry_run import dry_run
from holdfast_controller.core.step.commands import CancelAsked, JobSubmission, WorkerReported


def after(*words: str, workers: int = 1, **rules: object) -> Gang:
    """A gang that runs after jobs, written as on the command line."""
    named = (word.partition(":") for word in words)
    found = tuple(Dependency(job, DependencyEnd[end.upper() or "OK"]) for job, _, end in named)
    return gang(workers, after=found, **rules)  # type: ignore[arg-type]


def succeed(world: World, job: str) -> list[str]:
    world.run(job)
    return complete(world, job)


def complete(world: World, job: str) -> list[str]:
    """The ranks of a running job exit 0, and its places are empty."""
    told: list[str] = []
    for worker in range(len(job_of(world, job).places)):
        told += world.exit(job, worker, 0)
    for worker in range(len(job_of(world, job).places)):
        told += world.report(job, worker, "EMPTY")
    return told


def fail(world: World, job: str) -> list[str]:
    world.run(job)
    return [*world.exit(job, 0, 1), *world.report(job, 0, "EMPTY")]


def refusal(world: World, what: Gang) -> HoldfastError | None:
    return submit.refusal(
        world.cluster, JobSubmission(0, "ann", "", "new", JobPlan("new", what, "{}")), world.policies
    )


@pytest.fixture
def world() -> World:
    return World(hosts=2)


@pytest.fixture
def fragile() -> Gang:
    """Ends with its first failure."""
    one = gang(1)
    return replace(one, retries=replace(one.retries, disabled=True))


def test_a_job_starts_in_the_step_in_which_the_other_succeeds(world: World) -> None:
    world.submit("prep")
    assert world.submit("train", after("prep")) == ["train submitted", "> reply train"]
    assert why(world, "train") == "waits for prep (PENDING) to succeed"
    told = succeed(world, "prep")
    ended = told.index("prep ended SUCCEEDED")
    assert told[ended + 1 : ended + 3] == ["train waited for prep SUCCEEDED", "train placed g1 on host-0"]
    assert job_of(world, "train").queued_since is None and states(world)["train"] == "PENDING"


def test_it_takes_no_place_and_no_host_from_others_meanwhile(world: World) -> None:
    world.submit("prep", gang(1))
    world.submit("train", after("prep", workers=2, priority=3))
    world.submit("other", gang(1))
    assert states(world) == {"prep": "PENDING", "train": "QUEUED", "other": "PENDING"}
    assert len(world.cluster.queue) == 0


def test_its_place_is_that_of_its_submission_once_it_waits_for_hosts(world: World) -> None:
    world.submit("prep", gang(1))
    world.submit("train", after("prep"))
    world.submit("fills", gang(1))
    world.submit("later", gang(1))
    succeed(world, "prep")
    assert states(world)["train"] == "PENDING" and states(world)["later"] == "QUEUED"


def test_all_of_several_jobs_have_to_end_as_they_were_to(world: World, fragile: Gang) -> None:
    world.submit("a", fragile)
    world.submit("b", fragile)
    world.submit("all", after("a:any", "b:failed"))
    fail(world, "a")
    assert why(world, "all") == "waits for b (PENDING) to fail"
    fail(world, "b")
    assert states(world)["all"] == "PENDING"


def test_one_that_has_ended_before_counts_at_once(world: World) -> None:
    world.submit("prep")
    succeed(world, "prep")
    told = world.submit("train", after("prep"))
    assert told[:3] == ["train submitted", "train waited for prep SUCCEEDED", "train placed g1 on host-0"]


def test_another_end_fails_the_job_and_names_the_cause(world: World, fragile: Gang) -> None:
    world.submit("prep", fragile)
    world.submit("train", after("prep"))
    told = fail(world, "prep")
    assert [line for line in told if line.startswith("train")] == [
        "train waited in vain for prep FAILED",
        "train ending FAILED",
        "train ended FAILED",
    ]
    error = job_of(world, "train").error
    assert error is not None
    assert error.message == "prep ended as FAILED, and this job waited for it to succeed."


def test_a_chain_ends_to_its_last_link_in_one_step(world: World) -> None:
    world.submit("j0", gang(1))
    reactor, at = world.reactor, Now(Mono(world.mono), Wall(world.wall))
    for number in range(1, 2000):
        reactor.step(JobSubmission(0, "ann", "", f"j{number}", JobPlan("x", after(f"j{number - 1}"), "{}")), at)
    reactor.step(JobSubmission(0, "ann", "", "tidy", JobPlan("tidy", after("j1999:failed"), "{}")), at)
    reactor.step(CancelAsked(0, "ann", "j0"), at)
    assert states(world)["j1"] == "QUEUED", "it has yet to leave its host"
    empty = world.place("j0", 0, "EMPTY")
    decision = reactor.step(WorkerReported("host-0", world.sessions["host-0"], empty), at)
    assert states(world)["j1999"] == "FAILED" and states(world)["tidy"] == "PENDING"
    assert len(decision.entries) > 3 * 1999


def test_a_diamond_runs_each_of_its_jobs_once(world: World) -> None:
    world.submit("top")
    world.submit("left", after("top"))
    world.submit("right", after("top"))
    world.submit("bottom", after("left", "right"))
    succeed(world, "top")
    succeed(world, "left")
    assert states(world)["bottom"] == "QUEUED"
    succeed(world, "right")
    assert job_of(world, "bottom").attempt == 1


def test_with_pause_if_unmet_it_pauses_and_goes_on_by_hand(world: World, fragile: Gang) -> None:
    world.submit("prep", fragile)
    world.submit("other", gang(1))
    world.submit("train", after("prep", "other", pause_if_unmet=True))
    fail(world, "prep")
    assert states(world)["train"] == "PAUSED"
    assert why(world, "train") == (
        "paused, since prep ended as FAILED, and this job waited for it to succeed; go on all the same with:"
        " holdfast job resume train"
    )
    world.restart_controller()
    for host in ("host-0", "host-1"):
        world.join(host)
    world.resume("train")
    assert why(world, "train").startswith("waits for other")
    succeed(world, "other")
    assert states(world)["train"] == "PENDING"


def test_a_paused_job_learns_of_ends_too(world: World, fragile: Gang) -> None:
    world.submit("prep")
    world.submit("bad", fragile)
    world.submit("train", after("prep"))
    world.submit("never", after("bad"))
    for job in ("train", "never"):
        world.pause(job)
    succeed(world, "prep")
    fail(world, "bad")
    assert states(world) == {"prep": "SUCCEEDED", "bad": "FAILED", "train": "PAUSED", "never": "FAILED"}
    world.resume("train")
    assert states(world)["train"] == "PENDING"


def test_a_job_that_waits_can_be_cancelled_and_those_after_it_are_told(world: World) -> None:
    world.submit("prep", gang(1))
    world.submit("train", after("prep"))
    world.submit("tidy", after("train:any"))
    world.cancel("train")
    assert states(world) == {"prep": "PENDING", "train": "CANCELLED", "tidy": "PENDING"}
    assert succeed(world, "prep")[-1] != "train waited for prep SUCCEEDED"


def test_a_job_that_finds_no_room_ends_those_that_wait_for_it(world: World) -> None:
    world.submit("full", gang(2))
    world.submit("impatient", replace(gang(2), waits=False))
    world.submit("train", after("impatient"))
    world.submit("tidy", after("impatient:failed", workers=2))
    world.wait(60, beating=["host-0", "host-1"])
    assert states(world) == {"full": "PENDING", "impatient": "FAILED", "train": "FAILED", "tidy": "QUEUED"}


def test_the_time_to_wait_for_hosts_begins_when_it_waits_for_hosts(world: World) -> None:
    world.submit("prep", gang(2))
    world.submit("train", after("prep", max_wait_s=60.0))
    world.run("prep")
    world.wait(600, beating=["host-0", "host-1"])
    assert states(world)["train"] == "QUEUED"
    world.submit("next", gang(2, priority=3))
    complete(world, "prep")
    assert states(world) == {"prep": "SUCCEEDED", "train": "QUEUED", "next": "PENDING"}
    world.wait(61, beating=["host-0", "host-1"])
    assert states(world)["train"] == "EXPIRED"


def test_one_that_was_paused_and_resumed_does_not_expire_while_it_waits_for_another_job(world: World) -> None:
    world.submit("prep", gang(2))
    world.submit("train", after("prep", max_wait_s=60.0))
    world.run("prep")
    world.pause("train")
    world.resume("train")
    world.wait(600, beating=["host-0", "host-1"])
    assert states(world)["train"] == "QUEUED"
    complete(world, "prep")
    assert states(world)["train"] == "PENDING"


def test_a_controller_that_restarts_knows_who_waits_for_whom(world: World) -> None:
    world.submit("prep", gang(1))
    world.submit("train", after("prep"))
    world.run("prep")
    running = world.place("prep", 0, "RUNNING")
    world.restart_controller()
    world.join("host-0", places=[running])
    world.join("host-1")
    assert why(world, "train") == "waits for prep (RUNNING) to succeed"
    complete(world, "prep")
    assert states(world)["train"] == "PENDING"


def test_the_other_job_may_be_deleted_once_it_has_ended(world: World) -> None:
    world.submit("prep", gang(1))
    world.submit("more", gang(1))
    world.submit("train", after("prep", "more"))
    succeed(world, "prep")
    world.delete("prep")
    world.output_gone("prep", "host-0")
    assert "prep" not in world.cluster.jobs
    succeed(world, "more")
    assert states(world)["train"] == "PENDING"


def test_jobs_that_are_not_there_or_have_ended_otherwise_are_refused_by_name(world: World) -> None:
    world.submit("bad", gang(1))
    finish(world, "bad")
    world.submit("gone", gang(1))
    finish(world, "gone")
    world.delete("gone")
    assert world.submit("train", after("job-9")) == ["> refuse INVALID_SPEC"]
    error = refusal(world, after("job-9", "gone", "bad"))
    assert error is not None and str(error).splitlines() == [
        "The job spec has 3 problems:",
        "  jobSpec.scheduling.after[0].job: there is no job 'job-9' (name one that has not been deleted, by its whole"
        " id: holdfast ps --all)",
        "  jobSpec.scheduling.after[1].job: there is no job 'gone' (name one that has not been deleted, by its whole"
        " id: holdfast ps --all)",
        "  jobSpec.scheduling.after[2]: bad ended as CANCELLED, so a job that waits for it to succeed would never run"
        " (leave it out, or wait for any end of it: ANY)",
    ]


def test_jobs_that_wait_for_others_count_among_those_that_a_user_may_have_waiting() -> None:
    world = World(hosts=1, policies=replace(policies(), waiting_jobs_per_user=2))
    world.submit("prep", gang(1))
    world.submit("a", after("prep"))
    world.submit("b", after("a"))
    assert isinstance(refusal(world, gang(1)), TooMany)


def test_a_user_s_jobs_wait_for_so_many_ends_that_one_step_can_tell_of_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "MOST_ENDS", 4, raising=False)
    for job in ("a", "b", "c"):
        world.submit(job, gang(1))
    world.submit("first", after("a", "b", "c"))
    assert isinstance(refusal(world, after("a", "b")), TooMany)
    assert refusal(world, after("a")) is None and refusal(world, gang(1)) is None
    other = JobSubmission(0, "bob", "", "new", JobPlan("new", after("a", "b", "c"), "{}"))
    assert submit.refusal(world.cluster, other, world.policies) is None
    world.cancel("first")
    assert refusal(world, after("a", "b")) is None


def test_a_dry_run_says_what_it_would_wait_for(world: World) -> None:
    world.submit("prep")
    asked = JobSubmission(0, "ann", "", "new", JobPlan("new", after("prep"), "{}"))
    found = dry_run(world.cluster, asked, world.policies, Now(Mono(world.mono), Wall(world.wall)))
    assert found.wait_reason == "waits for prep (PENDING) to succeed" and not found.places
