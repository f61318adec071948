"""Who gets hosts and when: order, quotas, backfill, preemption, and jobs that have waited enough."""

from __future__ import annotations

import pytest
from tests.scenarios.queue_stories import cpu, finish, job_of, placed, policies, states, why
from tests.scenarios.world import World, gang, inventory

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Strategy, Task
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, Recover
from holdfast_controller.core.model.warning import WarningSignal

SPOT = Strategy.SPOT


# --- Order --------------------------------------------------------------------------------------------------------


def test_higher_priority_goes_first_and_equals_in_the_order_of_submission() -> None:
    world = World(hosts=1)
    world.submit("running", gang(1))
    for name, priority in (("a", 1), ("b", 2), ("c", 3), ("d", 3), ("e", 2)):
        world.submit(name, gang(1, priority=priority))
    order = []
    last = "running"
    for _ in range(5):
        (words,) = placed(finish(world, last))
        last = words.split()[0]
        order.append(last)
    assert order == ["c", "d", "b", "e", "a"]


def test_job_whose_attempt_failed_is_served_before_every_priority() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, retries=1, max_worker_restarts=0))
    world.submit("urgent", gang(1, priority=3))
    world.run("a")
    assert "leaves to RETRY" in world.exit("a", 0, 7)[1]
    assert list(world.cluster.queue) == ["a", "urgent"]
    assert placed(world.report("a", 0, "EMPTY")) == ["a placed g2 on host-0"]


def test_order_survives_a_restart_of_the_controller() -> None:
    world = World(hosts=1)
    world.submit("running", gang(1))
    for name, priority in (("a", 1), ("b", 3), ("c", 2)):
        world.submit(name, gang(1, priority=priority))
    world.restart_controller()
    assert list(world.cluster.queue) == ["b", "c", "a"]


def test_reason_says_who_is_ahead_and_what_that_one_lacks() -> None:
    world = World(hosts=1)
    for name in "abc":
        world.submit(name, gang(1))
    assert why(world, "b") == "needs 4 GPUs on one host (0 free on the best)"
    assert why(world, "c") == "behind b in the queue, which needs 4 GPUs on one host (0 free on the best)"
    world.submit("d", gang(1, priority=2))
    assert why(world, "c").startswith("behind 2 jobs in the queue, first d, which needs 4 GPUs")
    assert why(world, "c").endswith("; its priority is 1, that of d 2")


# --- Backfill -----------------------------------------------------------------------------------------------------


def test_what_a_waiting_job_could_use_is_left_to_it() -> None:
    world = World(hosts=2)
    world.submit("a", gang(1))
    world.submit("b", gang(2))
    assert not placed(world.submit("c", gang(1, gpus=1))), "host-1 is free, and b needs all of it"
    assert placed(finish(world, "a")) == ["b placed g1 on host-0 host-1"]


def test_job_behind_starts_on_hosts_that_the_waiting_one_cannot_use() -> None:
    world = World(hosts=2)
    world.join("small", inventory(2, name="small"))
    world.submit("a", gang(1))
    world.submit("b", gang(2))
    assert placed(world.submit("c", gang(1, gpus=2))) == ["c placed g1 on small"]


def test_job_without_gpus_starts_beside_what_the_waiting_one_needs() -> None:
    """Each host has 16 cores and 4 GPUs; b could need 12 of the cores, for four workers of one GPU and 3 cores."""
    world = World(hosts=1)
    pool = Pool(4, Task(("x",)), gpus=1, cpus=3)
    world.submit("a", gang(1, gpus=1))
    world.submit("b", Gang((pool,), success=SuccessPolicy.ALL))
    assert placed(world.submit("c", cpu(cpus=4))) == ["c placed g1 on host-0"]
    assert not placed(world.submit("d", cpu(cpus=1)))
    assert placed(finish(world, "a")) == ["b placed g1 on host-0 host-0 host-0 host-0"]


