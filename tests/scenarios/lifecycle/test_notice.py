"""Jobs that asked for a warning get it ahead of a preemption and of a host's shutdown, and have time to save."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.queue_stories import job_of, placed, states, why
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.step import commands as st

USR1 = 10


def preempted(before_s: float = 30.0, hosts: int = 1) -> tuple[World, list[str]]:
    """A SPOT job that asked for a warning runs, and another job needs its host; what that job's submission told."""
    world = World(hosts=hosts)
    world.submit("s", gang(hosts, strategy=Strategy.SPOT, warning=WarningSignal(USR1, before_s)))
    world.run("s")
    return world, world.submit("b", gang(1))


def shutdown(world: World, host: str) -> list[str]:
    return world.step(st.ShutdownAnnounced(host, world.sessions[host]))


def test_spot_job_is_warned_before_it_gives_way_and_stopped_when_its_notice_is_over() -> None:
    world, told = preempted()
    assert "s warned g1 of giving way to b" in told
    assert "> host-0 RUN s w0 g1 warned by 10" in told
    assert not any("PREEMPTED" in line for line in told)
    assert why(world, "s") == (
        "gives way to b: its ranks were warned, and it is placed again once they have ended or their notice is over"
    )
    assert world.wait(29, beating=list(world.sessions)) == []
    told = world.wait(1, beating=list(world.sessions))
    assert told[0].startswith("s leaves to RETRY: PREEMPTED of job b")
    world.exit("s", 0, "STOPPED:15")
    assert placed(world.report("s", 0, "EMPTY")) == ["b placed g1 on host-0"]
    job = job_of(world, "s")
    assert (job.state.name, job.budgets.spent.failures, job.budgets.spent.job_retries) == ("QUEUED", 0, 0)


@pytest.mark.parametrize("code", [0, 3])
def test_ranks_that_save_and_exit_give_way_at_once_at_no_cost(code: int) -> None:
    world, _ = preempted(hosts=2)
    assert world.exit("s", 1, code)[1:] == ["> host-1 ack"]
    told = world.exit("s", 0, code)
    assert told[1].startswith("s leaves to RETRY: PREEMPTED of job b")
    for worker in (0, 1):
        world.report("s", worker, "EMPTY")
    assert states(world) == {"s": "QUEUED", "b": "PENDING"}
    assert job_of(world, "s").budgets.spent.worker_restarts == {}


def test_notice_is_two_minutes_at_most() -> None:
    world, _ = preempted(before_s=3600.0)
    world.wait(119, beating=list(world.sessions))
    assert states(world)["s"] == "RUNNING"
    assert world.wait(1, beating=list(world.sessions))[0].startswith("s leaves to RETRY: PREEMPTED")


def test_job_under_notice_is_preempted_once_and_no_other_with_it() -> None:
    world = World(hosts=2)
    for name in ("s", "t"):
        world.submit(name, gang(1, strategy=Strategy.SPOT, warning=WarningSignal(USR1, 30.0)))
        world.run(name)
    world.submit("b", gang(1))
    world.cordon("host-0")
    world.uncordon("host-0")
    assert [job_of(world, name).leave is not None for name in ("s", "t")] == [False, True], "the youngest alone"


def test_notice_goes_on_from_where_it_was_after_a_restart_of_the_controller() -> None:
    world, _ = preempted()
    world.wait(10, beating=list(world.sessions))
    world.restart_controller(down_s=5)
    world.join("host-0", places=[world.place("s", 0, "RUNNING")])
    world.wait(14, beating=list(world.sessions))
    assert states(world)["s"] == "RUNNING"
    assert world.wait(1, beating=list(world.sessions))[0].startswith("s leaves to RETRY: PREEMPTED")


@pytest.mark.parametrize("how", ["cancel", "pause"])
def test_what_is_asked_meanwhile_goes_first(how: str) -> None:
    world, _ = preempted()
    told = world.cancel("s") if how == "cancel" else world.pause("s")
    world.wait(60, beating=list(world.sessions))
    world.exit("s", 0, "STOPPED:15")
    assert placed(world.report("s", 0, "EMPTY")) == ["b placed g1 on host-0"], told
    assert states(world)["s"] == {"cancel": "CANCELLED", "pause": "PAUSED"}[how]


def test_job_without_a_warning_gives_way_at_once() -> None:
    world = World(hosts=1)
    world.submit("s", gang(1, strategy=Strategy.SPOT))
    world.run("s")
    assert any(line.startswith("s leaves to RETRY: PREEMPTED") for line in world.submit("b", gang(1)))


