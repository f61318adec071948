"""Stories of a job's time in which clocks, counts or reports are unusual."""

from __future__ import annotations

from tests.unit.controller.ledger.goodput_story import EPOCH_S, Story, _expect, check

from holdfast._session.reports import ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.goodput import Category
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.model.runtime import Started


def restart_in_fractions_of_seconds() -> None:
    s = Story(start_s=3600.4567)
    s.run(10.1234, 14.9876, 15.3333)
    s.restart(115.7777, EndReason.HANG, 100.25, diagnose_s=5.5, not_before=200.0)
    s.exit(116.1, ExitReason.STOPPED)
    s.launch(117.001)
    s.start(118.0009)
    s.end(218.123)
    found = s.sums()
    check(found["diagnose", "HANG"] == 8 * 5.5, "diagnose", str(found))
    check(abs(found["detect", "HANG"] - 8 * 10.0277) < 0.1, "detect", str(found))
    check(abs(found["back_off", "HANG"] - 8 * 0.901) < 0.1, "back-off until the launch", str(found))


def clock_is_set_back() -> None:
    s = Story()
    s.run()
    s.restart(-4000, EndReason.NONZERO_EXIT, -5000)
    s.launch(-3900)
    s.start(-3899)
    s.restart(100, EndReason.SIGNALED, 1e6)
    s.launch(101)
    s.start(102)
    s.end(202)
    found = s.sums()
    check(found["ran", "WORK"] == 8 * (85 + 100), "ran", str(found))
    check(all(s > 0 for s in found.values()), "no negative sums", str(found))


def days_are_cut_at_midnight() -> None:
    s = Story(start_s=86_400 - 60)
    s.run()
    s.end(115)
    days = {key.split("|")[0] for key in s.oracle.statements["a"].ledger.sums}
    first = int(EPOCH_S) // 86_400
    check(days == {str(first), str(first + 1)}, "days", str(days))
    before = sum(ms for key, ms in s.oracle.statements["a"].ledger.sums.items() if key.startswith(str(first)))
    check(before == 8 * 50_000, "before midnight", str(before))


def ranks_without_gpus() -> None:
    s = Story(gpus=0, processes=3)
    s.run()
    s.end(115)
    found = s.sums()
    check(found["ran", "WORK"] == 6 * 100, "rank-seconds", str(found))
    check(s.oracle.statements["a"].ranks, "said to be ranks", "")


def restored_from_a_backup() -> None:
    s = Story()
    s.run()
    s.take(300, ev.ClusterRestored, sequence=10_000, taken_at=s.wall(100))
    s.of_job(310, ev.JobCleared, reason="")
    s.end(410)
    found = s.sums()
    check(found["unseen", "CONTROLLER_RESTORED"] == 8 * 210, "unseen", str(found))
    check(found["ran", "WORK"] == 8 * (85 + 100), "ran", str(found))


def many_restarts_stay_bounded() -> None:
    s = Story(snapshot_every=100)
    s.run()
    at = 20
    for _ in range(300):
        s.progress(at + 5, at - 5, first=(at, 1.0), last=(at + 5, 5.0), saved=[(at + 2, 3.0)])
        s.restart(at + 5, EndReason.SIGNALED)
        s.launch(at + 6)
        s.start(at + 7)
        at += 10
        ledger = s.oracle.cluster.jobs["a"].ledger
        assert ledger is not None
        check(sum(len(tape.spans) for tape in ledger.live) < 40, "bounded", f"{len(ledger.live[0].spans)} spans")
    s.end(at)


def wrong_progress_moves_no_sums() -> None:
    s = Story()
    s.run()
    wild = [(1e7, 2e7, Category.SAVE), (-5e6, 16, Category.EVALUATE), (90, 80, Category.PAUSE)]
    s.progress(115, -1e6, first=(1e6, 50.0), last=(-1e6, 3.0), saved=[(1e8, 99.0)], apart=wild)
    s.restart(115, EndReason.SIGNALED, 1e9)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, first=(-50, 7.0), last=(300, 1e300), resumed=1e200)
    s.end(217)