def test_job_that_waits_for_hosts_of_its_choice_holds_up_only_those() -> None:
    world = World(hosts=2)
    world.submit("a", gang(1, selector=HostSelector(hosts=frozenset({"host-0"}))))
    world.submit("b", gang(1, selector=HostSelector(hosts=frozenset({"host-0"}))))
    assert placed(world.submit("c", gang(1))) == ["c placed g1 on host-1"]
    nowhere = gang(1, selector=HostSelector(hosts=frozenset({"gone"})))
    assert world.submit("d", nowhere)[1] == "d queued: no host that it may have takes work at present (gone)"


def test_job_that_backs_off_holds_up_nobody() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, waits=False))
    world.submit("b", gang(1, waits=False))
    world.submit("c", gang(1))
    assert placed(finish(world, "a")) == ["c placed g1 on host-0"], "b is tried again in ten seconds only"


# --- Preemption ---------------------------------------------------------------------------------------------------


def test_spot_job_gives_way_to_another_at_the_head_and_waits_again_at_no_cost() -> None:
    world = World(hosts=1)
    world.submit("s", gang(1, strategy=SPOT, priority=3, retries=0))
    world.run("s")
    told = world.submit("b", gang(1, priority=3))
    assert told[:3] == [
        "b submitted",
        "s leaves to RETRY: PREEMPTED of job b",
        "b queued: needs 4 GPUs on one host (0 free on the best)",
    ]
    assert list(world.cluster.queue) == ["b", "s"]
    world.exit("s", 0, "STOPPED:15")
    assert placed(world.report("s", 0, "EMPTY")) == ["b placed g1 on host-0"]
    job = job_of(world, "s")
    assert (job.state, job.last_end) == (JobState.QUEUED, EndReason.PREEMPTED)
    assert (job.budgets.spent.job_retries, job.budgets.spent.failures) == (0, 0)
    assert placed(finish(world, "b")) == ["s placed g2 on host-0"]
    assert [(r.end_reason, r.recover) for r in job.recoveries] == [(EndReason.PREEMPTED, Recover.JOB_RESCHEDULE)]


def test_no_more_is_preempted_than_is_needed_and_the_youngest_first() -> None:
    world = World(hosts=4)
    for name in ("s0", "s1", "s2", "s3"):
        world.submit(name, gang(1, strategy=SPOT))
        world.run(name)
        world.wait(1)
    told = world.submit("b", gang(2))
    assert [words for words in told if "PREEMPTED" in words] == [
        "s3 leaves to RETRY: PREEMPTED of job b",
        "s2 leaves to RETRY: PREEMPTED of job b",
    ]
    # While they stop, another look at the queue takes no third one.
    assert not any("PREEMPTED" in words for words in world.beat("host-0") + world.submit("c", gang(1)))


def test_one_that_is_enough_goes_rather_than_two_younger_ones() -> None:
    world = World(hosts=2)
    world.submit("big", gang(1, strategy=SPOT))
    world.submit("keeps", gang(1, gpus=2))
    for name in ("s1", "s2"):
        world.submit(name, gang(1, gpus=1, strategy=SPOT))
    told = world.submit("b", gang(1))
    assert [words for words in told if "PREEMPTED" in words] == ["big leaves to RETRY: PREEMPTED of job b"]


def test_nobody_is_preempted_in_vain_nor_by_spot_nor_by_a_lower_priority() -> None:
    world = World(hosts=2)
    world.submit("a", gang(1))
    world.submit("s", gang(1, strategy=SPOT, priority=2))
    for what in (gang(2), gang(1, strategy=SPOT, priority=2), gang(1, priority=1)):
        name = f"b{len(world.cluster.jobs)}"
        assert not any("PREEMPTED" in words for words in world.submit(name, what))
        world.cancel(name)
    assert job_of(world, "s").vacating is None


def test_preempted_job_is_not_first_after_a_restart_of_the_controller_either() -> None:
    world = World(hosts=1)
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    world.submit("b", gang(1))
    world.restart_controller()
    assert list(world.cluster.queue) == ["b", "s"]


# --- Waited enough ------------------------------------------------------------------------------------------------


def test_job_that_waits_too_long_expires_and_says_what_it_waited_for() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.submit("b", gang(1, max_wait_s=600.0))
    assert world.wait(599, beating=["host-0"]) == []
    assert world.wait(2, beating=["host-0"]) == ["b ending EXPIRED", "b ended EXPIRED"]
    error = job_of(world, "b").error
    assert error is not None
    assert error.code == 4
    assert error.message == (
        "The job waited 10 min for hosts, as long as it may: needs 4 GPUs on one host (0 free on the best)."
    )


