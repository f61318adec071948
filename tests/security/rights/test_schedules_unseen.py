"""A schedule has no more rights than its owner, when it is made and at each run."""

from __future__ import annotations

import dataclasses

from tests.scenarios.scheduling.test_schedules import HOUR, asked, jobs, refusal, world
from tests.scenarios.world import World, gang

from holdfast._session.assignment import SecretVariable, Task
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.step.access_commands import (
    RoleAsked,
    SecretGiven,
    SecretRemovalAsked,
    UserRemovalAsked,
)
from holdfast_controller.core.step.schedule_commands import ScheduleAsked


def after(*names: str, owner: str = "bob", unseen: frozenset[str] = frozenset()) -> ScheduleAsked:
    one = asked(owner=owner)
    what = gang(1, after=tuple(map(Dependency, names)))
    return dataclasses.replace(one, plan=dataclasses.replace(one.plan, gang=what), unseen=unseen)


def with_users() -> World:
    on = world()
    on.step(RoleAsked(7, "ann", "bob", "default", Role.USER))
    on.submit("hidden", gang(1, project="secret"))
    on.submit("seen", gang(1))
    return on


def left_out(on: World) -> str:
    return on.cluster.schedules["default/tick"].left_out


def test_one_after_a_job_of_a_hidden_project_is_refused_as_one_after_a_job_that_is_not_there() -> None:
    on = with_users()
    hidden = refusal(on, after("seen", "hidden", unseen=frozenset({"hidden"})))
    assert "there is no job 'hidden'" in hidden
    assert refusal(on, after("seen", "absent")) == hidden.replace("hidden", "absent")
    on.step(after("seen"))
    assert on.cluster.schedules


def test_a_run_of_one_that_was_accepted_earlier_is_left_out_without_a_word_about_that_job() -> None:
    on = with_users()
    on.step(after("hidden"))
    on.wait(HOUR)
    assert jobs(on) == []
    assert "there is no job 'hidden'" in left_out(on)
    assert not any("waits for hidden" in said for said in on.sentences)


def test_rights_that_are_taken_away_count_at_the_next_run() -> None:
    on = with_users()
    on.step(RoleAsked(7, "ann", "bob", "secret", Role.VIEWER))
    on.step(after("hidden"))
    on.wait(HOUR)
    assert len(jobs(on)) == 1
    on.step(UserRemovalAsked(7, "ann", "bob", "secret"))
    on.wait(HOUR)
    assert len(jobs(on)) == 1
    assert "there is no job 'hidden'" in left_out(on)


def test_a_secret_that_is_gone_leaves_the_run_out_instead_of_a_job_that_can_not_start() -> None:
    on = with_users()
    on.step(SecretGiven(7, "bob", "user/bob", "token", b"sealed"))
    one = asked(owner="bob")
    variable = SecretVariable("TOKEN", secret="token", holder="user/bob")
    pool = dataclasses.replace(gang(1).pools[0], task=Task(("train",), secrets=(variable,)))
    what = dataclasses.replace(gang(1), pools=(pool,))
    on.step(dataclasses.replace(one, plan=dataclasses.replace(one.plan, gang=what)))
    on.wait(HOUR)
    assert "a host whose agent gives secrets" in left_out(on), "none of this world does"
    on.step(SecretRemovalAsked(7, "bob", "user/bob", "token", force=True))
    on.wait(HOUR)
    assert (jobs(on), left_out(on)) == ([], "the secret token of user bob was removed")
