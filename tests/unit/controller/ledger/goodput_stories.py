"""Stories for the goodput ledger: events of one job, and the seconds that each category of its time must have.

Each runs under the simulation's oracle, which adds allocations up by itself after every event, and continues from a
snapshot after each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.controller.ledger.goodput_edges import (
    cause_that_is_found_while_the_job_ends_renames_its_stop,
    clock_is_set_back,
    clock_of_a_host_that_is_behind_takes_no_earlier_work,
    days_are_cut_at_midnight,
    generation_that_only_waited_says_nothing_of_the_work_before_it,
    late_failure_times_do_not_reach_behind_progress,
    launches_of_a_job_without_steps_are_no_starts_and_an_end_without_a_step_is_work,
    launches_that_die_before_their_first_step_are_starts,
    many_restarts_stay_bounded,
    one_worker_alone_has_not_begun_the_others,
    ranks_without_gpus,
    restart_in_fractions_of_seconds,
    restored_from_a_backup,
    upgrade_begins_the_ledger,
    waits_and_evaluations_before_the_first_step_are_what_they_are_declared_as,
    wrong_progress_moves_no_sums,
)
from tests.unit.controller.ledger.goodput_story import Story, _expect, check

from holdfast._session.reports import ExitReason
from holdfast.hang.judge.finding import Rule
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.goodput import Category
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.job import Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, Recover, Related
from holdfast_controller.core.model.runtime import Started


def success_with_saves() -> None:
    s = Story()
    s.place(10)
    s.of_job(12, ev.PreparationNoted, worker="workerpool0-0", host="h1", doing="installing requirements")
    s.launch(20)
    s.start(22)
    saves = [(60, 90, Category.SAVE), (120, 130, Category.EVALUATE), (140, 145, Category.PAUSE)]
    s.progress(200, 22, first=(40, 1.0), last=(199, 100.0), saved=[(90, 30.0)], apart=saves)
    s.end(200)
    _expect(
        s,
        prepare__FIRST_START=4,
        install__FIRST_START=16,
        launch__FIRST_START=4,
        warm_up__FIRST_START=36,
        train__WORK=2 * (160 - 45),
        save__WORK=60,
        evaluate__WORK=20,
        pause__DECLARED_IDLE=10,
        wind_down__FINISHED=1 + 2,
    )


def nothing_reported_is_not_productive() -> None:
    s = Story()
    s.run()
    s.end(115)
    _expect(s, prepare__FIRST_START=8, launch__FIRST_START=2, ran__WORK=200, wind_down__FINISHED=3)


def crash_and_resume() -> None:
    s = Story()
    s.run()
    s.exit(112, ExitReason.NONZERO_EXIT, 110)
    s.progress(112, 15, first=(20, 1.0), last=(110, 91.0), saved=[(60, 41.0)])
    s.restart(112, EndReason.NONZERO_EXIT, 110, not_before=120)
    s.exit(114, ExitReason.STOPPED, worker=1)
    s.launch(121)
    s.start(122)
    s.progress(222, 122, first=(132, 42.0), last=(221, 130.0), resumed=41.0)
    s.end(222)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        warm_up__FIRST_START=10,
        train__WORK=2 * (40 + 90),
        lost__NONZERO_EXIT=100,
        detect__NONZERO_EXIT=4,
        stop__NONZERO_EXIT=2 * (2 + 1),
        back_off__NONZERO_EXIT=12,
        relaunch__NONZERO_EXIT=2,
        warm_up__NONZERO_EXIT=20,
        wind_down__FINISHED=3,
    )


def resume_from_an_older_save() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(115, 100.0), saved=[(45, 30.0), (75, 60.0)])
    s.restart(115, EndReason.RESTART_REQUESTED)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, first=(117, 30.0), last=(217, 130.0), resumed=30.0)
    s.end(217)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        train__WORK=2 * (30 + 100),
        lost__OLDER_SAVE=60,
        lost__RESTART_REQUESTED=80,
        stop__RESTART_REQUESTED=2,
        relaunch__RESTART_REQUESTED=2,
        wind_down__FINISHED=3,
    )


def a_count_of_another_whole_tells_nothing_of_the_one_before() -> None:
    s = Story()
    s.run(10, 14, 15)
    s.progress(115, 15, first=(15, 1.0), last=(115, 8.0), of=10.0)
    s.restart(115, EndReason.NONZERO_EXIT)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, first=(117, 1.0), last=(217, 4.0), of=4.0)
    s.end(217)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        ran__WORK=200,
        stop__NONZERO_EXIT=2,
        relaunch__NONZERO_EXIT=2,
        train__WORK=200,
        wind_down__FINISHED=1 + 2,
    )


def steps_without_saves_count_from_the_resumed_step() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(115, 100.0))
    s.restart(115, EndReason.SIGNALED)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, first=(117, 25.0), last=(217, 125.0))
    s.end(217)
    found = s.sums()
    check(found["train", "WORK"] == 8 * 125 and found["lost", "SIGNALED"] == 8 * 75, "level B", str(found))


def unknown_when_the_next_generation_reports_no_step() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, began=15, moved=115)
    s.restart(115, EndReason.SIGNALED)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, began=117, moved=217)
    s.end(217)
    found = s.sums()
    check(found["ran", "WORK"] == 8 * 100 and found["train", "WORK"] == 8 * 100, "level C", str(found))


def hang_is_noticed_diagnosed_and_relaunched() -> None:
    s = Story()
    s.run()
    hang: dict[str, Any] = {"rule": Rule.STUCK_RANK, "sentence": "", "suspects": (), "hosts": ()}
    s.of_job(145, ev.HangNoticed, generation=1, since=s.wall(115), **hang)
    s.of_job(147, ev.HangDiagnosed, stacks="", since=s.wall(113))
    s.of_job(150, ev.HangJudged, outcome=HangOutcome.RESTARTED)
    s.progress(150, 15, first=(25, 0.0), last=(113, 88.0), saved=[(65, 40.0)])
    s.restart(150, EndReason.HANG, 113, hang_restarts=1, diagnose_s=5.0)
    s.launch(152)
    s.start(153)
    s.progress(253, 153, first=(163, 40.0), last=(253, 130.0), resumed=40.0)
    s.end(253)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        warm_up__FIRST_START=20,
        train__WORK=2 * (40 + 90),
        lost__HANG=96,
        detect__HANG=64,
        diagnose__HANG=10,
        stop__HANG=4,
        relaunch__HANG=2,
        warm_up__HANG=20,
        wind_down__FINISHED=3,
    )


def hang_that_ends_by_itself_is_a_stall() -> None:
    s = Story()
    s.run()
    hang: dict[str, Any] = {"rule": Rule.STUCK_RANK, "sentence": "", "suspects": (), "hosts": ()}
    s.of_job(145, ev.HangNoticed, generation=1, since=s.wall(115), **hang)
    s.of_job(147, ev.HangDiagnosed, stacks="", since=s.wall(110))
    s.of_job(150, ev.HangJudged, outcome=HangOutcome.WOULD_RESTART)
    s.of_job(160, ev.HangOver, note="")
    s.progress(215, 15, first=(25, 0.0), last=(214, 88.0))
    s.end(215)
    found = s.sums()
    check(found["stall", "HANG"] == 8 * 50, "stall", str(found))
    check(found["train", "WORK"] == 8 * (85 + 55), "train around it", str(found))
    check(("detect", "HANG") not in found, "nothing else is left of it", str(found))


def cause_is_renamed() -> None:
    s = Story()
    s.run()
    s.restart(115, EndReason.NONZERO_EXIT, 110)
    found = {"end_reason": EndReason.OUT_OF_MEMORY, "related": Related(), "failed_at": s.wall(110)}
    s.of_job(117, ev.CauseFound, generation=2, **found)
    s.launch(118)
    s.start(119)
    s.end(219)
    sums = s.sums()
    check(sums["detect", "OUT_OF_MEMORY"] == 40 and sums["relaunch", "OUT_OF_MEMORY"] == 8, "renamed", str(sums))
    check(not any(cause == "NONZERO_EXIT" for _, cause in sums), "no other cause is left", str(sums))


def failure_loses_what_was_not_saved() -> None:
    s = Story()
    s.run()
    s.exit(115, ExitReason.OUT_OF_MEMORY, 113)
    s.progress(115, 15, first=(15, 0.0), last=(113, 98.0), saved=[(65, 50.0)])
    s.end(115, JobState.FAILED)
    found = s.sums()
    check(found["lost", "OUT_OF_MEMORY"] == 8 * 48, "lost", str(found))
    check(found["detect", "OUT_OF_MEMORY"] == 8 * 2, "detect", str(found))
    check(found["train", "WORK"] == 8 * 50, "kept", str(found))


def cancelled_without_saves_is_unknown() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(113, 98.0))
    s.of_job(115, ev.CancelRequested, by="ann")
    s.end(115, JobState.CANCELLED)
    found = s.sums()
    check(found["ran", "WORK"] == 8 * 100 and ("lost", "CANCELLED") not in found, "unknown", str(found))


def moved_with_one_share_kept() -> None:
    s = Story()
    s.run()
    moved: dict[str, Any] = {"leaving": Leaving.RETRY, "end_reason": EndReason.DRAINED, "keep": (1,)}
    s.of_job(115, ev.AttemptEnded, recover=Recover.WORKER_RESCHEDULE, failed_at=s.wall(115), **moved)
    s.of_job(117, ev.WorkerEmptied, worker="workerpool0-1")
    s.of_job(119, ev.WorkerEmptied, worker="workerpool0-0")
    s.place(130, "h3", "h2")
    s.launch(131)
    s.start(132)
    s.end(232)
    found = s.sums()
    check(found["held", "DRAINED"] == 4 * 13, "held", str(found))
    check(found["stop", "DRAINED"] == 4 * (4 + 2), "stop", str(found))
    check(found["prepare", "DRAINED"] == 8, "prepare", str(found))
    check(found["ran", "WORK"] == 8 * 200, "ran", str(found))
    check(s.oracle.booked["h3"] == 4 * (103 * 1000), "h3", str(s.oracle.booked))


def pause_and_resume() -> None:
    s = Story()
    s.run()
    s.of_job(110, ev.PauseRequested, by="ann", due=s.wall(115))
    s.of_job(115, ev.AttemptEnded, leaving=Leaving.PAUSE, end_reason=EndReason.PAUSED)
    for worker in (0, 1):
        s.of_job(116, ev.WorkerEmptied, worker=f"workerpool0-{worker}")
    s.of_job(116, ev.JobPaused)
    s.of_job(1000, ev.JobResumed, by="ann")
    s.run(1010, 1012, 1013)
    s.end(1113)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        ran__WORK=2 * (95 + 100),
        wind_down__PAUSED=2 * 6,
        prepare__PAUSED=4,
        relaunch__PAUSED=2,
        wind_down__FINISHED=3,
    )


def fenced_share_is_its_hosts() -> None:
    s = Story()
    s.run()
    s.of_job(
        115, ev.AttemptEnded, leaving=Leaving.RETRY, end_reason=EndReason.LOST_HOST, recover=Recover.JOB_RESCHEDULE
    )
    s.of_job(118, ev.WorkerFenced, worker="workerpool0-0")
    s.of_job(119, ev.WorkerEmptied, worker="workerpool0-1")
    s.place(130, "h2", "h3")
    s.take(150, ev.HostPlaceFreed, host="h1", place="a/0")
    s.launch(151)
    s.start(152)
    s.end(252)
    found = s.sums()
    check(found["stop", "LOST_HOST"] == 4 * (3 + 4), "stop", str(found))
    check(s.oracle.categories["quarantine"] == 4 * 32_000, "quarantine", str(s.oracle.categories))


def fenced_share_is_taken_again_by_its_worker() -> None:
    s = Story()
    s.run()
    lost = {"leaving": Leaving.RETRY, "end_reason": EndReason.LOST_HOST, "recover": Recover.JOB_RESCHEDULE}
    s.of_job(115, ev.AttemptEnded, **lost)
    s.of_job(118, ev.WorkerFenced, worker="workerpool0-0")
    s.of_job(119, ev.WorkerEmptied, worker="workerpool0-1")
    s.run(130, 131, 132)  # where it was: the host is back, and has not yet said that the old one is gone
    s.end(232)
    check(s.oracle.categories["quarantine"] == 4 * 12_000, "quarantine", str(s.oracle.categories))
    check(s.sums()["ran", "WORK"] == 8 * 200, "ran", str(s.sums()))


def one_worker_alone() -> None:
    s = Story()
    s.run()
    s.restart(115, EndReason.NONZERO_EXIT, 114, worker=1, not_before=125)
    s.exit(117, ExitReason.STOPPED, worker=1)
    s.of_job(126, ev.WorkerLaunched, worker="workerpool0-1", generation=2)
    s.of_job(128, ev.WorkerStarted, worker="workerpool0-1", generation=2, started=Started(1, (2,)))
    s.end(228)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        ran__WORK=213 + 99 + 100,
        detect__NONZERO_EXIT=1,
        stop__NONZERO_EXIT=3,
        back_off__NONZERO_EXIT=8,
        relaunch__NONZERO_EXIT=2,
        wind_down__FINISHED=3,
    )


STORIES: dict[str, Callable[[], None]] = {
    story.__name__: story
    for story in (
        success_with_saves,
        nothing_reported_is_not_productive,
        crash_and_resume,
        resume_from_an_older_save,
        steps_without_saves_count_from_the_resumed_step,
        a_count_of_another_whole_tells_nothing_of_the_one_before,
        unknown_when_the_next_generation_reports_no_step,
        hang_is_noticed_diagnosed_and_relaunched,
        hang_that_ends_by_itself_is_a_stall,
        cause_is_renamed,
        failure_loses_what_was_not_saved,
        cancelled_without_saves_is_unknown,
        moved_with_one_share_kept,
        pause_and_resume,
        fenced_share_is_its_hosts,
        fenced_share_is_taken_again_by_its_worker,
        one_worker_alone,
        one_worker_alone_has_not_begun_the_others,
        restart_in_fractions_of_seconds,
        clock_is_set_back,
        days_are_cut_at_midnight,
        ranks_without_gpus,
        restored_from_a_backup,
        many_restarts_stay_bounded,
        wrong_progress_moves_no_sums,
        late_failure_times_do_not_reach_behind_progress,
        upgrade_begins_the_ledger,
        launches_that_die_before_their_first_step_are_starts,
        launches_of_a_job_without_steps_are_no_starts_and_an_end_without_a_step_is_work,
        cause_that_is_found_while_the_job_ends_renames_its_stop,
        clock_of_a_host_that_is_behind_takes_no_earlier_work,
        generation_that_only_waited_says_nothing_of_the_work_before_it,
        waits_and_evaluations_before_the_first_step_are_what_they_are_declared_as,
    )
}
