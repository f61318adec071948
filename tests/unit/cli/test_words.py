"""Times, exits, gangs and histories in words."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.kit.durations import age, span
from holdfast.cli.kit.table import Cell, Row
from holdfast.cli.pages import exit_table
from holdfast.cli.pages.event_lines import (
    blamed_rank,
    exit_in_words,
    farewell,
    is_failure,
    is_in_farewell,
    never_started,
    nothing_ran,
    sentence,
    signal_name,
    title_of,
    while_queued,
    while_silent,
)
from holdfast.cli.pages.gang import chosen, gpus_of, ranks_of
from holdfast.errors import InvalidInput
from holdfast.v1 import job_pb2, spec_pb2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (42.9, "42s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (100_000, "27h"), (200_000, "2d")],
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.071, "71ms"),
        (0.84, "840ms"),
        (0.9996, "1.0s"),
        (4.24, "4.2s"),
        (0, "0ms"),
        (42, "42s"),
        (192, "3m 12s"),
        (7500, "2h 5m"),
        (7200, "2h"),
        (273_600, "3d 4h"),
        (60, "1m"),
    ],
)
def test_a_span_has_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def gang(*pools: tuple[int, int, int]) -> spec_pb2.CustomJobSpec:
    spec = spec_pb2.CustomJobSpec()
    for replicas, processes, gpus in pools:
        pool = spec.worker_pool_specs.add(replica_count=replicas, processes_per_worker=processes)
        pool.machine_spec.accelerator_count = gpus
    return spec


def test_ranks_go_through_pools_and_replicas() -> None:
    assert ranks_of(gang((1, 2, 0), (2, 0, 0))) == {
        0: "workerpool0-0",
        1: "workerpool0-0",
        2: "workerpool1-0",
        3: "workerpool1-1",
    }
    assert gpus_of(gang((1, 2, 4), (2, 0, 8))) == 20


def test_a_choice_leaves_the_ranks_that_meet_it() -> None:
    world = ranks_of(gang((1, 2, 0), (2, 2, 0)))
    assert chosen(world, (), ()) == world
    assert list(chosen(world, ("workerpool1-1",), ())) == [4, 5]
    assert list(chosen(world, ("workerpool1-1",), (4,))) == [4]


def test_a_choice_of_nothing_is_refused() -> None:
    world = ranks_of(gang((1, 2, 0), (2, 2, 0)))
    with pytest.raises(InvalidInput) as refused:
        chosen(world, ("workerpool2-0",), (9,))
    assert [str(v) for v in refused.value.violations] == [
        "--worker: workerpool2-0 is no worker of this job (there is workerpool0-0 to workerpool1-1)",
        "--rank: 9 is no rank of this job (there is 0 to 5)",
    ]
    with pytest.raises(
        InvalidInput, match=r"--worker: 0 is no worker of this job \(there is workerpool0-0 alone\)"
    ):
        chosen(ranks_of(gang((1, 2, 0))), ("0",), ())
    with pytest.raises(InvalidInput, match="none of these ranks"):
        chosen(world, ("workerpool0-0",), (5,))


def test_exits_in_words() -> None:
    assert exit_in_words(job_pb2.Exit(exit_code=0)) == "exit code 0"
    assert exit_in_words(job_pb2.Exit(signal=11, core_dumped=True)) == "signal 11 (SIGSEGV), core dumped"
    assert exit_in_words(job_pb2.Exit()) == "unknown"
    assert signal_name(40).startswith("SIGRTMIN+")
    assert signal_name(99).startswith("SIG")


Event = job_pb2.JobEvent


def event(**kind: Any) -> job_pb2.WatchJobResponse:
    """An event of one kind; of a kind that this client doesn't know where none is given."""
    return job_pb2.WatchJobResponse(message="m", event=Event(**kind))


def ended(rank: int = 1, reason: str = "SIGNALED") -> job_pb2.Exit:
    return job_pb2.Exit(rank=rank, generation=2, reason=job_pb2.ExitReason.Value(f"EXIT_REASON_{reason}"))


def ranks(*numbers: int) -> job_pb2.Related:
    return job_pb2.Related(ranks=[job_pb2.RankName(worker="workerpool1-0", rank=rank) for rank in numbers])


def test_rank_that_did_not_end_well_is_a_failure() -> None:
    exited = Event.RankExited(worker="workerpool1-0", exit=ended(3, "NONZERO_EXIT"))
    assert is_failure(event(rank_exited=exited))


def test_other_ends_and_events_are_no_failures() -> None:
    assert not is_failure(event())
    assert not is_failure(event(rank_exited=Event.RankExited(exit=ended(reason="COMPLETED"))))
    assert not is_failure(event(late_exit_found=Event.LateExitFound(exit=ended())))


