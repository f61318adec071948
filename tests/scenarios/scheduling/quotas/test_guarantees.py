"""Guarantees of projects: what is borrowed of them, who gives way to a claim, when, and to whom never."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from bench.fleet.reactor import QUIET as NEVER_SILENT
from tests.scenarios.invariants import durable
from tests.scenarios.queue_stories import finish, job_of, placed, why
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast.errors import InvalidInput
from holdfast_controller.core.fold.allocation import recount
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, Pool, Retries, Strategy, Task
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.scheduling.fair_share.guarantees import above_quotas, borrowers, claims
from holdfast_controller.core.scheduling.fair_share.shares import MOST_GPUS, ProjectShare, project_shares
from holdfast_controller.core.scheduling.projections.dry_run import dry_run
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.share_commands import GuaranteeAsked, QuotaAsked
from holdfast_controller.core.step.step import Policies
from holdfast_controller.core.views.job_summary import summary_of
from holdfast_controller.shell.store import codec

HOUR_S = 3600.0
POLICIES = Policies(NEVER_SILENT, b"k")
FOREVER: Any = {"timeout_s": 1e12, "max_wait_s": 0.0}


def guarantee(world: World, project: str, gpus: int) -> list[str]:
    told = world.step(GuaranteeAsked(1, "root", project, gpus))
    last = world.sent[-1]
    if isinstance(last, act.Refuse):
        assert isinstance(last.error, InvalidInput)
        return [f"{each.path}: {each.problem}; {each.fix}" for each in last.error.violations]
    return told


def of(project: str, workers: int = 1, **rules: Any) -> Gang:
    return gang(workers, project=project, **{**FOREVER, **rules})


def rows(world: World) -> dict[str, ProjectShare]:
    return {each.project: each for each in project_shares(world.cluster, Wall(world.wall))}


def lent(hosts: int = 2, ran_s: float = 2 * HOUR_S, **policies: Any) -> World:
    """A project that is guaranteed one host of four GPUs; others have all, and have run for a while."""
    world = World(hosts=hosts, policies=dataclasses.replace(POLICIES, **policies))
    guarantee(world, "vision", 4)
    for number in range(hosts):
        world.submit(f"b{number}", of("speech"))
        world.run(f"b{number}")
    world.wait(ran_s)
    return world


def stopped(told: list[str]) -> list[str]:
    return [words for words in told if "PREEMPTED" in words]


# --- What is guaranteed -------------------------------------------------------------------------------------------


def test_a_guarantee_is_set_changed_and_cleared() -> None:
    world = World(hosts=1)
    assert guarantee(world, "vision", 4) == ["project vision is guaranteed 4 GPUs by root", "> reply vision"]
    assert guarantee(world, "vision", 4) == ["> reply vision"], "what is so already is no event"
    assert guarantee(world, "vision", 1)[0] == "project vision is guaranteed 1 GPU by root"
    assert world.cluster.shares.guarantees == {"vision": 1}
    assert guarantee(world, "vision", 0)[0] == "guarantee of project vision cleared by root"
    assert not world.cluster.shares.guarantees


@pytest.mark.parametrize("gpus", [-1, MOST_GPUS + 1])
def test_a_guarantee_that_is_none_is_refused_with_the_field_and_the_fix(gpus: int) -> None:
    world = World(hosts=1)
    assert guarantee(world, "vision", gpus) == [f"gpus: is {gpus}; use 1 to 1,000,000, or 0 for no guarantee"]


def test_a_guarantee_of_what_can_be_no_project_is_refused() -> None:
    [wrong] = guarantee(World(hosts=1), "user/ann", 4)
    assert wrong.startswith("project: must be lower-case letters, digits and dashes")


def test_a_guarantee_above_the_projects_own_quota_is_refused() -> None:
    world = World(hosts=2, policies=dataclasses.replace(POLICIES, quotas={"vision": Quota(gpus=4)}))
    assert guarantee(world, "vision", 5) == [
        "gpus: is 5, and the quota of vision is 4 GPUs;"
        " raise its quota first: holdfast quota set --project vision --gpus 5"
    ]
    assert guarantee(world, "vision", 4)[-1] == "> reply vision"


def test_a_quota_of_everybody_below_a_guarantee_is_refused_unless_the_project_has_its_own() -> None:
    world = World(hosts=2)
    guarantee(world, "vision", 4)
    world.step(QuotaAsked(1, "root", "*", Quota(gpus=2)))
    refused = world.sent[-1]
    assert isinstance(refused, act.Refuse) and isinstance(refused.error, InvalidInput)
    assert [str(each) for each in refused.error.violations] == [
        "limits.gpus: is 2, and 4 GPUs are guaranteed to vision (guarantee it less first: holdfast share set vision"
        " --guarantee 2, or give it a quota of its own: holdfast quota set --project vision --gpus 4)"
    ]
    world.step(QuotaAsked(1, "root", "vision", Quota(gpus=4)))
    assert world.step(QuotaAsked(1, "root", "*", Quota(gpus=2)))[-1] == "> reply *"
    assert not above_quotas(world.cluster, world.reactor.policies.quotas)


def test_settings_that_let_a_project_hold_less_than_its_guarantee_are_told_and_the_quota_counts() -> None:
    world = World(hosts=2, policies=POLICIES)
    guarantee(world, "vision", 8)
    world.step(st.PoliciesChanged(dataclasses.replace(POLICIES, quotas={"*": Quota(gpus=4)})))
    assert above_quotas(world.cluster, world.reactor.policies.quotas) == {
        "vision": "vision is guaranteed 8 GPUs, and its quota is 4"
    }
    world.submit("first", of("vision"))
    world.submit("second", of("vision"))
    assert world.state("first") is JobState.PENDING and world.state("second") is JobState.QUEUED
    world.step(st.PoliciesChanged(POLICIES))
    assert world.state("second") is JobState.PENDING
    assert not above_quotas(world.cluster, world.reactor.policies.quotas)


def test_guarantees_outlive_a_restart_and_a_snapshot_and_what_is_borrowed_equals_a_recount() -> None:
    world = lent()
    world.submit("v", of("vision"))
    before, borrowed = durable(world.cluster), borrowers(world.cluster)
    world.restart_controller()
    assert durable(world.cluster) == before
    assert borrowers(world.cluster) == borrowed
    assert codec.load_entity("shares", codec.dump_entity(world.cluster.shares)) == world.cluster.shares
    recount(world.cluster)
    assert borrowers(world.cluster) == borrowed


# --- Reclaim ------------------------------------------------------------------------------------------------------


def test_borrowers_give_way_to_a_job_within_its_guarantee_and_only_as_many_as_needed() -> None:
    world = lent()
    told = world.submit("v", of("vision"))
    assert stopped(told) == ["b1 leaves to RETRY: PREEMPTED of job v"], "the youngest of equals"
    assert placed(world.report("b1", 0, "EMPTY")) == ["v placed g1 on host-1"]
    assert not stopped(world.wait(24 * HOUR_S)), "and b1, which waits now, has no claim"


def test_without_a_guarantee_it_waits_for_its_turn() -> None:
    world = lent()
    guarantee(world, "vision", 0)
    assert not stopped([*world.submit("v", of("vision")), *world.wait(HOUR_S)])


def test_a_guarantee_that_is_set_lets_a_waiting_job_claim_at_once() -> None:
    world = lent()
    guarantee(world, "vision", 0)
    world.submit("v", of("vision"))
    assert len(stopped(guarantee(world, "vision", 4))) == 1


def test_a_claim_is_served_before_older_jobs_of_higher_priority() -> None:
    world = lent()
    world.submit("first", of("speech", priority=3))
    told = world.submit("v", of("vision"))
    assert len(stopped(told)) == 1
    assert placed(world.report("b1", 0, "EMPTY")) == ["v placed g1 on host-1"]


def test_a_borrower_runs_for_as_long_as_loans_last_and_then_the_claim_has_room() -> None:
    world = lent(ran_s=600.0)
    assert not stopped(world.submit("v", of("vision")))
    assert not stopped(world.wait(HOUR_S - 601.0))
    assert len(stopped(world.wait(2.0))) == 1


def test_a_clock_that_is_set_back_lets_borrowers_run_no_longer_than_that_from_then_on() -> None:
    world = lent(ran_s=600.0)
    world.submit("v", of("vision"))
    world.jumped = -600.0
    assert len(stopped(world.wait(HOUR_S + 601.0))) == 1


def test_a_borrower_that_does_not_run_yet_has_nothing_to_lose() -> None:
    world = World(hosts=1, policies=POLICIES)
    guarantee(world, "vision", 4)
    world.submit("b", of("speech"))
    assert len(stopped(world.submit("v", of("vision")))) == 1


def test_a_borrower_is_warned_and_has_its_notice() -> None:
    world = World(hosts=1, policies=POLICIES)
    guarantee(world, "vision", 4)
    world.submit("b", of("speech", warning=WarningSignal(10, 30.0)))
    world.run("b")
    world.wait(2 * HOUR_S)
    told = world.submit("v", of("vision"))
    assert "b warned g1 of giving way to v" in told and not stopped(told)
    assert not stopped(world.wait(29.0))
    assert stopped(world.wait(1.0)) == ["b leaves to RETRY: PREEMPTED of job v"]


def test_the_whole_guarantee_is_there_at_once_for_several_jobs() -> None:
    """Each has room of its own made for it in the same pass, though they share hosts and are alike."""
    world = World(hosts=2, policies=POLICIES)
    guarantee(world, "vision", 8)
    for number in range(8):
        world.submit(f"b{number}", of("speech", gpus=1))
        world.run(f"b{number}")
    world.wait(2 * HOUR_S)
    told = [words for number in range(4) for words in world.submit(f"v{number}", of("vision", gpus=2))]
    assert len(stopped(told)) == 8
    told = []
    for number in range(8):
        told += world.report(f"b{number}", 0, "EMPTY")
    assert [words.split()[0] for words in placed(told)] == ["v0", "v1", "v2", "v3"]


def test_what_is_booked_for_a_claim_is_kept_from_others() -> None:
    """Two hosts are needed, one is free, and on the other a borrower has its time: nobody starts on the free one."""
    world = World(hosts=2, policies=dataclasses.replace(POLICIES, backfill=Backfill.LOAN))
    guarantee(world, "vision", 8)
    world.submit("b", of("speech"))
    world.run("b")
    world.wait(600.0)
    world.submit("v", of("vision", 2))
    assert not placed(world.submit("small", of("speech", gpus=1)))
    assert not placed(world.submit("spot", of("speech", gpus=1, strategy=Strategy.SPOT)))
    assert stopped(world.wait(HOUR_S)) == ["b leaves to RETRY: PREEMPTED of job v"]
    assert placed(world.report("b", 0, "EMPTY")) == ["v placed g1 on host-1 host-0"] or job_of(world, "v").places


def test_a_claim_takes_what_is_free_before_anyone_gives_way() -> None:
    world = lent(hosts=2)
    finish(world, "b0")
    assert placed(world.submit("v", of("vision"))) == ["v placed g1 on host-0"]


def test_spot_jobs_give_way_first_and_at_once() -> None:
    world = World(hosts=2, policies=POLICIES)
    guarantee(world, "vision", 4)
    world.submit("b", of("speech"))
    world.run("b")
    world.wait(2 * HOUR_S)
    world.submit("s", of("speech", strategy=Strategy.SPOT, priority=3))
    world.run("s")
    assert stopped(world.submit("v", of("vision"))) == ["s leaves to RETRY: PREEMPTED of job v"]


def test_spot_jobs_have_no_claim_and_stand_in_no_guarantee() -> None:
    world = lent()
    assert not stopped(world.submit("s", of("vision", strategy=Strategy.SPOT)))
    assert not claims(world.cluster, {}, Wall(world.wall))


def test_what_does_not_fit_in_the_guarantee_has_no_claim() -> None:
    world = lent()
    assert not stopped(world.submit("large", of("vision", 2)))
    assert len(stopped(world.submit("v", of("vision")))) == 1, "one behind it that fits has"
    world.report("b1", 0, "EMPTY")
    assert not stopped(world.submit("v2", of("vision"))), "and no more than the guarantee"


def test_jobs_without_gpus_neither_claim_nor_give_way() -> None:
    world = World(hosts=1, policies=POLICIES)
    guarantee(world, "vision", 4)
    cores = Gang((Pool(1, Task(("x",)), cpus=16),), success=SuccessPolicy.ALL, project="speech", **FOREVER)
    world.submit("cores", cores)
    world.run("cores")
    world.wait(2 * HOUR_S)
    claimant = Gang(
        (Pool(1, Task(("x",)), cpus=1, gpus=4),), success=SuccessPolicy.ALL, project="vision", **FOREVER
    )
    assert not stopped(world.submit("v", claimant))
    world.submit("w", dataclasses.replace(cores, project="vision"))
    assert [job.id for job in claims(world.cluster, {}, Wall(world.wall))] == ["v"]


def test_a_project_within_its_guarantee_gives_way_to_no_claim() -> None:
    world = lent(hosts=2)
    guarantee(world, "speech", 8)
    assert not stopped([*world.submit("v", of("vision")), *world.wait(2 * HOUR_S)])
    assert stopped(guarantee(world, "speech", 4)) == ["b1 leaves to RETRY: PREEMPTED of job v"]


def test_of_a_project_beyond_its_guarantee_the_jobs_give_way_that_were_placed_last() -> None:
    world = World(hosts=3, policies=POLICIES)
    guarantee(world, "speech", 4)
    for name in ("old", "middle", "new"):
        world.submit(name, of("speech"))
        world.run(name)
        world.wait(2 * HOUR_S)
    assert borrowers(world.cluster) == {"middle": 4, "new": 4}
    guarantee(world, "vision", 8)
    told = world.submit("v", of("vision", 2))
    assert {words.split()[0] for words in stopped(told)} == {"middle", "new"}


def test_a_loan_within_a_guarantee_is_not_taken_back() -> None:
    world = World(hosts=2, policies=dataclasses.replace(POLICIES, backfill=Backfill.LOAN))
    world.submit("half", of("other"))
    world.run("half")
    world.submit("large", of("other", 2))
    world.wait(60.0)
    assert placed(world.submit("v", of("vision"))) == ["v placed g1 on host-1"]
    world.run("v")
    assert job_of(world, "v").loan is not None
    guarantee(world, "vision", 4)
    assert not stopped([*world.wait(3 * HOUR_S), *finish(world, "half"), *world.wait(3 * HOUR_S)])
    assert stopped(guarantee(world, "vision", 0)) == ["v leaves to RETRY: PREEMPTED of job large"]


def test_a_job_over_a_users_quota_has_no_claim_and_one_of_another_user_has() -> None:
    world = lent(quotas={"user/ann": Quota(gpus=8), "user/*": Quota()})
    assert not stopped(world.submit("mine", of("vision")))
    assert len(stopped(world.submit("theirs", of("vision"), owner="bob"))) == 1


def test_a_claimant_that_crashed_at_once_stops_no_other_until_a_while_has_passed() -> None:
    world = lent(hosts=2)
    retries = Retries(job_retries=9, backoff_s=60.0, backoff_limit_s=60.0)
    world.submit("v", dataclasses.replace(of("vision", max_worker_restarts=0), retries=retries))
    world.report("b1", 0, "EMPTY")
    world.run("v")
    world.exit("v", 0, 1)
    assert placed(world.report("v", 0, "EMPTY")) == ["b1 placed g2 on host-1"]
    world.run("b1")
    assert not stopped(world.wait(599.0))
    assert stopped(world.wait(2.0)) == ["b0 leaves to RETRY: PREEMPTED of job v"], "b1 has only just begun"


# --- Words --------------------------------------------------------------------------------------------------------


def test_rows_say_what_is_guaranteed_and_borrowed() -> None:
    world = lent()
    found = rows(world)
    assert (found["vision"].guaranteed, found["vision"].borrowed, found["vision"].state.gpus) == (4, 0, 0)
    assert (found["speech"].guaranteed, found["speech"].borrowed, found["speech"].state.gpus) == (0, 8, 8)


def test_a_claim_says_what_it_waits_for_and_a_borrower_that_it_may_have_to_give_way() -> None:
    world = lent(ran_s=600.0)
    world.submit("v", of("vision"))
    assert why(world, "v") == (
        "needs 4 GPUs on one host (0 free on the best); vision is guaranteed 4 GPUs, and it waits within that"
        ": others that fit nowhere beside it give way, each once it has run 60 min"
    )
    now = Now(Mono(world.mono), Wall(world.wall))
    health = summary_of(world.cluster, job_of(world, "b0"), QueueView(world.cluster, [], {}), now).health
    assert health.endswith("; it gives way to jobs within the guarantee of their project")


def test_a_claim_that_nobody_can_give_way_to_says_that_too_much_is_guaranteed() -> None:
    world = lent()
    guarantee(world, "speech", 8)
    world.submit("v", of("vision"))
    assert why(world, "v").endswith(
        "but no other job has GPUs beyond its own project's guarantee; 12 GPUs are guaranteed in all,"
        " and the hosts have 8"
    )


def test_a_dry_run_says_who_would_give_way() -> None:
    world = lent()
    asked = st.JobSubmission(9, "ann", "", "v", JobPlan("v", of("vision"), "{}"))
    found = dry_run(world.cluster, asked, world.policies, Now(Mono(world.mono), Wall(world.wall)))
    assert found.gives_way == ("b1",)
