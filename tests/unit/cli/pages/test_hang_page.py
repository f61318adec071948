"""Hangs as people read them: on a job's page, and one by one with their evidence."""

from __future__ import annotations

import pytest
from tests.unit.cli.pages.hangs import START, evidence, hung_job

from holdfast._session.hang_wire import WorkerEvidence
from holdfast.cli.hangs.hang_page import detector_sentence, evidence_text, hang_lines, verdict_lines
from holdfast.cli.kit.durations import local
from holdfast.cli.kit.table import cell_len
from holdfast.cli.pages import recovery_table
from holdfast.cli.pages.job_page import page
from holdfast.v1 import job_pb2, spec_pb2

NOW = START + 1300.0


def shown(job: job_pb2.CustomJob, width: int | None = None, *, wide: bool = False) -> list[str]:
    return list(page(job, NOW, wide=wide, width=width, colour=False))


def one(hang: job_pb2.Hang, width: int | None = None) -> list[str]:
    return list(hang_lines(hang, width=width, colour=False))


def test_a_hang_tells_its_times_and_numbers() -> None:
    assert one(hung_job().hangs[0]) == [
        "Hang 1  relaunched · generation 1",
        f"  still since {local(START + 600)}",
        f"  noticed     {local(START + 631)}  31s later",
        f"  diagnosed   {local(START + 637)}  6.0s later, 37s in all",
        f"  acted       {local(START + 661)}  24s later, 1m 1s in all",
        "  rule        GPUS_IDLE: no rank moves, GPUs idle or absent",
        "  seen        no rank of 4 has moved for 31 s (longest before: 4 s), and all 4 GPUs are idle",
        "  suspects    workerpool1-0 rank 3",
        "  stacks      workerpool1-0 rank 3 is in data_loader.py:212 `fetch`; 3 ranks wait in all_reduce",
        "  step        120",
        "  outcome     killed and relaunched in place",
    ]


def test_moments_stand_in_the_order_in_which_they_came() -> None:
    hang = hung_job().hangs[0]
    hang.diagnosed_at.FromSeconds(START + 625)
    names = [line.split()[0] for line in one(hang)[1:5]]
    assert names == ["still", "diagnosed", "noticed", "acted"]


@pytest.mark.parametrize(
    ("outcome", "note", "title", "line"),
    [
        ("", "", "open", "open: watched on"),
        (
            "WOULD_RESTART",
            "",
            "notified only",
            "notified only; with --restart-on-hang it would have been relaunched in place",
        ),
        ("WITHHELD", "held until 05:00", "not acted on", "confirmed, but not acted on: held until 05:00"),
        ("BUDGET_SPENT", "", "job failed", "no hang restart was left, so the job failed"),
        ("RESTARTED", "the job is placed again", "relaunched", "killed and relaunched: the job is placed again"),
        ("OVER", "rank 3 works", "over", "moved again by itself: rank 3 works"),
        ("LATER_WORD", "", "LATER_WORD", "LATER_WORD"),
    ],
)
def test_each_outcome_is_said_in_words(outcome: str, note: str, title: str, line: str) -> None:
    hang = hung_job().hangs[1]
    hang.outcome, hang.note = outcome, note
    lines = one(hang)
    assert lines[0] == f"Hang 2  {title} · generation 2"
    assert lines[-1] == f"  outcome     {line}"


def test_what_is_not_known_yet_is_said() -> None:
    hang = job_pb2.Hang(number=1, generation=1, rule="R9", sentence="s")
    text = "\n".join(one(hang))
    assert "rule        R9\n" in text
    assert "suspects    none in particular" in text
    assert "stacks      none yet" in text
    assert "step" not in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_of_a_hang_is_wider_than_the_terminal(width: int) -> None:
    job = hung_job()
    lines = list(verdict_lines(job, job.hangs, NOW, width=width, colour=False))
    assert max(map(cell_len, lines[5:])) <= max(width, 60)
    assert " ".join(" ".join(lines).split()).count("no rank of 4 has moved for 31 s (longest before: 4 s)") == 2