def late_failure_times_do_not_reach_behind_progress() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(105, 90.0), saved=[(105, 90.0)])
    s.restart(115, EndReason.SIGNALED, -7000)
    s.launch(116)
    s.start(117)
    s.end(217)
    found = s.sums()
    check(found["detect", "SIGNALED"] == 8 * 10, "only since its last step", str(found))


def upgrade_begins_the_ledger() -> None:
    """A job that was running when the ledger began has an incomplete one, from its newest event on."""
    from holdfast_controller.core.fold.allocation import recount

    s = Story()
    s.run()
    job = s.oracle.cluster.jobs["a"]
    job.ledger = None
    recount(s.oracle.cluster)
    check(job.ledger is not None, "begun", "")
    assert job.ledger is not None
    check(not job.ledger.complete and job.ledger.since == s.ms(15), "since", str(job.ledger))
    check(job.ledger.live[0].spans[0].category is Category.RAN, "ran", str(job.ledger.live))


def one_worker_alone_has_not_begun_the_others() -> None:
    """The warm-up of a gang is that of its own start, whatever was restarted since."""
    s = Story()
    s.run()
    s.restart(115, EndReason.NONZERO_EXIT, 114, worker=1)
    s.of_job(116, ev.WorkerLaunched, worker="workerpool0-1", generation=2)
    s.of_job(117, ev.WorkerStarted, worker="workerpool0-1", generation=2, started=Started(1, (2,)))
    s.progress(215, 15, first=(45, 1.0), last=(215, 100.0), saved=[(215, 100.0)])
    s.restart(215, EndReason.SIGNALED)
    s.launch(216)
    s.start(217)
    found = {"end_reason": EndReason.HARDWARE_FAULT, "related": Related(), "failed_at": s.wall(215)}
    s.of_job(218, ev.CauseFound, generation=3, **found)
    s.restart(220, EndReason.NONZERO_EXIT, 219, worker=1)
    s.of_job(221, ev.WorkerLaunched, worker="workerpool0-1", generation=4)
    s.of_job(222, ev.WorkerStarted, worker="workerpool0-1", generation=4, started=Started(1, (2,)))
    s.progress(315, 217, first=(219, 101.0), last=(315, 200.0), resumed=100.0)
    s.end(315)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        warm_up__FIRST_START=60,
        warm_up__HARDWARE_FAULT=4,
        train__WORK=170 + 167 + 96 + 93,
        detect__NONZERO_EXIT=2,
        stop__NONZERO_EXIT=2,
        relaunch__NONZERO_EXIT=2,
        stop__HARDWARE_FAULT=2,
        relaunch__HARDWARE_FAULT=2,
        wind_down__FINISHED=3,
    )


def waits_and_evaluations_before_the_first_step_are_what_they_are_declared_as() -> None:
    s = Story()
    s.run()
    s.progress(
        215, 15, first=(95, 1.0), last=(215, 121.0), apart=[(20, 60, Category.PAUSE), (70, 90, Category.EVALUATE)]
    )
    s.end(215)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        pause__DECLARED_IDLE=80,
        evaluate__WORK=40,
        warm_up__FIRST_START=2 * 20,
        train__WORK=2 * 120,
        wind_down__FINISHED=3,
    )


def generation_that_only_waited_says_nothing_of_the_work_before_it() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(115, 100.0), saved=[(65, 50.0)])
    s.restart(115, EndReason.NONZERO_EXIT)
    s.launch(116)
    s.start(117)
    s.progress(147, 117, apart=[(127, 147, Category.PAUSE)])
    s.restart(147, EndReason.SIGNALED)
    s.launch(148)
    s.start(149)
    s.progress(249, 149, first=(149, 51.0), last=(249, 151.0), resumed=50.0)
    s.end(249)
    found = s.sums()
    check(found["lost", "NONZERO_EXIT"] == 8 * 50, "lost", str(found))
    check(found["pause", "DECLARED_IDLE"] == 8 * 20, "waited", str(found))
    check(found["train", "WORK"] == 8 * 150, "kept", str(found))