def test_job_that_may_wait_for_ever_does_and_one_that_was_placed_never_expires() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, max_wait_s=10.0, timeout_s=1e9))
    world.submit("b", gang(1, max_wait_s=0.0))
    world.run("a")
    told = world.wait(500_000)
    assert not any("EXPIRED" in words for words in told)
    assert states(world) == {"a": "RUNNING", "b": "QUEUED"}


def test_time_that_the_controller_is_down_counts_as_waiting() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.submit("b", gang(1, max_wait_s=600.0))
    world.wait(300)
    world.restart_controller(down_s=200)
    assert "b ending EXPIRED" not in world.wait(99)
    assert "b ending EXPIRED" in world.wait(2)


def test_wait_of_a_retried_job_counts_from_its_failure() -> None:
    world = World(hosts=2)
    world.submit("a", gang(retries=1, max_worker_restarts=0, max_wait_s=600.0))
    world.run("a")
    world.wait(5000, beating=["host-0", "host-1"])
    world.cordon("host-1")
    world.exit("a", 1, 7)
    world.exit("a", 0, "STOPPED:15")
    world.empty("a")
    assert states(world) == {"a": "QUEUED"}
    assert world.wait(598, beating=["host-0", "host-1"]) == []
    assert world.wait(3, beating=["host-0", "host-1"]) == ["a ending EXPIRED", "a ended EXPIRED", *FORGETS]
    assert not any(host.allocations for host in world.cluster.hosts.values())


FORGETS = ["> host-0 FORGET a w0 g1", "> host-1 FORGET a w1 g1"]


@pytest.mark.parametrize("restarted", [False, True])
def test_job_that_does_not_wait_is_tried_three_times(restarted: bool) -> None:
    world = World(hosts=1, policies=policies())
    world.submit("a", gang(1))
    lack = "needs 4 GPUs on one host (0 free on the best)"
    assert world.submit("b", gang(1, waits=False))[1:] == [f"b no room at try 1: {lack}", "> reply b"]
    assert why(world, "b").endswith(lack)
    assert world.wait(9.5, beating=["host-0"]) == []
    if restarted:
        world.restart_controller(down_s=0.1)
        world.join("host-0", places=[world.place("a", 0, "RUNNING")])
        assert job_of(world, "b").placement_attempts == 1, "hosts get time to say hello"
        world.wait(15, beating=["host-0"])
    else:
        assert world.wait(1, beating=["host-0"]) == [f"b no room at try 2: {lack}"]
    assert job_of(world, "b").placement_attempts == 2
    assert world.wait(19, beating=["host-0"]) == []
    assert world.wait(1.5, beating=["host-0"]) == ["b ending FAILED", "b ended FAILED"]
    error = job_of(world, "b").error
    assert error is not None
    assert error.code == 8
    assert error.message == (
        f"Resources are insufficient in cluster lab: {lack}."
        " Try again later, or ask for less or for a different accelerator."
    )


def test_job_that_does_not_wait_starts_when_there_is_room_at_its_next_try() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.submit("b", gang(1, waits=False))
    assert placed(finish(world, "a")) == []
    assert placed(world.wait(10, beating=["host-0"])) == ["b placed g1 on host-0"]
    assert job_of(world, "b").placement_attempts == 0


def test_job_that_is_about_to_pause_does_not_give_way_as_well() -> None:
    """Else it would be queued again, though its user wants it paused."""
    world = World(hosts=1)
    world.submit("s", gang(1, strategy=SPOT, warning=WarningSignal(10, 60.0)))
    world.run("s")
    assert world.pause("s")[0] == "s to pause"
    told = world.submit("b", gang(1))
    assert not any("PREEMPTED" in words for words in told)
    world.wait(61, beating=["host-0"])
    world.exit("s", 0, "STOPPED:15")
    assert placed(world.report("s", 0, "EMPTY")) == ["b placed g1 on host-0"]
    assert states(world) == {"s": "PAUSED", "b": "PENDING"}