def test_programs_cannot_drive_the_terminal_of_the_reader() -> None:
    hang = hung_job().hangs[0]
    hang.sentence = "x\x1b[2J\ny"
    assert "  seen        x?[2J y" in one(hang)
    found = WorkerEvidence("workerpool0-0", "host-0", problem="\x1b[2J")
    assert evidence_text([found], width=80, full=False) == "workerpool0-0 on host-0: ?[2J\n"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (job_pb2.CustomJob(state=job_pb2.JOB_STATE_SUCCEEDED), ""),
        (job_pb2.CustomJob(state=job_pb2.JOB_STATE_QUEUED), "it does not run now."),
        (job_pb2.CustomJob(state=job_pb2.JOB_STATE_RUNNING), "it waits to hear of every worker."),
        (
            job_pb2.CustomJob(state=job_pb2.JOB_STATE_RUNNING, health="every rank works"),
            "The detector says: every rank works.",
        ),
    ],
)
def test_without_a_hang_the_page_says_what_detection_does(change: job_pb2.CustomJob, says: str) -> None:
    text = "\n".join(verdict_lines(change, [], NOW, width=None, colour=False))
    assert text.startswith("No hang was noticed so far. " if says else "No hang was noticed.")
    assert text.endswith(says)


def test_a_detection_that_is_off_says_so() -> None:
    job = hung_job()
    job.job_spec.fault_tolerance.hang_detection.action = spec_pb2.HANG_ACTION_OFF
    assert detector_sentence(job, NOW) == "Hang detection is off for this job."


def test_a_hold_is_told_while_it_lasts() -> None:
    job = hung_job()
    job.held_until.FromSeconds(int(NOW) + 60)
    assert detector_sentence(job, NOW).endswith(f"Until {local(NOW + 60)} no hang is acted on.")
    assert f"  held        until {local(NOW + 60)} (1m left): no hang is acted on" in shown(job)
    assert "no hang" not in detector_sentence(job, NOW + 61)
    assert not any(line.startswith("  held") for line in page(job, NOW + 61, wide=False, width=80, colour=False))


def test_the_page_of_a_job_shows_its_hangs_in_short() -> None:
    lines = shown(hung_job(), 100)
    start = lines.index("Hangs")
    table = lines[start + 1 :]
    assert table[0].split() == ["#", "GEN", "STILL", "SINCE", "NOTICED", "RULE", "OUTCOME", "SUSPECT"]
    assert table[1].split()[-4:] == ["relaunched", "workerpool1-0", "rank", "3"]
    assert table[2].split()[-4:] == ["open", "workerpool0-0", "rank", "1"]
    end = lines.index("Recoveries")
    assert lines[end - 2 : end] == ["  more:  holdfast job hangs j1", ""]


def test_the_detector_s_words_are_wrapped_not_cut() -> None:
    lines = shown(hung_job(), 60)
    at = next(index for index, line in enumerate(lines) if line.startswith("  health"))
    assert " ".join(line.strip() for line in lines[at : at + 2]).endswith("and all 4 GPUs are idle")
    assert all(len(line) <= 60 for line in lines[at : at + 2])


def test_many_hangs_are_cut_unless_all_are_wanted() -> None:
    job = hung_job()
    for number in range(3, 15):
        job.hangs.add(number=number, generation=number, rule="GPUS_IDLE", outcome="RESTARTED", sentence="s")
    assert any("4 earlier ones are left out" in line for line in shown(job, 100))
    assert not any("are left out" in line for line in shown(job, 100, wide=True))


def test_a_recovery_from_a_hang_shows_where_its_time_went() -> None:
    def section(width: int | None) -> list[str]:
        return recovery_table.table(hung_job().recoveries, NOW, width=width, colour=False).splitlines()

    spent = "detect 31s, diagnose 30s, stop 5.1s, start 210ms"
    assert section(None)[1].endswith(f"HANG    workerpool1-0 rank 3  restarted in place  {spent}")
    narrow = section(80)
    assert narrow[1].endswith("HANG    workerpool1-0 rank 3  restarted in place")
    assert narrow[2] == f"     {spent}"
    assert max(map(len, narrow)) <= 80


def test_evidence_shows_the_odd_ones_first_and_what_is_missing() -> None:
    parts = [WorkerEvidence(each.worker, each.host, each) for each in evidence()]
    missing = WorkerEvidence("workerpool1-1", "host-2", problem="host-2 is not connected")
    text = evidence_text([*parts, missing], width=100, full=False)
    assert text.index("workerpool1-0 rank 3") < text.index("workerpool0-0 ranks 0, 1")
    assert text.index("fetch") < text.index("all_reduce", text.index("fetch"))
    assert text.endswith("workerpool1-1 on host-2: host-2 is not connected\n")


def test_without_any_evidence_only_problems_are_told() -> None:
    assert evidence_text([], width=80, full=False) == ""
    assert evidence_text([WorkerEvidence("w", "", problem="p")], width=80, full=True) == "w: p\n"
