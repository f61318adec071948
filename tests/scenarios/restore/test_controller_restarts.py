"""The controller dies and starts again, at every stage of a job: nothing is doubled, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast_controller.core.model.job_state import JobState


def placed(world: World) -> None:
    world.submit("a")


def half_prepared(world: World) -> None:
    world.submit("a")
    world.report("a", 0, "PREPARED")


def launched(world: World) -> None:
    world.submit("a")
    world.launch("a")


def half_running(world: World) -> None:
    launched(world)
    world.report("a", 0, "RUNNING")


def running(world: World) -> None:
    world.submit("a")
    world.run("a")


def restarting(world: World) -> None:
    running(world)
    world.exit("a", 1, 7)


def ending(world: World) -> None:
    running(world)
    world.cancel("a")


def half_emptied(world: World) -> None:
    ending(world)
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")


@pytest.mark.parametrize(
    ("before", "at_hosts", "sent"),
    [
        (placed, ("PREPARING", "PREPARING"), ("PREPARE", "PREPARE")),
        (half_prepared, ("PREPARED", "PREPARING"), ("PREPARE", "PREPARE")),
        (launched, ("PREPARED", "PREPARED"), ("RUN", "RUN")),
        (half_running, ("RUNNING", "PREPARED"), ("RUN", "RUN")),
        (running, ("RUNNING", "RUNNING"), ("RUN", "RUN")),
        (ending, ("RUNNING", "STOPPING"), ("STOP", "STOP")),
        (half_emptied, ("EMPTY", "STOPPING"), (None, "STOP")),
    ],
)
def test_each_host_hears_again_what_is_wanted(
    before: Callable[[World], None], at_hosts: tuple[str, str], sent: tuple[str | None, str]
) -> None:
    world = World(hosts=2)
    before(world)
    world.restart_controller()
    for number in (0, 1):
        told = world.join(f"host-{number}", places=[world.place("a", number, at_hosts[number])])
        phase = sent[number]  # None where the worker holds nothing any more
        orders = [] if phase is None else [f"> host-{number} {phase} a w{number} g1"]
        assert told == [f"> host-{number} welcome {len(orders)}", *orders]


@pytest.mark.parametrize("before", [placed, half_prepared, launched, half_running, running, restarting])
def test_job_goes_on_to_its_end(before: Callable[[World], None]) -> None:
    world = World(hosts=2)
    before(world)
    world.restart_controller()
    job = world.cluster.jobs["a"]
    found = "RUNNING" if job.launched or job.recoveries else "PREPARING"
    for number in (0, 1):
        world.join(f"host-{number}", places=[world.place("a", number, found, 1)])
    if before is restarting:
        world.exit("a", 0, "STOPPED:15", 1)
    if not job.launched:
        world.launch("a")
    world.report("a", 0, "RUNNING")
    world.report("a", 1, "RUNNING")
    assert world.state("a") is JobState.RUNNING
    launches = [event for event in world.log if type(event).__name__ == "GangLaunched"]
    assert len(launches) == job.generation
    world.exit("a", 0)
    world.exit("a", 1)
    world.empty("a")
    assert world.state("a") is JobState.SUCCEEDED


def test_first_assignments_carry_the_new_epoch() -> None:
    from holdfast_controller.core.step.assignment import desired

    world = World(hosts=2)
    running(world)
    world.restart_controller()
    assert desired(world.cluster, world.cluster.jobs["a"], 0, 60.0).epoch == 2


def test_preparation_that_one_host_reported_before_is_asked_for_again() -> None:
    world = World(hosts=2)
    half_prepared(world)
    world.restart_controller()
    world.join("host-0", places=[world.place("a", 0, "PREPARED")])
    world.join("host-1", places=[world.place("a", 1, "PREPARING")])
    assert world.report("a", 1, "PREPARED") == []
    assert world.report("a", 0, "PREPARED")[0] == "a launched g1"


def test_every_lease_gets_a_full_term() -> None:
    world = World(hosts=3)
    running(world)
    world.wait(70, beating=["host-2"])
    world.restart_controller(down_s=500)
    for number in (1, 2):
        places = [world.place("a", 1, "RUNNING")] if number == 1 else []
        world.join(f"host-{number}", places=places)
    assert world.wait(65, beating=["host-1", "host-2"]) == []
    assert world.wait(1, beating=["host-1", "host-2"]) == ["host-0 lost", "> note host.silent host-0 LOST"]


def test_host_that_was_lost_before_is_not_lost_again_and_may_return() -> None:
    world = World(hosts=3)
    running(world)
    world.wait(80, beating=["host-1", "host-2"])
    assert world.cluster.hosts["host-0"].lost
    world.restart_controller()
    world.join("host-1", places=[world.place("a", 1, "RUNNING")])
    world.join("host-2")
    assert world.wait(200, beating=["host-1", "host-2"]) == ["> note host.silent host-0 LOST"]
    assert world.join("host-0", places=[world.place("a", 0, "RUNNING")]) == [
        "host-0 returned",
        "> host-0 welcome 1",
        "> host-0 RUN a w0 g1",
    ]


def test_timeout_goes_on_from_where_it_was() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, timeout_s=100.0))
    world.run("a")
    world.wait(60, beating=["host-0"])
    world.restart_controller(down_s=10)
    world.join("host-0", places=[world.place("a", 0, "RUNNING")])
    assert world.wait(29, beating=["host-0"]) == []
    assert world.wait(1, beating=["host-0"]) == ["a ending FAILED", "> host-0 STOP a w0 g1"]


def test_timeout_that_passed_meanwhile_is_acted_on_at_once() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, timeout_s=100.0))
    world.run("a")
    world.restart_controller(down_s=500)
    assert world.wait(0) == ["a ending FAILED"]
    assert world.join("host-0", places=[world.place("a", 0, "RUNNING")])[-1] == "> host-0 STOP a w0 g1"


def test_end_grace_goes_on_from_where_it_was() -> None:
    world = World(hosts=2)
    world.submit("a", gang(success=SuccessPolicy.PRIMARY, end_grace_s=60.0))
    world.run("a")
    world.exit("a", 0)
    world.restart_controller(down_s=20)
    world.join("host-0", places=[world.place("a", 0, "EMPTY")])
    world.join("host-1", places=[world.place("a", 1, "RUNNING")])
    assert world.wait(39, beating=["host-0", "host-1"]) == []
    assert world.wait(1, beating=["host-0", "host-1"])[0] == "a ending SUCCEEDED"


def test_queue_keeps_its_order() -> None:
    world = World(hosts=1)
    for job in "abc":
        world.submit(job, gang(1))
    world.restart_controller()
    assert list(world.cluster.queue) == ["b", "c"]
    world.join("host-0", places=[world.place("a", 0, "PREPARED")])
    world.run("a")
    world.exit("a", 0)
    assert world.report("a", 0, "EMPTY")[2] == "b placed g1 on host-0"


def test_nothing_is_placed_on_hosts_that_have_not_come_back() -> None:
    world = World(hosts=1)
    world.restart_controller()
    assert world.submit("a", gang(1))[1] == "a queued: no host takes work at present"


def test_withheld_share_stays_withheld() -> None:
    world = World(hosts=2)
    world.submit("a", gang(1))
    world.run("a")
    world.cancel("a")
    world.wait(80, beating=["host-1"])
    assert world.cluster.jobs["a"].state is JobState.CANCELLED
    world.restart_controller()
    world.join("host-1")
    world.submit("b", gang(1))
    assert "queued" in world.submit("c", gang(1))[1]
    assert world.join("host-0", places=[world.place("a", 0, "RUNNING")])[-1] == "> host-0 STOP a w0 g1"
    assert world.report("a", 0, "EMPTY")[:2] == ["a emptied w0", "c placed g1 on host-0"]
