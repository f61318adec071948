"""Schedules in virtual time: each run once, over restarts, outages, overlaps, and rights that are taken away."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.schedules import JobPlan, Overlap
from holdfast_controller.core.scheduling import templates
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.access_commands import RoleAsked, UserRemovalAsked
from holdfast_controller.core.step.schedule_commands import (
    ScheduleAsked,
    SchedulePauseAsked,
    ScheduleRemovalAsked,
    TemplateAsked,
    TemplateRemovalAsked,
)
from holdfast_controller.core.step.step import Policies

HOUR, DAY = 3600.0, 86_400.0
# The world begins on 12 January 1970, at 13:46:40 UTC.


def world(**rules: object) -> World:
    return World(2, Policies(secret_key=b"k", admins=frozenset({"ann"}), **rules))  # type: ignore[arg-type]


def asked(
    cron: str = "0 * * * *", *, overlap: Overlap = Overlap.ALLOW, owner: str = "ann", name: str = "tick",
    deadline_s: float = 0.0, zone: str = "UTC", workers: int = 1,
) -> ScheduleAsked:  # fmt: skip
    plan = JobPlan(display_name="tick", gang=gang(workers), spec_json="{}", labels={"a": "b"})
    return ScheduleAsked(7, owner, name, cron, zone, overlap, deadline_s, plan)


def jobs(of: World) -> list[str]:
    return [name for name in of.cluster.jobs if name.startswith("tick-")]


def refusal(of: World, command: ScheduleAsked | TemplateAsked) -> str:
    decision = of.reactor.step(command, Now(Mono(of.mono), Wall(of.wall)))
    (refused,) = [each for each in decision.actions if isinstance(each, act.Refuse)]
    assert not decision.entries
    return str(refused.error)


def test_each_run_is_submitted_once_when_it_is_due_with_the_time_in_its_id() -> None:
    on = world()
    on.step(asked())
    on.wait(3 * HOUR, beating=("host-0", "host-1"))
    assert jobs(on) == ["tick-197001121400", "tick-197001121500", "tick-197001121600"]
    job = on.cluster.jobs["tick-197001121400"]
    assert (job.owner, job.labels, job.created_at) == ("ann", {"a": "b", "schedule": "tick"}, 14 * HOUR + 11 * DAY)
    assert on.state("tick-197001121400") is not JobState.QUEUED


def test_a_restart_neither_repeats_a_run_nor_loses_the_one_that_was_due_meanwhile() -> None:
    on = world()
    on.step(asked())
    on.wait(HOUR)
    before = jobs(on)
    on.restart_controller()
    on.wait(1.0)
    assert jobs(on) == before
    on.restart_controller(down_s=HOUR)
    on.wait(1.0)
    assert jobs(on) == [*before, "tick-197001121500"]


def test_after_a_day_without_a_controller_the_newest_run_alone_is_made_up_and_the_history_says_so() -> None:
    on = world()
    on.step(asked())
    on.restart_controller(down_s=DAY)
    on.wait(1.0)
    assert jobs(on) == ["tick-197001131300"]
    assert any(
        "run of 1970-01-13 13:00 UTC is tick" in said and "since 1970-01-12 14:00" in said for said in on.sentences
    )


def test_a_run_past_its_deadline_is_left_out_and_says_so() -> None:
    on = world()
    on.step(asked("0 14 * * *", deadline_s=600.0))
    on.restart_controller(down_s=2 * HOUR)
    on.wait(1.0)
    assert jobs(on) == []
    assert on.cluster.schedules["default/tick"].left_out == "no controller ran within 600 s of it"
    on.wait(DAY)
    assert len(jobs(on)) == 1 and on.cluster.schedules["default/tick"].left_out == ""


def test_while_an_earlier_job_goes_on_forbid_leaves_a_run_out_and_replace_cancels_that_job_first() -> None:
    on = world()
    on.step(asked(overlap=Overlap.FORBID, name="tick"))
    on.wait(2 * HOUR, beating=("host-0", "host-1"))
    assert jobs(on) == ["tick-197001121400"]
    assert on.cluster.schedules["default/tick"].left_out == "tick-197001121400 of an earlier run has not ended"
    on.step(ScheduleRemovalAsked(7, "ann", "default", "tick"))
    on.step(asked(overlap=Overlap.REPLACE, name="tock"))
    on.wait(2 * HOUR, beating=("host-0", "host-1"))
    first, second = [job for name, job in on.cluster.jobs.items() if name.startswith("tock-")]
    assert first.outcome is JobState.CANCELLED
    assert second.gang.after[0].job == first.id
    assert first.terminal or not second.places, "two of them hold hosts at once"


def test_a_paused_schedule_submits_nothing_and_makes_nothing_up() -> None:
    on = world()
    on.step(asked())
    on.step(SchedulePauseAsked(7, "ann", "default", "tick"))
    on.wait(3 * HOUR)
    on.restart_controller(down_s=HOUR)
    on.step(SchedulePauseAsked(7, "ann", "default", "tick", resume=True))
    on.wait(1.0)
    assert jobs(on) == []
    on.wait(HOUR)
    assert len(jobs(on)) == 1


def test_who_may_not_submit_any_more_has_no_runs() -> None:
    on = world()
    on.step(RoleAsked(7, "ann", "bob", "default", Role.USER))
    on.step(asked(owner="bob"))
    on.wait(HOUR)
    assert len(jobs(on)) == 1
    on.step(UserRemovalAsked(7, "ann", "bob", "default"))
    on.wait(HOUR)
    assert len(jobs(on)) == 1
    assert "may not submit jobs to project default any more" in on.cluster.schedules["default/tick"].left_out


def test_schedules_of_a_user_who_is_removed_stop_also_for_the_next_user_of_that_name() -> None:
    on = world()
    on.step(RoleAsked(7, "ann", "bob", "default", Role.USER))
    on.step(asked("* * * * *", owner="bob"))
    on.wait(60.0)
    before = jobs(on)
    told = on.step(UserRemovalAsked(7, "ann", "bob"))
    assert any("paused by ann" in said for said in on.sentences[-len(told) :])
    kept = len(on.log)
    on.wait(HOUR)
    assert not [event for event in on.log[kept:] if isinstance(event, ev.ScheduleEvent)]
    on.step(RoleAsked(7, "ann", "bob", "default", Role.USER))
    on.wait(HOUR)
    assert jobs(on) == before
    on.step(SchedulePauseAsked(7, "bob", "default", "tick", resume=True))
    on.wait(60.0)
    assert len(jobs(on)) == len(before) + 1, "whoever resumes it means it"


def test_schedules_of_who_is_no_user_any_more_are_paused_when_they_are_due() -> None:
    on = world()
    on.step(asked("* * * * *"))
    on.step(st.PoliciesChanged(dataclasses.replace(on.policies, admins=frozenset({"eve"}))))
    on.wait(HOUR)
    schedule = on.cluster.schedules["default/tick"]
    assert (jobs(on), schedule.paused_by) == ([], "holdfast")
    assert "may not submit jobs to project default any more" in schedule.left_out
    assert sum(isinstance(event, ev.ScheduleEvent) for event in on.log) == 3, "created, left out once, paused"


def test_a_run_beyond_a_limit_is_left_out_with_the_reason() -> None:
    on = world(max_jobs=1)
    on.step(asked())
    on.wait(2 * HOUR)
    assert len(jobs(on)) == 1
    assert "1 jobs wait or run already" in on.cluster.schedules["default/tick"].left_out


def test_a_wall_clock_that_is_set_forward_is_noticed_within_a_minute() -> None:
    on = world()
    on.step(asked("0 3 * * *"))
    on.wait(1.0)
    on.jumped += DAY
    on.wait(61.0)
    assert len(jobs(on)) == 1


def test_a_schedule_runs_on_after_a_clock_that_was_a_year_ahead_is_set_right() -> None:
    on = world()
    on.step(asked("0 * * * *"))
    on.wait(1.0)
    on.jumped += 365 * DAY
    on.wait(121.0)
    made = len(jobs(on))
    assert made >= 1
    on.jumped -= 365 * DAY
    on.wait(3 * HOUR + 120.0)
    assert len(jobs(on)) == made + 3
    on.wait(2 * HOUR)
    assert len(jobs(on)) == made + 5


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (asked("0 0 30 2 *"), "never comes"),
        (asked("60 * * * *"), "not a number from 0 to 59"),
        (asked(zone="Europe/Atlantis"), "is no time zone"),
        (asked(name="No Name"), "must be lower-case letters"),
        (
            dataclasses.replace(asked(), plan=dataclasses.replace(asked().plan, spec_json="x" * 300_000)),
            "keeps 262,144",
        ),
        (asked(deadline_s=-5.0), "startingDeadline: is negative"),
    ],
)
def test_what_can_never_run_is_refused_with_the_field(wrong: ScheduleAsked, said: str) -> None:
    assert said in refusal(world(), wrong)


def test_a_name_is_taken_once_and_a_removed_one_is_free_again() -> None:
    on = world()
    on.step(asked())
    assert "there is a schedule 'tick' in project default" in refusal(on, asked())
    on.wait(HOUR)
    on.step(ScheduleRemovalAsked(7, "ann", "default", "tick"))
    assert on.reactor.cluster.schedules == {}
    on.wait(2 * HOUR)
    assert len(jobs(on)) == 1


def test_a_run_waits_for_an_earlier_one_that_does_not_end_however_many_runs_came_between() -> None:
    on = world()
    on.step(asked("*/5 * * * *", overlap=Overlap.REPLACE))
    on.wait(300, beating=("host-0", "host-1"))
    (first,) = jobs(on)
    on.run(first)
    on.report(first, 0, "STUCK", message="it hangs in the kernel")
    on.wait(20 * 300, beating=("host-0", "host-1"))
    assert [on.state(name).name for name in jobs(on)] == ["CANCELLING", *["CANCELLED"] * 19, "QUEUED"]
    on.restart_controller()
    assert on.cluster.schedules["default/tick"].job_ids == (first, *jobs(on)[-10:])
    on.join("host-0")
    on.join("host-1")
    on.report(first, 0, "EMPTY")
    assert on.state(jobs(on)[-1]) is JobState.PENDING


def test_a_time_that_clocks_leave_out_or_show_twice_is_run_once() -> None:
    on = world()
    berlin = dt.datetime(2026, 10, 24, 12, tzinfo=dt.UTC).timestamp()
    on.restart_controller(down_s=berlin - on.wall)
    on.step(asked("30 2 * * *", zone="Europe/Berlin"))
    on.wait(2 * DAY)
    assert jobs(on) == ["tick-202610250030", "tick-202610260130"]


def test_templates_have_versions_that_never_change_and_belong_to_who_made_them() -> None:
    on = world()
    on.step(RoleAsked(7, "ann", "bob", "default", Role.USER))
    on.step(RoleAsked(7, "ann", "eve", "default", Role.USER))
    on.step(TemplateAsked(7, "bob", "default", "train", "{}"))
    on.step(TemplateAsked(7, "bob", "default", "train", "{}"))
    on.step(TemplateAsked(7, "ann", "default", "train", '{"a": 1}'))
    template = on.cluster.templates["default/train"]
    assert {number: each.job_json for number, each in template.versions.items()} == {1: "{}", 2: '{"a": 1}'}
    assert "The template train is bob's" in refusal(on, TemplateAsked(7, "eve", "default", "train", "{}"))


def test_all_templates_of_one_user_together_have_a_bound() -> None:
    on = world()
    on.step(RoleAsked(7, "ann", "bob", "default", Role.USER))
    text = "x" * (templates.MOST_CHARS - 3)
    fit = templates.MOST_BYTES // (len(text) + 3 + templates.VERSION_BYTES)
    for number in range(fit):
        on.step(TemplateAsked(7, "bob", "default", f"t{number // 15}", f'"{text}"{number % 10}'))
    assert templates.bytes_of(on.cluster, "bob") <= templates.MOST_BYTES
    said = refusal(on, TemplateAsked(7, "bob", "default", "more", text))
    assert "job: the templates of bob together" in said and "holdfast template remove" in said
    assert "of bob" in refusal(on, TemplateAsked(7, "ann", "default", "t0", text)), "whoever adds to them"
    on.step(TemplateAsked(7, "ann", "default", "hers", text))
    on.step(TemplateRemovalAsked(7, "bob", "default", "t0"))
    on.step(TemplateAsked(7, "bob", "default", "more", text))
    assert on.cluster.templates["default/more"].newest == 1