def test_host_that_shuts_down_has_every_rank_of_the_gang_warned_first() -> None:
    world = World(hosts=3)
    world.submit("a", gang(2, warning=WarningSignal(USR1, 30.0)))
    world.run("a")
    assert shutdown(world, "host-1") == [
        "host-1 shutdownbegan",
        "a warned g1 of the shutdown of host-1",
        "> host-0 RUN a w0 g1 warned by 10",
        "> host-1 RUN a w1 g1 warned by 10",
    ]
    assert shutdown(world, "host-1") == []
    assert why(world, "a").startswith("host host-1 shuts down: its ranks were warned")
    # Those on the host are stopped by its agent, a moment before the controller says so.
    assert world.exit("a", 1, "STOPPED:15") == ["a exit g1 r1 STOPPED signal 15", "> host-1 ack"]
    told = world.wait(30, beating=list(world.sessions))
    assert told[0] == "a leaves to RETRY: HOST_SHUTDOWN of host host-1, keeps w0, not on host-1"
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    assert placed(world.report("a", 0, "EMPTY")) == ["a placed g2 on host-0 host-2"]
    assert job_of(world, "a").last_end is EndReason.HOST_SHUTDOWN


def test_host_that_is_gone_before_the_notice_is_over_keeps_no_job() -> None:
    world = World(hosts=3)
    world.submit("a", gang(2, warning=WarningSignal(USR1, 30.0)))
    world.run("a")
    shutdown(world, "host-1")
    world.exit("a", 1, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    world.hang_up("host-1")
    world.wait(30, beating=["host-0", "host-2"])
    world.exit("a", 0, "STOPPED:15")
    assert placed(world.report("a", 0, "EMPTY")) == ["a placed g2 on host-0 host-2"]


def test_a_host_that_shuts_down_within_the_notice_of_a_preemption_is_not_waited_for() -> None:
    """It says only once that nothing is left there."""
    world, _ = preempted(before_s=60.0, hosts=2)
    assert shutdown(world, "host-1") == ["host-1 shutdownbegan"]
    world.exit("s", 1, "STOPPED:15")
    told = world.report("s", 1, "EMPTY")
    assert told[0].startswith("s leaves to RETRY: PREEMPTED of job b") and "s emptied w1" in told
    world.hang_up("host-1")
    world.exit("s", 0, "STOPPED:15")
    assert placed(world.report("s", 0, "EMPTY")) == ["b placed g1 on host-0"]
    assert "its ranks may run on there" not in why(world, "s")


def test_a_host_that_shuts_down_within_the_notice_of_a_pause_is_not_waited_for() -> None:
    world = World(hosts=2)
    world.submit("s", gang(warning=WarningSignal(USR1, 60.0)))
    world.run("s")
    shutdown(world, "host-1")
    assert world.pause("s") == ["s to pause", "> reply s"]
    world.exit("s", 1, "STOPPED:15")
    assert world.report("s", 1, "EMPTY")[:2] == ["s leaves to PAUSE: PAUSED", "s emptied w1"]
    world.hang_up("host-1")
    world.exit("s", 0, "STOPPED:15")
    assert "s paused" in world.report("s", 0, "EMPTY")


def asked_to_pause(world: World) -> None:
    world.pause("s")


def to_give_way(world: World) -> None:
    world.submit("b", gang(1))


def to_leave_a_drained_host(world: World) -> None:
    world.drain("host-0", 60.0)


@pytest.mark.parametrize("how", [asked_to_pause, to_give_way, to_leave_a_drained_host])
def test_a_warned_rank_s_exit_is_no_failure_after_a_restart_of_the_controller(how: Callable[[World], None]) -> None:
    world = World(hosts=2)
    world.submit("s", gang(strategy=Strategy.SPOT, warning=WarningSignal(USR1, 60.0)))
    world.run("s")
    how(world)
    world.exit("s", 1, 3)
    world.restart_controller()
    for worker in (0, 1):
        world.join(f"host-{worker}", places=[world.place("s", worker, "RUNNING")])
    assert world.wait(20, beating=world.sessions) == []
    told = world.exit("s", 0, 0)
    assert told[1].startswith("s leaves to ") and "pays" not in told[1]
    assert job_of(world, "s").budgets.spent.worker_restarts == {}