def cause_that_is_found_while_the_job_ends_renames_its_stop() -> None:
    s = Story()
    s.run()
    s.restart(115, EndReason.DRAINED)
    s.of_job(120, ev.CancelRequested, by="ann")
    s.of_job(120, ev.JobEnding, outcome=JobState.CANCELLED)
    found = {"end_reason": EndReason.LOST_REBOOT, "related": Related(), "failed_at": s.wall(115)}
    s.of_job(121, ev.CauseFound, generation=2, **found)
    for worker in (0, 1):
        s.of_job(122 + worker, ev.WorkerEmptied, worker=f"workerpool0-{worker}")
    s.of_job(124, ev.JobEnded, state=JobState.CANCELLED)
    sums = s.sums()
    check(sums["stop", "LOST_REBOOT"] == 8 * 5, "renamed", str(sums))
    check(not any(cause == "DRAINED" for _, cause in sums), "no other cause is left", str(sums))


def clock_of_a_host_that_is_behind_takes_no_earlier_work() -> None:
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(115, 100.0), saved=[(115, 100.0)])
    s.restart(115, EndReason.NONZERO_EXIT)
    s.launch(116)
    s.start(117)
    s.restart(217, EndReason.SIGNALED, -3000)
    s.launch(218)
    s.start(219)
    s.progress(319, 219, first=(219, 101.0), last=(318, 200.0), saved=[(269, 151.0)], resumed=100.0)
    s.exit(319, ExitReason.OUT_OF_MEMORY, -3000)
    s.end(319, JobState.FAILED)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        train__WORK=2 * (100 + 50),
        stop__NONZERO_EXIT=2,
        relaunch__NONZERO_EXIT=2,
        detect__SIGNALED=200,
        stop__SIGNALED=2,
        relaunch__SIGNALED=2,
        lost__OUT_OF_MEMORY=2 * 49,
        detect__OUT_OF_MEMORY=2,
        wind_down__OUT_OF_MEMORY=3,
    )


def launches_that_die_before_their_first_step_are_starts() -> None:
    """A loop of crashes while a checkpoint is loaded cost an hour of ``ran``, which is no loss to interruptions."""
    s = Story()
    s.run()
    s.progress(115, 15, first=(15, 0.0), last=(115, 100.0), saved=[(115, 100.0)])
    s.restart(115, EndReason.NONZERO_EXIT)
    for began in (117, 217):
        s.launch(began - 1)
        s.start(began)
        s.restart(began + 98, EndReason.OUT_OF_MEMORY, began + 90)
    s.launch(316)
    s.start(317)
    s.exit(417, ExitReason.OUT_OF_MEMORY)
    s.end(417, JobState.FAILED)
    _expect(
        s,
        prepare__FIRST_START=8,
        launch__FIRST_START=2,
        train__WORK=2 * 100,
        stop__NONZERO_EXIT=2,
        relaunch__NONZERO_EXIT=2,
        warm_up__NONZERO_EXIT=2 * 90,
        detect__OUT_OF_MEMORY=2 * 8 * 2,
        stop__OUT_OF_MEMORY=2 * 2,
        relaunch__OUT_OF_MEMORY=2 * 2,
        warm_up__OUT_OF_MEMORY=2 * (90 + 100),
        wind_down__OUT_OF_MEMORY=3,
    )


def launches_of_a_job_without_steps_are_no_starts_and_an_end_without_a_step_is_work() -> None:
    s = Story()
    s.run()
    s.restart(115, EndReason.NONZERO_EXIT)
    s.launch(116)
    s.start(117)
    s.progress(217, 117, first=(117, 0.0), last=(217, 100.0), saved=[(217, 100.0)])
    s.restart(217, EndReason.NONZERO_EXIT)
    s.launch(218)
    s.start(219)
    s.progress(269, 219, began=220, moved=269)
    s.restart(319, EndReason.NONZERO_EXIT)
    s.launch(320)
    s.start(321)
    s.end(331)
    found = s.sums()
    check(found["ran", "WORK"] == 8 * (100 + 49 + 50 + 10), "ran", str(found))
    check(found["warm_up", "NONZERO_EXIT"] == 8 * 1, "warm_up", str(found))
