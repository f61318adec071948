"""What an upgrade waits for, and how the workers of before are told from those of after."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast._session.reports import WorkerId
from holdfast_agent.core.upgrade.handover import (
    Picture,
    Process,
    Verdict,
    WorkerProcesses,
    compare,
    from_json,
    in_flight,
    table,
    to_json,
)
from holdfast_agent.core.worker.states import (
    CannotPrepare,
    Closing,
    Empty,
    Freeing,
    Launching,
    Lost,
    Prepared,
    Preparing,
    Quarantined,
    Running,
    State,
    Stopping,
    Stuck,
)
from holdfast_agent.core.worker.worker import Worker

SHIM, ZERO, ONE = Process(100, 7), Process(101, 8), Process(102, 9)
WORKER = WorkerProcesses("j-1/workerpool0-0", 3, SHIM, {0: ZERO, 1: ONE})
BEFORE = Picture("boot-1", "0.2.0", (WORKER,))


def after(**changes: Any) -> Picture:
    return replace(BEFORE, version="0.3.0", workers=(replace(WORKER, **changes),))


def verdicts(later: Picture) -> list[tuple[str, Verdict, str]]:
    return [(row.process, row.verdict, row.how) for row in compare(BEFORE, later)]


def test_processes_that_are_the_same_are_unchanged() -> None:
    assert {verdict for _, verdict, _ in verdicts(after())} == {Verdict.UNCHANGED}


def test_a_rank_that_ended_by_itself_is_told_apart_by_its_record() -> None:
    later = after(ranks={0: ZERO}, ends={(3, 1): "NONZERO_EXIT, code 1"})
    assert verdicts(later)[2] == ("rank 1", Verdict.ENDED, "NONZERO_EXIT, code 1")


def test_a_rank_without_a_record_is_lost() -> None:
    assert verdicts(after(ranks={0: ZERO}))[2] == ("rank 1", Verdict.LOST, "gone, and nothing says how")


def test_a_record_that_nobody_knows_the_end_is_no_end_of_its_own() -> None:
    lost = "LOST (LOST_SHIM_DIED)"
    later = after(shim=None, ranks={}, ends={(3, 0): lost, (3, 1): lost})
    assert [verdict for _, verdict, _ in verdicts(later)] == [Verdict.LOST] * 3


def test_an_end_of_another_generation_is_not_this_one() -> None:
    assert verdicts(after(ranks={0: ZERO}, ends={(2, 1): "COMPLETED, code 0"}))[2][1] is Verdict.LOST


def test_a_pid_that_was_used_again_is_another_process() -> None:
    assert verdicts(after(ranks={0: ZERO, 1: Process(102, 999)}))[2][1] is Verdict.LOST
    assert verdicts(after(shim=Process(100, 999)))[0][1] is Verdict.LOST


def test_a_relaunch_in_between_leaves_the_ends_of_the_generation_before() -> None:
    ends = {(3, 0): "STOPPED, signal 15", (3, 1): "NONZERO_EXIT, code 1"}
    later = after(generation=4, ranks={0: Process(201, 1), 1: Process(202, 1)}, ends=ends)
    assert [verdict for _, verdict, _ in verdicts(later)] == [Verdict.UNCHANGED, Verdict.ENDED, Verdict.ENDED]


def test_a_worker_that_is_forgotten_has_had_its_ends_acknowledged() -> None:
    rows = compare(BEFORE, replace(BEFORE, workers=()))
    assert {row.verdict for row in rows} == {Verdict.ENDED}
    assert "acknowledged" in rows[1].how


def test_a_reboot_is_no_upgrade() -> None:
    rows = compare(BEFORE, replace(after(), boot_id="boot-2"))
    assert {(row.verdict, row.how) for row in rows} == {(Verdict.LOST, "the host has booted since")}


def test_the_table_names_each_process_before_and_after() -> None:
    later = after(ranks={0: ZERO}, ends={(3, 1): "COMPLETED, code 0"})
    assert table(compare(BEFORE, later)) == (
        "WORKER             PROCESS  BEFORE  AFTER\n"
        "j-1/workerpool0-0  shim     100     100    unchanged\n"
        "                   rank 0   101     101    unchanged\n"
        "                   rank 1   102     -      ended by itself: COMPLETED, code 0\n"
    )


def test_what_was_written_down_is_read_back() -> None:
    assert from_json(json.loads(json.dumps(to_json(BEFORE)))) == BEFORE
    without = replace(BEFORE, workers=(replace(WORKER, shim=None),))
    assert from_json(json.loads(json.dumps(to_json(without)))) == without


@pytest.mark.parametrize(
    ("state", "doing"),
    [
        (Launching(2, 1, 1), "generation 2 is being launched"),
        (Prepared(2, 1, 1), "generation 2 waits for its launch"),
        (Preparing(2), "generation 2 is being prepared"),
        (Stopping(2), "generation 2 is being stopped"),
        (Lost(2), "generation 2 is being stopped"),
        (Freeing(2, 0.0, 0.1), "the GPUs of generation 2 are being proven free"),
        (Closing(2), "the epilog of generation 2 runs"),
    ],
)
def test_an_upgrade_waits_for_what_the_agent_is_about_to_finish(state: State, doing: str) -> None:
    assert in_flight(Worker(WorkerId("j-1", "w"), state), examined=False) == doing


@pytest.mark.parametrize(
    "state", [Running(2), Empty(2), CannotPrepare(2, "no"), Stuck(2, "D state"), Quarantined(2, "GPU 0")]
)
def test_nothing_waits_for_what_may_last(state: State) -> None:
    assert in_flight(Worker(WorkerId("j-1", "w"), state), examined=False) == ""


def test_an_upgrade_waits_for_the_evidence_of_a_hang() -> None:
    worker = Worker(WorkerId("j-1", "w"), Running(2))
    assert in_flight(worker, examined=True) == "evidence of a hang is being taken"


def test_nobody_waits_for_an_installation_which_the_next_agent_begins_again() -> None:
    worker = Worker(WorkerId("j-1", "w"), Preparing(2), doing="installing requirements")
    assert in_flight(worker, examined=False) == ""