@pytest.mark.parametrize(
    ("found", "rank"),
    [
        (event(restarting=Event.Restarting(related=ranks(12))), 12),
        (event(attempt_ended=Event.AttemptEnded(related=ranks(3))), 3),
        (event(cause_found=Event.CauseFound(related=ranks(0))), 0),
        (event(ending=Event.Ending(error=job_pb2.JobError(rank=4))), 4),
        (event(ended=Event.Ended(error=job_pb2.JobError(rank=0))), 0),
        (event(ending=Event.Ending(error=job_pb2.JobError(message="x"))), None),
        (event(ended=Event.Ended()), None),
        (event(restarting=Event.Restarting(related=job_pb2.Related(user="ann"))), None),
        (event(restarting=Event.Restarting(related=ranks(1, 2))), None),
        (event(attempt_ended=Event.AttemptEnded(related=job_pb2.Related(host="host-1"))), None),
        (event(rank_exited=Event.RankExited(exit=ended())), None),
        (event(), None),
    ],
)
def test_blamed_rank_is_the_one_that_the_controller_names(
    found: job_pb2.WatchJobResponse, rank: int | None
) -> None:
    assert blamed_rank(found) == rank


def judged(outcome: str, note: str = "") -> job_pb2.WatchJobResponse:
    return event(
        hang_judged=Event.HangJudged(outcome=job_pb2.HangOutcome.Value(f"HANG_OUTCOME_{outcome}"), note=note)
    )


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (event(hang_noticed=Event.HangNoticed()), "m"),
        (judged("RESTARTED"), ""),
        (judged("RESTARTED", "host-1 is suspect again"), "m"),
        (judged("WOULD_RESTART"), "m"),
        (judged("WITHHELD", "held"), "m"),
        (event(hang_over=Event.HangOver()), "m"),
        (event(restarting=Event.Restarting()), "m"),
    ],
)
def test_a_hang_is_told_in_the_controller_s_words_and_its_restart_once(
    found: job_pb2.WatchJobResponse, told: str
) -> None:
    assert sentence(found) == told


def test_who_waits_reads_what_matters() -> None:
    assert sentence(event(placed=Event.Placed())) == "m"
    assert sentence(event()) == "m"
    assert sentence(event(rank_exited=Event.RankExited())) == ""
    assert sentence(event(worker_emptied=Event.WorkerEmptied())) == ""


def test_a_queued_job_says_until_when_it_waits_and_what_ends_it() -> None:
    job = job_pb2.CustomJob(id="j1")
    assert while_queued(job)[0].endswith("or is given up after 1d (--max-wait); end it now by: holdfast cancel j1")
    job.job_spec.scheduling.max_wait_duration.FromSeconds(0)
    assert while_queued(job) == ["  it starts by itself; end it now by: holdfast cancel j1"]
    job.state, job.wait_reason = job_pb2.JOB_STATE_QUEUED, "behind j0; expected to start about 14:20 UTC"
    assert while_queued(job, "queued: behind j0")[0] == "  expected to start about 14:20 UTC"
    assert while_queued(job, "queued: needs a host")[0] == f"  {job.wait_reason}"
    assert len(while_queued(job, f"queued: {job.wait_reason}")) == 1


def test_a_silent_job_says_what_it_waits_for_and_what_acts_now() -> None:
    health = "starting up: no progress yet in 300 s; silence is noticed after 3600 s"
    job = job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_RUNNING, health=health)
    first, look, act = while_silent(job, 300)
    assert first == f"nothing new for 5m: {health}"
    assert look.endswith("holdfast job stacks j1") and act.endswith("holdfast job restart j1")
    job.wait_reason = "backs off after a failure until 13:05:07 UTC; at once by: holdfast job restart j1"
    assert while_silent(job, 900) == [f"nothing new for 15m: {job.wait_reason}"]
    assert while_silent(job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_SUCCEEDED), 300) == []


def test_a_farewell_says_how_it_ended() -> None:
    job = job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_SUCCEEDED)
    assert farewell(job, 42) == ["succeeded after 42s"]
    job.recoveries.add()
    assert farewell(job, 42) == ["succeeded after 42s and 1 restart"]
    hung = job_pb2.CustomJob(state=job_pb2.JOB_STATE_SUCCEEDED, recoveries=[job_pb2.Recovery(end_reason="HANG")])
    assert farewell(hung, 42) == ["succeeded after 42s and 1 hang restart"]
    job.state = job_pb2.JOB_STATE_FAILED
    job.error.message = "rank 3 exited with 7."
    job.start_time.FromSeconds(100)
    job.end_time.FromSeconds(160)
    assert farewell(job, 42) == [
        "failed after 1m and 1 restart: rank 3 exited with 7.",
        "  more:  holdfast job show j1",
    ]


def test_a_login_shell_that_finds_no_module_is_told_of_its_path() -> None:
    job = job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_FAILED)
    job.error.raised = "ModuleNotFoundError: No module named 'torch'"
    pool = job.job_spec.worker_pool_specs.add()
    pool.process_spec.command.extend(("bash", "-lc", "python train.py"))
    assert any("start it without -l" in line for line in farewell(job, 42))
    pool.process_spec.command[1] = "-c"
    assert not any("start it without -l" in line for line in farewell(job, 42))


