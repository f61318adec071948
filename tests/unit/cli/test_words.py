"""Times, exits, gangs and histories in words."""

from __future__ import annotations

import pytest

from holdfast.cli.jobs import exit_table
from holdfast.cli.jobs.event_lines import (
    EndedRank,
    blamed_rank,
    ended_rank,
    exit_in_words,
    farewell,
    never_started,
    nothing_ran,
    sentence,
    signal_name,
    told_at_the_end,
)
from holdfast.cli.jobs.gang import chosen, gpus_of, ranks_of
from holdfast.cli.kit.durations import age, span
from holdfast.cli.kit.table import Cell
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
    [(0.84, "0.8s"), (42, "42s"), (192, "3m 12s"), (7500, "2h 5m"), (7200, "2h"), (273_600, "3d 4h"), (60, "1m")],
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
    with pytest.raises(InvalidInput, match="none of these ranks"):
        chosen(world, ("workerpool0-0",), (5,))


def test_exits_in_words() -> None:
    assert exit_in_words(job_pb2.Exit(exit_code=0)) == "exit code 0"
    assert exit_in_words(job_pb2.Exit(signal=11, core_dumped=True)) == "signal 11 (SIGSEGV), core dumped"
    assert exit_in_words(job_pb2.Exit()) == "unknown"
    assert signal_name(40).startswith("SIGRTMIN+")
    assert signal_name(99).startswith("SIG")


def event(type: str, **data: object) -> job_pb2.WatchJobResponse:
    found = job_pb2.WatchJobResponse(type=type, message="m")
    found.data.update(data)
    return found


def test_rank_that_did_not_end_well_is_read_from_its_event() -> None:
    exit_ = {"rank": 3, "generation": 2, "reason": "NONZERO_EXIT", "exit_code": 7}
    assert ended_rank(event("RankExited", worker="workerpool1-0", exit=exit_)) == EndedRank(
        3, 2, "m", "NONZERO_EXIT"
    )


def test_other_ends_and_events_are_none() -> None:
    assert ended_rank(event("RankExited")) is None
    assert ended_rank(event("RankExited", exit={"reason": "SIGNALED"})) is None
    assert ended_rank(event("RankExited", exit={"rank": 1, "generation": 1, "reason": "COMPLETED"})) is None
    assert ended_rank(event("LateExitFound", exit={"rank": 1, "generation": 1, "reason": "SIGNALED"})) is None


@pytest.mark.parametrize(
    ("found", "rank"),
    [
        (event("RestartDecided", related="workerpool1-0 rank 12"), 12),
        (event("AttemptEnded", related="workerpool1-0 rank 3"), 3),
        (event("CauseFound", related="workerpool0-0 rank 0"), 0),
        (event("JobEnding", error={"rank": 4, "message": "x"}), 4),
        (event("JobEnded", error={"rank": 5, "message": "x"}), 5),
        (event("JobEnding", error={"rank": None, "message": "x"}), None),
        (event("JobEnding", error=None), None),
        (event("RestartDecided", related="asked by ann"), None),
        (event("AttemptEnded", related="host host-1"), None),
        (event("RankExited", related="workerpool1-0 rank 12"), None),
    ],
)
def test_blamed_rank_is_the_one_that_the_controller_names(
    found: job_pb2.WatchJobResponse, rank: int | None
) -> None:
    assert blamed_rank(found) == rank


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (event("HangNoticed", sentence="no rank moves"), "does it hang? no rank moves"),
        (event("HangNoticed"), "m"),
        (
            event("HangDiagnosed", stacks="rank 5 is in get; 3 ranks wait"),
            "its stacks: rank 5 is in get; 3 ranks wait",
        ),
        (event("HangDiagnosed", stacks=""), "its stacks: none could be taken"),
        (event("HangJudged", outcome="RESTARTED", note=""), ""),
        (event("HangJudged", outcome="RESTARTED", note="host-1 is suspect again"), "host-1 is suspect again"),
        (
            event("HangJudged", outcome="WOULD_RESTART"),
            "hang confirmed; nothing is killed (with --restart-on-hang it would be relaunched now)",
        ),
        (event("HangJudged", outcome="WITHHELD", note="held"), "hang confirmed, but nothing is done now: held"),
        (event("HangJudged", outcome="SOMETHING_NEW"), "m"),
        (event("HangOver", note="healthy"), "it moves again by itself"),
        (
            event("RestartDecided", end_reason="HANG", generation=2, related="workerpool0-0 rank 1"),
            "it hangs: relaunching in place as generation 2",
        ),
        (event("RestartDecided", end_reason="SIGNALED", generation=2), "m"),
    ],
)
def test_hangs_are_told_in_few_words(found: job_pb2.WatchJobResponse, told: str) -> None:
    assert sentence(found) == told


def test_who_waits_reads_what_matters() -> None:
    assert sentence(event("JobPlaced")) == "m"
    assert sentence(event("SomethingNew")) == "m"
    assert sentence(event("RankExited")) == sentence(event("WorkerEmptied")) == ""


def test_a_farewell_says_how_it_ended() -> None:
    job = job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_SUCCEEDED)
    assert farewell(job, 42) == ["succeeded after 42s"]
    job.recoveries.add()
    assert farewell(job, 42) == ["succeeded after 42s and 1 restart"]
    job.state = job_pb2.JOB_STATE_FAILED
    job.error.message = "rank 3 exited with 7."
    job.start_time.FromSeconds(100)
    job.end_time.FromSeconds(160)
    assert farewell(job, 42) == [
        "failed after 1m and 1 restart: rank 3 exited with 7.",
        "  more:  holdfast job show j1",
    ]


def test_a_job_of_which_nothing_ran_took_no_time() -> None:
    job = job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_FAILED)
    job.error.message = "no such file"
    job.workers.add(name="workerpool0-0").exits.append(exit_(1, 0, "CANNOT_START", 100))
    job.start_time.FromSeconds(100)
    job.end_time.FromSeconds(100)
    assert farewell(job, 42)[0] == "failed before anything ran: no such file"


@pytest.mark.parametrize(
    ("type", "reason", "told"),
    [
        ("JobEnding", "CANNOT_START", True),
        ("JobEnded", "CANNOT_START", True),
        ("AttemptEnded", "CANNOT_START", False),
        ("JobEnding", "NONZERO_EXIT", False),
    ],
)
def test_why_nothing_could_start_is_told_once(type: str, reason: str, told: bool) -> None:
    assert told_at_the_end(event(type), EndedRank(0, 1, "m", reason)) is told


def exit_(generation: int, rank: int, reason: str, second: int, **more: object) -> job_pb2.Exit:
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


def texts(rows: list[exit_table.Row]) -> list[list[str]]:
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
