"""Many schedules that are due at once: each step makes a bounded part of their runs, and owners have their turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from tests.scenarios.scheduling.test_schedules import HOUR, asked, jobs, world
from tests.scenarios.world import World

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.scheduling import submit
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.scheduling.recurring import AGAIN_S, MOST_CHARS_AT_ONCE, MOST_JOBS_AT_ONCE
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.access_commands import RoleAsked
from holdfast_controller.core.step.step import Step


def create(on: World, owner: str, count: int, *, elements: int = 0, chars: int = 2) -> None:
    """Schedules of one owner that are due at each full hour."""
    on.step(RoleAsked(7, "ann", owner, "default", Role.USER))
    for number in range(count):
        one = asked(owner=owner, name=f"{owner}-{number:03}")
        plan = dataclasses.replace(one.plan, spec_json="x" * chars, indices=tuple(range(elements)))
        on.step(dataclasses.replace(one, plan=plan))


def steps_at_the_hour(on: World) -> Iterator[list[ev.JobSubmitted]]:
    """What each step submits, until none is left that is due."""
    on.wait(1.0)
    on.mono += HOUR - on.wall % HOUR
    while (due := on.reactor.next_due()) is not None and due <= on.mono:
        decision = on.reactor.step(st.TimePassed(), Now(Mono(on.mono), Wall(on.wall)))
        if made := [entry.event for entry in decision.entries if isinstance(entry.event, ev.JobSubmitted)]:
            yield made


def test_a_step_makes_so_many_runs_and_the_next_ones_go_on_at_once() -> None:
    on = world()
    for owner in ("bob", "eve", "joe"):
        create(on, owner, 80)
    made = [len(each) for each in steps_at_the_hour(on)]
    assert made == [MOST_JOBS_AT_ONCE, MOST_JOBS_AT_ONCE, 40]


def test_a_step_takes_so_many_characters_or_one_run() -> None:
    on = world()
    create(on, "bob", 6, elements=10, chars=150_000)
    create(on, "eve", 3, elements=100, chars=100_000)
    made = list(steps_at_the_hour(on))
    assert sum(map(len, made)) == 360
    for each in made:
        runs = {job.job_id.rpartition("-")[0] for job in each}
        assert len(runs) == 1 or sum(len(job.spec_json) for job in each) <= MOST_CHARS_AT_ONCE
    assert max(len({job.job_id.rpartition("-")[0] for job in each}) for each in made) > 1


def test_who_has_one_schedule_does_not_wait_for_all_of_another_user() -> None:
    on = world()
    create(on, "bob", 20, elements=50, chars=100_000)
    create(on, "eve", 1)
    create(on, "zoe", 2)
    owners = [{job.owner for job in each} for each in steps_at_the_hour(on)]
    assert owners[:4] == [{"bob"}, {"eve", "zoe"}, {"bob"}, {"zoe"}]
    assert owners[4:] == [{"bob"}] * 18


def test_a_step_looks_for_hosts_once_and_says_of_each_schedule_why_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on, passes = world(), []

    def counted(step: Step) -> None:
        passes.append(step)
        place_queue(step)

    monkeypatch.setattr(submit, "place_queue", counted)
    create(on, "bob", 5)
    on.wait(HOUR - on.wall % HOUR, beating=("host-0", "host-1"))
    assert (len(on.cluster.jobs), len(passes)) == (5, 1)
    told = [event.job_id for event in on.log if isinstance(event, ev.JobQueued)]
    assert sorted(told) == sorted(on.cluster.queue) and len(told) == 3, "each of those that don't start"


def test_the_next_step_waits_until_the_one_before_is_durable() -> None:
    on = world()
    create(on, "bob", 90)
    create(on, "eve", 90)
    on.wait(1.0)
    on.mono += HOUR - on.wall % HOUR

    def step(durable: int) -> int:
        decision = on.reactor.step(st.TimePassed(durable=durable), Now(Mono(on.mono), Wall(on.wall)))
        return sum(isinstance(entry.event, ev.JobSubmitted) for entry in decision.entries)

    before = on.cluster.sequence
    assert step(before) == MOST_JOBS_AT_ONCE
    on.mono += AGAIN_S
    assert step(before) == 0
    on.mono += AGAIN_S
    assert step(on.cluster.sequence) == 80


@pytest.mark.parametrize(("full", "said"), [("user/bob", "user bob"), ("project/default", "project default")])
def test_whose_jobs_take_all_of_the_disk_that_they_may_have_no_runs(full: str, said: str) -> None:
    on = world()
    create(on, "bob", 1)
    on.wait(1.0)
    on.mono += HOUR - on.wall % HOUR
    on.step(st.TimePassed(full=frozenset({full})))
    assert jobs(on) == []
    why = f"the jobs of {said} take all of the controller's disk that they may"
    assert on.cluster.schedules["default/bob-000"].left_out == why
    on.wait(HOUR)
    assert [job.owner for job in on.cluster.jobs.values()] == ["bob"]