def test_a_job_of_which_nothing_ran_took_no_time() -> None:
    job = job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_FAILED)
    job.error.message = "no such file"
    job.workers.add(name="workerpool0-0").exits.append(exit_(1, 0, "CANNOT_START", 100))
    job.start_time.FromSeconds(100)
    job.end_time.FromSeconds(100)
    assert farewell(job, 42)[0] == "failed before anything ran: no such file"


@pytest.mark.parametrize(
    ("found", "reason", "told"),
    [
        (event(ending=Event.Ending()), job_pb2.EXIT_REASON_CANNOT_START, True),
        (event(ended=Event.Ended()), job_pb2.EXIT_REASON_CANNOT_START, True),
        (event(attempt_ended=Event.AttemptEnded()), job_pb2.EXIT_REASON_CANNOT_START, False),
        (event(ending=Event.Ending()), job_pb2.EXIT_REASON_NONZERO_EXIT, False),
    ],
)
def test_why_nothing_could_start_is_told_once(found: job_pb2.WatchJobResponse, reason: Any, told: bool) -> None:
    assert is_in_farewell(found, job_pb2.Exit(rank=0, generation=1, reason=reason)) is told


def test_an_event_has_the_name_of_its_kind() -> None:
    assert title_of(event(rank_exited=Event.RankExited())) == "RankExited"
    assert title_of(job_pb2.WatchJobResponse(type="JobTeleported")) == "JobTeleported"


def exit_(generation: int, rank: int, reason: str, second: int, **more: Any) -> job_pb2.Exit:
    found = job_pb2.Exit(
        generation=generation, rank=rank, reason=job_pb2.ExitReason.Value(f"EXIT_REASON_{reason}"), **more
    )
    found.end_time.FromSeconds(second)
    return found


def test_output_is_not_missed_where_nothing_ran() -> None:
    job = job_pb2.CustomJob()
    assert not nothing_ran(job)
    worker = job.workers.add(name="workerpool0-0")
    worker.exits.append(exit_(1, 0, "CANNOT_START", 100))
    assert nothing_ran(job)
    worker.exits.append(exit_(2, 0, "COMPLETED", 100, exit_code=0))
    assert not nothing_ran(job)
    assert never_started(job) == {(1, 0)}


def texts(rows: list[Row]) -> list[list[str]]:
    return [[c.text if isinstance(c, Cell) else c for c in row] for row in rows]


def test_ranks_that_ended_alike_share_a_line_and_the_first_comes_first() -> None:
    workers = [job_pb2.Worker(name="workerpool0-0"), job_pb2.Worker(name="workerpool1-0")]
    for rank in (0, 1):
        workers[0].exits.append(exit_(1, rank, "STOPPED", 200, signal=15))
    workers[1].exits.append(exit_(1, 2, "SIGNALED", 100, signal=11, core_dumped=True))
    workers[1].exits.append(exit_(1, 3, "STOPPED", 201, signal=15))
    rows = texts(exit_table.rows(workers, 0.0, wide=False))
    assert [[row[0], row[1], *row[3:]] for row in rows] == [
        ["1", "2", "SIGNALED", "signal 11 (SIGSEGV), core dumped"],
        ["1", "0-1,3", "STOPPED", "signal 15 (SIGTERM)"],
    ]
    assert [row[1:3] for row in texts(exit_table.rows(workers, 0.0, wide=True))] == [
        ["2", "workerpool1-0"],
        ["0", "workerpool0-0"],
        ["1", "workerpool0-0"],
        ["3", "workerpool1-0"],
    ]


def test_a_truth_that_came_late_stands_below() -> None:
    worker = job_pb2.Worker(name="w")
    late = exit_(1, 0, "NONZERO_EXIT", 100, exit_code=7)
    worker.exits.append(exit_(1, 0, "LOST_SHIM_DIED", 100, message="its shim died", late_exit=late))
    rows = texts(exit_table.rows([worker], 0.0, wide=False))
    assert [row[-2:] for row in rows] == [
        ["LOST_SHIM_DIED", "its shim died"],
        ["known later", "NONZERO_EXIT: exit code 7"],
    ]


def test_a_message_without_its_number_gets_it() -> None:
    worker = job_pb2.Worker(name="w")
    worker.exits.append(exit_(1, 0, "NONZERO_EXIT", 100, exit_code=7, message="ValueError: nan"))
    worker.exits.append(exit_(1, 1, "NONZERO_EXIT", 100, exit_code=7, message="exited with 7"))
    messages = [row[-1] for row in texts(exit_table.rows([worker], 0.0, wide=False))]
    assert messages == ["exit code 7: ValueError: nan", "exited with 7"]
