"""Sessions that break, hosts that fall silent, reboot, lose their records, and return."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang, inventory

from holdfast_controller.core.model.hosts.host import Liveness
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.commands import HostBeat, HostDisconnected, WorkerReported


@pytest.fixture
def world() -> World:
    """Four hosts, and job ``a`` of two workers running on the first two."""
    made = World(hosts=4)
    made.submit("a")
    made.run("a")
    return made


def test_newer_session_closes_the_older_one_and_hears_everything_again(world: World) -> None:
    assert world.join("host-0", places=[world.place("a", 0, "RUNNING")]) == [
        "> host-0 close",
        "> host-0 welcome 1",
        "> host-0 RUN a w0 g1",
    ]


def test_stale_session_is_not_listened_to(world: World) -> None:
    old = world.sessions["host-0"]
    world.join("host-0", places=[world.place("a", 0, "RUNNING")])
    world.wait(10)
    assert world.exit("a", 0, 7, session=old) == []
    assert world.step(WorkerReported("host-0", old, world.place("a", 0, "STUCK"))) == []
    assert world.step(HostBeat("host-0", old, inventory(8))) == []
    assert world.cluster.presence["host-0"].last_seen == world.mono - 10
    assert world.step(HostDisconnected("host-0", old)) == []
    assert world.cluster.presence["host-0"].session == world.sessions["host-0"]


@pytest.mark.parametrize(
    ("before", "phase"), [("pending", "PREPARE"), ("prepared", "PREPARE"), ("launched", "RUN"), ("running", "RUN")]
)
def test_reconnecting_sends_the_desired_state_again(before: str, phase: str) -> None:
    world = World(hosts=2)
    world.submit("a")
    found = "PREPARING"
    if before == "prepared":
        world.report("a", 0, "PREPARED")
        found = "PREPARED"
    elif before == "launched":
        world.launch("a")
        found = "PREPARED"
    elif before == "running":
        world.run("a")
        found = "RUNNING"
    world.hang_up("host-0")
    told = world.join("host-0", places=[world.place("a", 0, found)])
    assert told == ["> host-0 welcome 1", f"> host-0 {phase} a w0 g1"]


def test_gang_restarts_while_a_host_is_away_and_goes_on_when_it_is_back(world: World) -> None:
    world.hang_up("host-1")
    assert world.exit("a", 0, 7) == [
        "a exit g1 r0 NONZERO_EXIT 7",
        "a restarts as g2: NONZERO_EXIT of workerpool0-0 rank 0, w0 pays",
        "> host-0 ack",
        "> host-0 PREPARE a w0 g2",
    ]
    assert world.report("a", 0, "PREPARED") == []
    assert world.join("host-1", places=[world.place("a", 1, "RUNNING", 1)]) == [
        "> host-1 welcome 1",
        "> host-1 PREPARE a w1 g2",
    ]
    assert world.exit("a", 1, "STOPPED:15", 1) == ["a exit g1 r1 STOPPED signal 15", "> host-1 ack"]
    assert world.report("a", 1, "PREPARED")[0] == "a launched g2"


def test_job_cancelled_while_a_host_is_away_is_stopped_there_on_return(world: World) -> None:
    world.hang_up("host-1")
    assert world.cancel("a")[2:] == ["> reply a", "> host-0 STOP a w0 g1"]
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert world.join("host-1", places=[world.place("a", 1, "RUNNING")]) == [
        "> host-1 welcome 1",
        "> host-1 STOP a w1 g1",
    ]
    world.exit("a", 1, "STOPPED:15")
    assert world.report("a", 1, "EMPTY")[:2] == ["a emptied w1", "a ended CANCELLED"]


def test_empty_place_in_a_hello_waits_for_the_exits_that_follow_it(world: World) -> None:
    world.hang_up("host-1")
    world.cancel("a")
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert world.join("host-1", places=[world.place("a", 1, "EMPTY")]) == [
        "> host-1 welcome 1",
        "> host-1 STOP a w1 g1",
    ]
    assert world.exit("a", 1, "SIGNALED:11") == ["a exit g1 r1 SIGNALED signal 11", "> host-1 ack"]
    assert world.report("a", 1, "EMPTY") == [
        "a emptied w1",
        "a ended CANCELLED",
        "> host-0 FORGET a w0 g1",
        "> host-1 FORGET a w1 g1",
    ]


def test_worker_that_ended_while_its_agent_was_away_is_reported_on_return() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.run("a")
    world.hang_up("host-0")
    assert world.join("host-0", places=[world.place("a", 0, "EMPTY")]) == [
        "> host-0 welcome 1",
        "> host-0 RUN a w0 g1",
    ]
    assert world.report("a", 0, "EMPTY") == []
    assert world.exit("a", 0)[:2] == ["a exit g1 r0 COMPLETED 0", "a ending SUCCEEDED"]


def test_host_without_a_record_of_a_launched_worker_has_lost_it(world: World) -> None:
    assert world.join("host-1") == [
        "a exit g1 r1 LOST_SHIM_DIED",
        "a restarts as g2: LOST_SHIM_DIED of workerpool1-0 rank 1, free",
        "> host-1 close",
        "> host-1 welcome 1",
        "> host-1 PREPARE a w1 g2",
        "> host-0 PREPARE a w0 g2",
    ]


def test_host_that_rebooted_has_lost_it_to_the_reboot() -> None:
    world = World(hosts=2)
    world.submit("a", gang(retries=3))
    world.run("a")
    world.hang_up("host-1")
    assert world.join("host-1", boot="boot-2")[:3] == [
        "host-1 joined",
        "a exit g1 r1 LOST_REBOOT",
        "a leaves to RETRY: LOST_REBOOT of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
    ]
    # Nothing of it is left there, and no other host is free.
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    assert world.report("a", 0, "EMPTY")[:2] == ["a emptied w0", "a placed g2 on host-0 host-1"]


def test_all_ranks_of_a_worker_that_vanished_are_accounted_for() -> None:
    world = World(hosts=2)
    world.submit("a", gang(processes=2))
    world.run("a")
    world.exit("a", 3)
    assert world.join("host-1")[:2] == [
        "a exit g1 r2 LOST_SHIM_DIED",
        "a restarts as g2: LOST_SHIM_DIED of workerpool1-0 rank 2, free",
    ]
    world.exit("a", 0, "STOPPED:15", 1)
    world.exit("a", 1, "STOPPED:15", 1)
    world.run("a")
    assert world.join("host-0")[:3] == [
        "a exit g2 r0 LOST_SHIM_DIED",
        "a exit g2 r1 LOST_SHIM_DIED",
        "a restarts as g3: LOST_SHIM_DIED of workerpool0-0 rank 0, free",
    ]


def test_worker_that_vanished_while_it_was_being_stopped_is_accounted_for(world: World) -> None:
    world.exit("a", 0, 7)
    assert world.join("host-1") == [
        "a exit g1 r1 LOST_SHIM_DIED",
        "> host-1 close",
        "> host-1 welcome 1",
        "> host-1 PREPARE a w1 g2",
    ]
    world.launch("a")
    assert world.cluster.jobs["a"].budgets.spent.worker_restarts == {0: 1}


def test_worker_that_vanished_from_an_ending_job_is_accounted_for(world: World) -> None:
    world.cancel("a")
    assert world.join("host-1", boot="boot-2") == [
        "host-1 joined",
        "a exit g1 r1 LOST_REBOOT",
        "> host-1 close",
        "> host-1 welcome 1",
        "> host-1 STOP a w1 g1",
    ]


def test_host_without_a_record_of_a_place_that_was_never_launched_is_asked_again() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.report("a", 0, "PREPARED")
    assert world.join("host-0") == ["> host-0 close", "> host-0 welcome 1", "> host-0 PREPARE a w0 g1"]
    assert world.report("a", 1, "PREPARED")[0] == "a launched g1"
    assert world.cluster.jobs["a"].exits == {}


def test_silent_host_is_suspect_then_lost_and_its_work_runs_on(world: World) -> None:
    others = ["host-1", "host-2", "host-3"]
    assert world.wait(14, beating=others) == []
    assert world.wait(1, beating=others) == ["> note host.silent host-0 SUSPECT"]
    assert world.wait(50, beating=others) == []
    assert world.wait(1, beating=others) == ["host-0 lost", "> note host.silent host-0 LOST"]
    assert world.wait(10_000, beating=others) == []
    assert world.cluster.jobs["a"].state is JobState.RUNNING
    assert world.beat("host-0") == ["host-0 returned"]
    assert world.cluster.presence["host-0"].liveness is Liveness.READY
    assert world.wait(15, beating=others) == ["> note host.silent host-0 SUSPECT"]


def test_suspect_host_takes_no_new_work() -> None:
    world = World(hosts=1)
    world.wait(20)
    assert world.submit("a", gang(1))[1] == "a queued: no host takes work at present"
    assert world.beat("host-0") == ["a placed g1 on host-0", "> host-0 PREPARE a w0 g1"]


def test_disconnected_host_takes_no_new_work() -> None:
    world = World(hosts=1)
    world.hang_up("host-0")
    assert world.submit("a", gang(1))[1] == "a queued: no host takes work at present"
    assert world.join("host-0")[0] == "a placed g1 on host-0"


def test_ending_job_does_not_wait_for_a_lost_host_whose_share_stays_withheld(world: World) -> None:
    others = ["host-0", "host-2", "host-3"]
    world.cancel("a")
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert world.wait(75, beating=others)[1:] == [
        "host-1 lost",
        "a exit g1 r1 LOST_HOST",
        "a ended CANCELLED",
        "> note host.silent host-1 LOST",
        "> host-0 FORGET a w0 g1",
        "> host-1 STOP a w1 g1",  # its session is silent, but may be open
    ]
    assert world.cluster.hosts["host-1"].allocations
    for number in range(3):
        assert f"b{number} placed" in world.submit(f"b{number}", gang(1))[1]
    assert "queued" in world.submit("c", gang(1))[1]
    assert world.join("host-1", places=[world.place("a", 1, "RUNNING")]) == [
        "host-1 returned",
        "> host-1 close",
        "> host-1 welcome 1",
        "> host-1 STOP a w1 g1",
    ]
    assert world.exit("a", 1, "STOPPED:15") == ["a late exit g1 r1 STOPPED signal 15", "> host-1 ack"]
    assert world.report("a", 1, "EMPTY") == [
        "a emptied w1",
        "c placed g1 on host-1",
        "> host-1 FORGET a w1 g1",
        "> host-1 PREPARE c w0 g1",
    ]
    assert world.cluster.jobs["a"].state is JobState.CANCELLED


def test_job_that_ends_after_its_host_was_lost_ends_at_once(world: World) -> None:
    others = ["host-0", "host-2", "host-3"]
    world.wait(80, beating=others)
    world.cancel("a")
    world.exit("a", 0, "STOPPED:15")
    assert world.report("a", 0, "EMPTY") == [
        "a emptied w0",
        "a exit g1 r1 LOST_HOST",
        "a ended CANCELLED",
        "> host-0 FORGET a w0 g1",
        "> host-1 STOP a w1 g1",
    ]


def test_ranks_of_every_generation_on_a_lost_host_are_accounted_for(world: World) -> None:
    world.exit("a", 0, 7)
    world.wait(80, beating=["host-0", "host-2", "host-3"])
    world.cancel("a")
    assert world.report("a", 0, "EMPTY")[:3] == ["a emptied w0", "a exit g1 r1 LOST_HOST", "a ended CANCELLED"]


def test_start_seen_on_a_lost_host_after_the_end_changes_nothing() -> None:
    world = World(hosts=3)
    world.submit("a", gang(1))
    world.launch("a")
    world.cancel("a")
    world.wait(80, beating=["host-1", "host-2"])
    assert world.cluster.jobs["a"].state is JobState.CANCELLED
    assert world.join("host-0", places=[world.place("a", 0, "RUNNING")])[-1] == "> host-0 STOP a w0 g1"
    assert world.report("a", 0, "RUNNING") == []
    assert world.cluster.runtime == {}


def test_pending_job_says_what_becomes_of_it_and_leaves_a_lost_host_where_it_started_nothing() -> None:
    from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason

    world = World(hosts=4)
    world.submit("a", gang(retries=1))
    world.report("a", 1, "PREPARED")
    world.hang_up("host-0")
    assert (
        wait_reason(world.cluster, world.cluster.jobs["a"], []) == "being prepared on host-0 (host-0 not connected)"
    )
    told = world.wait(80, beating=["host-1", "host-2", "host-3"])
    assert told[1:5] == [
        "host-0 lost",
        "a leaves to RETRY: LOST_HOST of workerpool0-0 rank 0, keeps w1, not on host-0, HOST pays",
        "a fenced w0",
        "> note host.silent host-0 LOST",
    ]
    assert world.report("a", 1, "EMPTY")[1] == "a placed g2 on host-2 host-1"


def test_mass_silence_gives_nobody_up_until_it_is_over(world: World) -> None:
    told = world.wait(66, beating=["host-3"])
    assert told[:3] == [f"> note host.silent host-{n} SUSPECT" for n in range(3)]
    assert told[3:] == ["3 of 4 hosts silent", "> note host.mass_silence host-0, host-1, host-2 3"]
    # Recorded once, however long it lasts.
    assert world.wait(15, beating=["host-3"]) == ["> note host.mass_silence host-0, host-1, host-2 3"]
    world.beat("host-0")
    world.beat("host-1")
    # Now host-2 is silent alone, and the fault is its own.
    told = world.wait(15, beating=["host-0", "host-1", "host-3"])
    assert told == ["host-2 lost", "> note host.silent host-2 LOST"]
    world.wait(60, beating=["host-0", "host-1", "host-3"])
    assert "2 of 3 hosts silent" in world.wait(75, beating=["host-3"]), "and again once it was over"


def test_hosts_given_up_long_ago_do_not_hold_the_brake() -> None:
    world = World(hosts=5)
    world.wait(80, beating=["host-2", "host-3", "host-4"])
    assert [host.lost for host in world.cluster.hosts.values()] == [True, True, False, False, False]
    told = world.wait(80, beating=["host-3", "host-4"])
    assert "host-2 lost" in told


def test_single_host_is_given_up() -> None:
    world = World(hosts=1)
    assert world.wait(75) == [
        "> note host.silent host-0 SUSPECT",
        "host-0 lost",
        "> note host.silent host-0 LOST",
    ]


def test_released_place_is_forgotten_once_however_often_it_is_mentioned() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.run("a")
    world.exit("a", 0)
    told = world.report("a", 0, "EMPTY")
    messages = 0
    while "> host-0 FORGET a w0 g1" in told:
        messages += 1
        told = world.report("a", 0, "EMPTY")
    assert messages == 1
    world.hang_up("host-0")
    assert world.join("host-0", places=[world.place("a", 0, "EMPTY")]) == [
        "> host-0 welcome 0",
        "> host-0 FORGET a w0 g1",
    ]


def test_host_that_changes_its_address_is_reached_there_from_the_next_generation_on() -> None:
    from holdfast_controller.core.step.commands import HostConnected

    world = World(hosts=1)
    world.submit("a", gang(1))
    world.run("a")
    world.sessions["host-0"] = 99
    told = world.step(
        HostConnected(
            "host-0", 99, "192.168.1.1", "boot-1", "1", inventory(name="host-0"), (world.place("a", 0, "RUNNING"),)
        )
    )
    assert told[0] == "host-0 joined"
    world.exit("a", 0, 1)
    world.launch("a")
    rendezvous = world.cluster.jobs["a"].launch.rendezvous
    assert rendezvous is not None
    assert rendezvous.master_address == "192.168.1.1"
