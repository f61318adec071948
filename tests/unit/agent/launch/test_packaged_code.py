"""Packaged code in the agent's decisions: where ranks find it, and preparations that take long."""

from __future__ import annotations

from dataclasses import replace

from holdfast._session.assignment import Assignment, Launch, PackagedCode, Phase, Rendezvous, Task
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, plan_ranks, search_path
from holdfast_agent.core.model.launch import PreparedCode
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor

KEY = WorkerId("job", "workerpool0-0")
FACTS = HostFacts("host-0", "/logs", "/scratch", WorkerUser("ann", "/home/ann", "/bin/sh"), 8)
CODE = PreparedCode("/scratch/job/package-ab-1", "/cache/env")
PROCESS = Task(("python3", "train.py"), code=PackagedCode("ab" * 32, ("numpy",)))
LAUNCH = Launch(PROCESS, 0, 1, 1, rendezvous=Rendezvous("10.0.0.1", 1, "s", (("10.0.0.1:2",),)))
WISH = Assignment(1, KEY, 1, 1, Phase.PREPARE, launch=LAUNCH)


def env_of(process: Task, code: PreparedCode | None = CODE) -> tuple[dict[str, str], str]:
    desired = replace(WISH, phase=Phase.RUN, launch=replace(LAUNCH, task=process))
    [rank] = plan_ranks(desired, FACTS, code=code)
    return rank.env, rank.cwd


def test_ranks_start_in_the_copy_with_the_environment_first_on_their_path() -> None:
    env, cwd = env_of(replace(PROCESS, env=(("PATH", "/mine:$(PATH)"), ("VIRTUAL_ENV", "/home/ann/venv"))))
    assert cwd == env["HOLDFAST_PACKAGE_DIR"] == CODE.directory
    assert env["VIRTUAL_ENV"] == CODE.environment
    assert env["PATH"].startswith("/cache/env/bin:/mine:/usr/local/sbin:")
    assert search_path(LAUNCH, FACTS, CODE).startswith("/cache/env/bin:")


def test_a_working_directory_of_the_users_own_goes_before_the_copy() -> None:
    env, cwd = env_of(replace(PROCESS, working_directory="/data"))
    assert (cwd, env["HOLDFAST_PACKAGE_DIR"]) == ("/data", CODE.directory)


def test_without_code_nothing_is_said_of_it() -> None:
    env, cwd = env_of(PROCESS, None)
    assert cwd == "/scratch/job"
    assert "HOLDFAST_PACKAGE_DIR" not in env and "VIRTUAL_ENV" not in env
    env, cwd = env_of(PROCESS, PreparedCode(environment="/cache/env"))
    assert cwd == "/scratch/job"
    assert "HOLDFAST_PACKAGE_DIR" not in env


def reactor() -> Reactor:
    made = Reactor(FACTS)
    made.step(ev.Dialled(), 0)
    made.step(ev.Welcomed(1), 0)
    return made


def states(actions: list[act.Action]) -> list[tuple[str, str]]:
    return [(a.report.state.name, a.report.message) for a in actions if isinstance(a, act.SendReport)]


def test_what_takes_long_is_reported_once() -> None:
    made = reactor()
    made.step(ev.Assigned(WISH), 1)
    told = made.step(ev.PreparationTakesLong(KEY, 1, "installing requirements"), 2)
    assert states(told) == [("PREPARING", "installing requirements")]
    assert made.step(ev.PreparationTakesLong(KEY, 1, "installing requirements"), 3) == []
    assert made.step(ev.PreparationTakesLong(KEY, 2, "of another generation"), 3) == []
    prepared = made.step(ev.WorkerPrepared(KEY, 1, 5, 6, 7, code=CODE), 4)
    assert states(prepared) == [("PREPARED", "")]
    [launch] = [
        action
        for action in made.step(ev.Assigned(replace(WISH, phase=Phase.RUN)), 5)
        if isinstance(action, act.LaunchRanks)
    ]
    assert launch.ranks[0].cwd == CODE.directory


def test_an_installation_is_called_off_when_the_job_is_to_stop() -> None:
    made = reactor()
    made.step(ev.Assigned(WISH), 1)
    made.step(ev.PreparationTakesLong(KEY, 1, "installing requirements"), 2)
    stopped = made.step(ev.Assigned(replace(WISH, phase=Phase.STOP, launch=None)), 3)
    assert act.AbandonPreparation(KEY, 1) in stopped
    ended = made.step(ev.PreparationFailed(KEY, 1, "called off"), 4)
    assert [state for state, _ in states(ended)][-1] == "EMPTY"


def test_one_that_has_begun_after_the_job_was_to_stop_is_called_off_too() -> None:
    made = reactor()
    made.step(ev.Assigned(WISH), 1)
    assert not any(
        isinstance(action, act.AbandonPreparation)
        for action in made.step(ev.Assigned(replace(WISH, phase=Phase.STOP, launch=None)), 2)
    )
    told = made.step(ev.PreparationTakesLong(KEY, 1, "fetching the packaged code"), 3)
    assert act.AbandonPreparation(KEY, 1) in told
