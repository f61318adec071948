"""Faults that users inject: on record before they are there, allowed by project, and no sign of a bad host."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World

from holdfast.errors import Denied, InvalidInput, NotFound, WrongState
from holdfast_controller.core.model.injection import AFTERMATH_S, Fault
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

Lines = list[str]


def world_of(*projects: str) -> World:
    """Two hosts, and job ``a`` of two workers running on them."""
    made = World(hosts=2, policies=Policies(injection_projects=frozenset(projects)))
    made.submit("a")
    made.run("a")
    return made


def inject(
    world: World, fault: Fault = Fault.KILL, rank: int = 1, for_s: float = 0.0, generation: int = 1
) -> list[str]:
    return world.step(st.InjectionAsked(7, "ann", "a", generation, rank, fault, for_s, 0))


def crash(world: World, generation: int) -> list[str]:
    """Rank 1 ends by SIGSEGV, which may be its host's fault; what follows is run until all ranks run again."""
    said = world.exit("a", 1, "SIGNALED:11", generation)
    world.exit("a", 0, "STOPPED:15", generation)
    return said


def test_a_fault_is_on_record_before_the_host_is_told(world: World) -> None:
    assert inject(world) == ["a KILL of workerpool1-0 rank 1 by ann", "> reply a"]
    assert world.step(st.InjectionFailed(8, "a", 1, 1, "the rank has ended")) == [
        "a no fault in workerpool1-0 rank 1: the rank has ended",
        "> reply a",
    ]
    assert world.cluster.jobs["a"].injections == []


@pytest.fixture
def world() -> World:
    return world_of("default")


def test_what_follows_is_marked_and_no_host_is_suspected(world: World) -> None:
    inject(world)
    crash(world, 1)
    job = world.cluster.jobs["a"]
    assert job.recoveries[-1].injected and job.budgets.suspected == {}
    world.launch("a")
    crash(world, 2)
    assert not job.recoveries[-1].injected and job.budgets.suspected == {"host-1": 1}


def test_a_failure_long_after_a_fault_is_none_of_it(world: World) -> None:
    inject(world, Fault.SLOW, for_s=30.0)
    world.wait(AFTERMATH_S + 31, beating=("host-0", "host-1"))
    crash(world, 1)
    job = world.cluster.jobs["a"]
    assert not job.recoveries[-1].injected and job.budgets.suspected == {"host-1": 1}


def refusal(world: World) -> Exception:
    """The error that the newest refusal was answered with."""
    (last,) = [action for action in world.sent[-1:] if isinstance(action, act.Refuse)]
    return last.error


@pytest.mark.parametrize("projects", [(), ("others",)])
def test_a_project_that_the_admin_has_not_named_has_none(projects: tuple[str, ...]) -> None:
    world = world_of(*projects)
    inject(world)
    assert isinstance(refusal(world), Denied) and "injection_projects" in str(refusal(world))
    assert world.cluster.jobs["a"].injections == []


def test_a_star_allows_all_projects() -> None:
    assert inject(world_of("*"))[0] == "a KILL of workerpool1-0 rank 1 by ann"


def test_what_does_not_run_takes_no_fault(world: World) -> None:
    inject(world, rank=9)
    assert isinstance(refusal(world), InvalidInput) and "ranks are 0 to 1" in str(refusal(world))
    inject(world, generation=2)
    assert isinstance(refusal(world), WrongState) and "restarted just now" in str(refusal(world))
    world.exit("a", 1, 7)
    inject(world)
    assert isinstance(refusal(world), WrongState) and "is not running" in str(refusal(world))
    world.step(st.InjectionAsked(7, "ann", "b", 1, 1, Fault.KILL, 0.0, 0))
    assert isinstance(refusal(world), NotFound)
