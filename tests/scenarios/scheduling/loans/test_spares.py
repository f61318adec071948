"""Spares: hosts that are kept back are lent to SPOT jobs, and go at once to a job that has lost one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from tests.scenarios.queue_stories import why
from tests.scenarios.world import World, gang, inventory

from holdfast._base.job_file.label_match import read_match
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.share_commands import GuaranteeAsked
from holdfast_controller.core.step.step import Policies


def cluster(hosts: int, *rules: SpareRule, **more: object) -> World:
    kept = rules or (SpareRule("any", 1),)
    return World(hosts, Policies(secret_key=b"k", spares=kept, **more))  # type: ignore[arg-type]


def hosts_of(world: World, job: str) -> list[str]:
    return [place.host for place in world.cluster.jobs[job].places]


def others(world: World, *gone: str) -> Collection[str]:
    return [name for name in world.cluster.hosts if name not in gone]


def lose(world: World, host: str) -> None:
    world.hang_up(host)
    world.wait(80, beating=others(world, host))


def stop(world: World, job: str, *workers: int) -> list[str]:
    """The workers that are left of an attempt end; what followed."""
    told: list[str] = []
    for worker in workers:
        world.exit(job, worker, "STOPPED:15")
        told += world.report(job, worker, "EMPTY")
    return told


def long(workers: int = 2, **rules: object) -> object:
    return gang(workers, retries=3, replace_when_lost=True, **rules)  # type: ignore[arg-type]


def spot(workers: int = 1, **rules: object) -> object:
    return gang(workers, strategy=Strategy.SPOT, **rules)  # type: ignore[arg-type]


def submit(world: World, name: str, what: object) -> list[str]:
    return world.submit(name, what)  # type: ignore[arg-type]


def test_a_host_is_kept_free_and_a_job_that_would_need_it_waits_and_says_so() -> None:
    world = cluster(3)
    submit(world, "a", long(2))
    submit(world, "b", gang(1))
    assert (world.state("a"), world.state("b")) == (JobState.PENDING, JobState.QUEUED)
    assert set(world.cluster.spares) == set(world.cluster.hosts) - set(hosts_of(world, "a"))
    assert "1 host is a spare, kept for jobs that lose one" in why(world, "b")


def test_one_of_four_hosts_is_lost_and_the_spare_takes_its_place_while_the_others_keep_theirs() -> None:
    world = cluster(5)
    submit(world, "a", long(4))
    before = hosts_of(world, "a")
    (spare,) = world.cluster.spares
    submit(world, "b", gang(1))
    world.run("a")
    lose(world, before[2])
    stop(world, "a", 0, 1, 3)
    assert hosts_of(world, "a") == [*before[:2], spare, before[3]]
    assert world.state("b") is JobState.QUEUED
    world.run("a")
    assert world.state("a") is JobState.RUNNING


def test_a_spare_is_lent_to_a_spot_job_which_gives_it_up_as_soon_as_the_host_is_lost() -> None:
    world = cluster(3)
    submit(world, "a", long(2))
    submit(world, "lent", spot())
    assert set(hosts_of(world, "lent")) == set(world.cluster.spares)
    world.run("a")
    world.run("lent")
    gone = hosts_of(world, "a")[1]
    world.hang_up(gone)
    told = world.wait(80, beating=others(world, gone))
    assert any(each.startswith("lent leaves to RETRY: PREEMPTED") for each in told), "before a's workers are gone"
    stop(world, "a", 0)
    assert world.state("a") is JobState.QUEUED
    assert "a placed g2 on host-1 host-0" in stop(world, "lent", 0)
    assert world.state("lent") is JobState.QUEUED


def test_a_spot_job_that_waits_does_not_take_the_spare_that_is_booked() -> None:
    world = cluster(3)
    submit(world, "a", long(2))
    world.run("a")
    lose(world, hosts_of(world, "a")[1])
    submit(world, "eager", spot())
    assert world.state("eager") is JobState.QUEUED
    stop(world, "a", 0)
    assert world.state("a") is JobState.PENDING
    assert world.state("eager") is JobState.QUEUED


def test_a_lent_spare_is_given_up_with_the_warning_that_its_job_asked_for() -> None:
    world = cluster(3)
    submit(world, "a", long(2))
    submit(world, "lent", spot(warning=WarningSignal(10, 30.0)))
    world.run("a")
    world.run("lent")
    lose(world, hosts_of(world, "a")[1])
    leave = world.cluster.jobs["lent"].leave
    assert leave is not None and leave.related.job == "a"


def test_the_lost_host_is_the_next_spare_once_it_is_back_and_proven_empty() -> None:
    world = cluster(3)
    submit(world, "a", long(2))
    world.run("a")
    gone = hosts_of(world, "a")[1]
    lose(world, gone)
    stop(world, "a", 0)
    world.run("a")
    submit(world, "b", gang(1))
    world.join(gone, places=[world.place("a", 1, "RUNNING", 1)])
    assert world.state("b") is JobState.QUEUED
    world.report("a", 1, "EMPTY", 1, host=gone)
    assert set(world.cluster.spares) == {gone}
    assert world.state("b") is JobState.QUEUED


def test_a_host_that_comes_free_fills_the_gap_that_a_replacement_has_left() -> None:
    world = cluster(4)
    submit(world, "a", long(2))
    submit(world, "c", gang(1))
    submit(world, "b", gang(1))
    world.run("a")
    world.run("c")
    lose(world, hosts_of(world, "a")[1])
    stop(world, "a", 0)
    on = hosts_of(world, "c")
    world.exit("c", 0)
    world.report("c", 0, "EMPTY")
    assert list(world.cluster.spares) == on
    assert world.state("b") is JobState.QUEUED


def test_gpus_are_given_once_when_spares_lost_hosts_and_returns_follow_each_other() -> None:
    world = cluster(4)
    submit(world, "a", long(2))
    world.run("a")
    first, second = hosts_of(world, "a")
    lose(world, second)
    stop(world, "a", 0)
    world.run("a")
    moved = hosts_of(world, "a")[1]
    world.join(second, places=[world.place("a", 1, "RUNNING", 1)])
    lose(world, moved)
    stop(world, "a", 0)
    assert hosts_of(world, "a")[1] not in (second, moved), "the old worker there is not proven gone"
    world.run("a")
    world.report("a", 1, "EMPTY", 1, host=second)
    world.join(moved, places=[world.place("a", 1, "RUNNING", 2)])
    lose(world, first)
    stop(world, "a", 1)
    assert world.state("a") is JobState.PENDING
    assert hosts_of(world, "a")[0] == second


@pytest.mark.parametrize("backfill", list(Backfill))
def test_no_other_way_into_the_queue_leads_to_a_spare(backfill: Backfill) -> None:
    world = cluster(3, backfill=backfill)
    for number in range(4):
        submit(world, f"small-{number}", gang(1, gpus=4, expected_s=60.0, timeout_s=120.0))
    submit(world, "large", gang(2, expected_s=60.0, timeout_s=120.0))
    world.run("small-0")
    world.run("small-1")
    world.wait(7200, beating=world.cluster.hosts)
    used = {host for job in world.cluster.jobs for host in hosts_of(world, job)}
    assert not used & set(world.cluster.spares)


def test_a_guarantee_has_no_claim_on_a_spare() -> None:
    world = cluster(2)
    world.step(GuaranteeAsked(900, "ann", "vision", 8))
    submit(world, "a", gang(1, project="vision"))
    submit(world, "b", gang(1, project="vision"))
    assert (world.state("a"), world.state("b")) == (JobState.PENDING, JobState.QUEUED)


def test_a_job_that_failed_by_itself_is_entitled_to_no_spare_and_keeps_what_it_has() -> None:
    world = cluster(2)
    submit(world, "a", gang(1, retries=3, max_worker_restarts=0))
    world.run("a")
    before = hosts_of(world, "a")
    world.exit("a", 0, 1)
    world.report("a", 0, "EMPTY")
    world.wait(600, beating=world.cluster.hosts)
    assert hosts_of(world, "a") == before


def test_a_drained_host_s_work_goes_on_on_the_spare() -> None:
    world = cluster(3)
    submit(world, "a", long(2))
    world.run("a")
    stays, drained = hosts_of(world, "a")
    world.drain(drained, 0.0)
    world.wait(1)
    stop(world, "a", 0, 1)
    assert hosts_of(world, "a")[0] == stays and hosts_of(world, "a")[1] not in (stays, drained)


def test_a_job_over_its_quota_has_no_spare() -> None:
    world = cluster(3)
    submit(world, "a", long(2, project="vision"))
    world.run("a")
    world.policies = replace(world.policies, quotas={"vision": Quota(gpus=4)})
    world.step(st.PoliciesChanged(world.policies))
    lose(world, hosts_of(world, "a")[1])
    stop(world, "a", 0)
    assert world.state("a") is JobState.QUEUED
    assert "quota" in why(world, "a")


def test_two_jobs_lose_a_host_and_each_has_one_of_the_spares() -> None:
    world = cluster(6, SpareRule("any", 2))
    submit(world, "a", long(2))
    submit(world, "b", long(2))
    world.run("a")
    world.run("b")
    spares = set(world.cluster.spares)
    lost = [hosts_of(world, job)[1] for job in "ab"]
    for host in lost:
        world.hang_up(host)
    world.wait(200, beating=others(world, *lost))
    stop(world, "a", 0)
    stop(world, "b", 0)
    assert {hosts_of(world, job)[1] for job in "ab"} == spares
    assert all(world.state(job) is JobState.PENDING for job in "ab")


def test_a_gang_that_loses_more_hosts_than_there_are_spares_takes_spares_and_others_in_its_turn() -> None:
    world = cluster(6)
    submit(world, "a", long(3))
    submit(world, "c", gang(2))
    world.run("a")
    world.run("c")
    lost = hosts_of(world, "a")[1:]
    for host in lost:
        world.hang_up(host)
    world.wait(200, beating=others(world, *lost))
    stop(world, "a", 0)
    assert world.state("a") is JobState.QUEUED
    world.cancel("c")
    stop(world, "c", 0, 1)
    assert world.state("a") is JobState.PENDING


def test_spares_of_a_model_and_of_each_rack() -> None:
    world = cluster(0, SpareRule("h200", 1, "NVIDIA_H200", ("rack",)))
    for number in range(6):
        model = "NVIDIA H200" if number < 4 else "NVIDIA A100"
        name = f"host-{number}"
        labels = {"rack": f"r{number % 2}"} if number != 5 else {}
        world.join(name, inventory(name=name, model=model), labels=labels)
    assert sorted(world.cluster.spares.items()) == [("host-0", "h200"), ("host-1", "h200")]


def test_spares_of_hosts_whose_labels_meet_all_conditions() -> None:
    world = cluster(0, SpareRule("new", 1, match=read_match("gpu in (h100,h200),!old")))
    for name, labels in {
        "host-0": {"gpu": "h100", "old": "yes"},
        "host-1": {"gpu": "a100"},
        "host-2": {"gpu": "h200"},
    }.items():
        world.join(name, labels=labels)
    assert world.cluster.spares == {"host-2": "new"}


def test_a_sound_host_is_a_spare_before_one_with_signs_against_it() -> None:
    from tests.scenarios.hosts.test_failing_checks import reports
    from tests.scenarios.hosts.test_health_brake import HOT

    world = cluster(2)
    reports(world, "host-0", HOT)
    submit(world, "any", gang(1))
    assert hosts_of(world, "any") == ["host-0"] and list(world.cluster.spares) == ["host-1"]


def test_a_job_that_needs_the_spares_too_is_refused_unless_it_is_spot() -> None:
    world = cluster(3)
    assert submit(world, "a", gang(3)) == ["> refuse NEVER_FITS"]
    submit(world, "b", spot(3))
    assert world.state("b") is JobState.PENDING


def test_without_the_rule_the_hosts_are_for_all_again() -> None:
    world = cluster(2)
    submit(world, "a", gang(1))
    submit(world, "b", gang(1))
    assert world.state("b") is JobState.QUEUED
    world.step(st.PoliciesChanged(Policies(secret_key=b"k")))
    assert world.state("b") is JobState.PENDING and not world.cluster.spares


def test_more_spares_than_hosts_leave_the_rest_to_spot_jobs() -> None:
    world = cluster(2, SpareRule("any", 5))
    assert len(world.cluster.spares) == 2
    submit(world, "lent", spot())
    assert world.state("lent") is JobState.PENDING
    submit(world, "a", gang(1))
    assert "2 hosts are spares, kept for jobs that lose one" in why(world, "a")


def test_after_a_restart_of_the_controller_the_spare_is_kept_and_used() -> None:
    world = cluster(3)
    submit(world, "a", long(2))
    submit(world, "b", gang(1))
    world.run("a")
    gone = hosts_of(world, "a")[1]
    placed = {host: number for number, host in enumerate(hosts_of(world, "a"))}
    world.restart_controller()
    for host in others(world, gone):
        world.join(host, places=[world.place("a", placed[host], "RUNNING")] if host in placed else [])
    assert world.state("b") is JobState.QUEUED
    world.wait(200, beating=others(world, gone))
    stop(world, "a", 0)
    assert world.state("a") is JobState.PENDING and gone not in hosts_of(world, "a")
