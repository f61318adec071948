"""What jobs that hang together share, and what speaks against it."""

from __future__ import annotations

from holdfast.hang.judge.common_cause import CommonCause, SuspectJob, common_cause, mount_waits
from holdfast.hang.pipeline.features import Motion, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.samples import State


def suspect(job: str, at_s: float, *uses: str, mount: str = "") -> SuspectJob:
    """A job; the first of what it uses is a host."""
    return SuspectJob(job, at_s, frozenset(uses), {mount: frozenset(uses[:1])} if mount else {})


def cause_of(mine: SuspectJob, *others: SuspectJob, **going_on: int) -> CommonCause | None:
    """``going_on`` by rack, or ``all``."""
    counts = {"": going_on.get("all", 0), **{f"rack={name}": n for name, n in going_on.items()}}
    return common_cause(mine, others, lambda thing: counts.get(thing, 0))


def test_two_jobs_that_share_nothing_have_no_common_cause() -> None:
    assert cause_of(suspect("a", 0.0, "h1"), suspect("b", 10.0, "h2")) is None
    assert cause_of(suspect("a", 0.0, "h1", "rack=x"), suspect("b", 10.0, "h2", "rack=y")) is None


def test_two_jobs_on_one_host_within_three_minutes_have_one() -> None:
    found = cause_of(suspect("a", 0.0, "h1"), suspect("b", 170.0, "h1"), suspect("c", 900.0, "h1"))
    assert found is not None and found.jobs == ("a", "b")
    assert found.sentence.startswith("2 jobs on h1 turned suspect within 3 min: nothing is killed for 10 min")
    assert cause_of(suspect("a", 0.0, "h1"), suspect("b", 181.0, "h1")) is None
    assert cause_of(suspect("a", 0.0, "h1")) is None


def test_host_is_named_before_the_rack_that_as_many_share_and_after_one_that_more_share() -> None:
    a, b, c = (suspect(job, 0.0, host, "rack=x") for job, host in zip("abc", ("h1", "h1", "h2"), strict=True))
    two, three = cause_of(a, b), cause_of(a, b, c)
    assert two is not None and " on h1 " in two.sentence
    assert three is not None and " on hosts with rack=x " in three.sentence and three.jobs == ("a", "b", "c")


def test_what_more_jobs_use_and_go_on_is_not_at_fault() -> None:
    a, b = suspect("a", 0.0, "h1", "rack=x"), suspect("b", 0.0, "h2", "rack=x")
    assert cause_of(a, b, x=2) is not None
    assert cause_of(a, b, x=3) is None


def test_many_jobs_that_share_nothing_known_are_a_fault_of_the_cluster_unless_more_go_on() -> None:
    mine, *others = (suspect(f"job-{n}", 0.0, f"h{n}") for n in range(40))
    found = cause_of(mine, *others, all=40)
    assert found is not None and found.sentence.startswith("40 jobs turned suspect within 3 min while 40 go on")
    assert len(found.jobs) == 32 and mine.job in found.jobs
    assert cause_of(mine, *others, all=41) is None
    assert cause_of(mine, others[0]) is None


def test_two_hosts_waiting_for_one_mount_have_a_common_cause_however_far_apart() -> None:
    mine = suspect("a", 0.0, "h1", mount="/data")
    found = cause_of(mine, suspect("b", 900.0, "h2", mount="/data"), suspect("c", 0.0, "h3", mount="/home"))
    assert found is not None and (found.mount, found.jobs, found.hosts) == ("/data", ("a", "b"), ("h1", "h2"))
    assert "2 hosts wait for storage at /data" in found.sentence
    assert cause_of(mine) is None


def test_only_ranks_in_uninterruptible_sleep_wait_for_a_mount() -> None:
    ranks = tuple(
        RankFeatures(rank, Motion.BLOCKED, 0.0, state=state, mount="/data")
        for rank, state in enumerate((State.SLEEPING, State.DISK))
    )
    assert mount_waits([WorkerFeatures("workerpool0-0", "h1", 0.0, ranks)]) == {"/data": frozenset({"h1"})}
    assert mount_waits([WorkerFeatures("workerpool0-0", "h1", 0.0, ranks[:1])]) == {}
