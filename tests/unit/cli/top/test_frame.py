"""The frame fits every terminal, says what matters first, and nothing in it drives the terminal."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.security.hostile_controller import HOSTILE
from tests.unit.cli.top.boards import LARGE, NOW, SMALL, alert, board, drawn, host, job

from holdfast.cli.cluster import status_page
from holdfast.cli.kit.table import cell_len
from holdfast.cli.top.board import Board, Goodput, Pane
from holdfast.cli.top.frame import Look, frame
from holdfast.v1 import job_pb2

SIZES = ((40, 12), (80, 24), (81, 30), (120, 40), (200, 60), (400, 100))
COLOUR = re.compile("\x1b\\[[0-9;]*m")


def busy() -> Board:
    return board(
        *(host(f"h{n}", 8, job="train-1", problem="Xid 79" if n == 3 else "") for n in range(5)),
        job("train-1", headline="Trains: step 5 of 10, 1.42 s a step; 1 interruption"),
        job("wait-1", "WAITS", "Waits for 8 GPUs on one host: h2 has 4 free"),
        job("hang-1", "NEEDS_YOU", "Hangs since 14:00; relaunch it by: holdfast job restart hang-1"),
        job("done-1", "ENDED", "Failed after 2h: rank 3: ValueError: bad batch"),
        alert("GPU_FAULT", "host/h3", "GPU 7: Xid 79"),
    )


def test_what_matters_is_on_a_small_terminal() -> None:
    lines = drawn(busy())
    assert len(lines) == 24
    assert lines[0] == "lab  controller 1.2.0, up 1h, term 7"
    assert "host h3" in lines[4] and "GPU 7: Xid 79" in lines[4]
    assert lines[5].startswith("[1 Jobs] 2 Hosts  3 Needs attention   4, all, by urgency")
    ids = [line.split()[0] for line in lines[7:11]]
    assert ids == [">", "train-1", "wait-1", "done-1"] and lines[7].startswith("> hang-1")
    assert "5/10" in lines[8]
    assert any("now         Hangs since 14:00" in line for line in lines)


def test_a_large_terminal_shows_jobs_and_hosts_together() -> None:
    lines = drawn(busy(), LARGE)
    assert len(lines) == 60
    assert any(line.startswith("[1 Jobs]") for line in lines) and any(" 2 Hosts " in line for line in lines)
    assert any("Waits for 8 GPUs on one host: h2 has 4 free" in line for line in lines)
    assert any(line.split()[:2] == ["h3", "READY"] and "!" in line for line in lines)
    assert any("ann" in line for line in lines)


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pane", Pane)
def test_every_frame_fits_and_holds_nothing_that_drives_the_terminal(
    size: tuple[int, int], pane: Pane, colour: bool, unicode: bool
) -> None:
    shown = board(
        *(host(f"{HOSTILE}{n}", 8, problem=HOSTILE, cordoned=True, cordon_reason=HOSTILE) for n in range(30)),
        *(
            job(f"{n}{HOSTILE}", kind, HOSTILE, owner=HOSTILE, display_name="名前" * 40, project=HOSTILE)
            for n in range(30)
            for kind in ("WORKS", "WAITS", "NEEDS_YOU")
        ),
        *(alert("HANG", f"job/{HOSTILE}", HOSTILE) for _ in range(9)),
        cluster=HOSTILE,
        pane=pane,
        away=(HOSTILE, NOW - 5),
    )
    for typing in (None, HOSTILE):
        shown.typing = typing
        lines = frame(shown, NOW, Look(*size, colour=colour, unicode=unicode))
        assert len(lines) == size[1]
        for line in lines:
            bare = COLOUR.sub("", line)
            assert cell_len(bare) <= size[0], line
            assert bare.isprintable(), line
            assert colour or bare == line
            assert unicode or bare.isascii()


def test_a_terminal_that_is_too_small_says_so() -> None:
    assert drawn(busy(), Look(39, 24, colour=False, unicode=True)) == ["Needs 40×12 or more."]
    assert drawn(busy(), Look(80, 11, colour=False, unicode=False)) == ["Needs 40x12 or more."]


@pytest.mark.parametrize("pane", Pane)
def test_on_the_smallest_terminal_the_list_has_rows_whatever_is_said_above_it(pane: Pane) -> None:
    shown = busy()
    shown.pane, shown.away = pane, ("No controller answers.", NOW - 5)
    assert shown.status is not None
    shown.status.motd.by, shown.status.motd.text = "ann", "hello"
    lines = drawn(shown, Look(40, 12, colour=False, unicode=True))
    chosen = next(n for n, line in enumerate(lines) if line.startswith(">"))
    assert chosen < 10 and len(lines) == 12
    assert drawn(shown, Look(25, 12, colour=False, unicode=True)) == ["Needs 40×12 or more."]


def test_an_empty_cluster_says_how_to_begin() -> None:
    text = "\n".join(drawn(board(), LARGE))
    assert "No hosts yet: holdfast host token create" in text
    assert "No jobs yet. Start one: holdfast run -- python train.py" in text
    assert status_page.NOTHING in text


def test_before_the_first_answer_there_is_a_frame() -> None:
    assert len(drawn(Board())) == 24
    assert len(drawn(Board(), LARGE)) == 60


def test_a_lost_connection_is_said_with_its_length_and_a_refusal_in_its_words() -> None:
    shown = busy()
    shown.away = "The controller at 10.0.0.1:7000 can't be reached.", NOW - 75
    assert "No answer for 1m 15s: The controller at 10.0.0.1:7000 can't be reached." in drawn(shown)
    shown.away, shown.problem = None, "You may not look around."
    assert "You may not look around." in drawn(shown)


def test_the_message_of_the_day_takes_a_line_or_a_few() -> None:
    shown = busy()
    assert shown.status is not None
    shown.status.motd.by, shown.status.motd.text = "ann", "\n".join(f"line {n}" for n in range(9))
    assert "message of the day: line 0 line 1" in "\n".join(drawn(shown))
    assert "  line 2" in drawn(shown, LARGE) and "  line 3" not in drawn(shown, LARGE)


def test_rows_in_view_alone_are_drawn_of_a_thousand_hosts_and_jobs() -> None:
    shown = board(*(host(f"h{n:03}", 8) for n in range(1000)), *(job(f"j{n:03}") for n in range(1000)))
    assert len(drawn(shown, LARGE)) == 60
    for pane, keys in ((Pane.JOBS, [*shown.jobs]), (Pane.HOSTS, [*shown.hosts])):
        assert 10 < len(shown.in_view(pane, keys)) < 60
    shown.chosen[Pane.JOBS] = "j999"
    assert any(line.startswith("> j999") for line in drawn(shown, LARGE))


def test_the_chosen_row_stays_chosen_when_rows_move_and_its_place_when_it_is_gone() -> None:
    shown = board(job("b"), job("c"), job("d"))
    shown.chosen[Pane.JOBS] = "c"
    assert any(line.startswith("> c ") for line in drawn(shown))
    shown.jobs["a"] = job("a", "NEEDS_YOU", "Hangs")
    assert any(line.startswith("> c ") for line in drawn(shown))
    del shown.jobs["c"]
    assert any(line.startswith("> d ") for line in drawn(shown))
    shown.jobs.clear()
    assert not any(line.startswith(">") for line in drawn(shown))


def test_a_gpu_is_one_character_with_its_load() -> None:
    loaded = host("h1", 4, problem="Xid 79")
    loaded.inventory.gpus[0].job_id = loaded.inventory.gpus[1].job_id = "j"
    shown = board(loaded, pane=Pane.HOSTS, load={"GPU-h1-0": 100.0})
    row = next(line for line in drawn(shown) if "h1" in line)
    assert row.split()[2:6] == ["READY", "█?·!", "100", "%"]
    shown.load = {"GPU-h1-0": 0.0, "GPU-h1-1": 57.0}
    plain = Look(80, 24, colour=False, unicode=False)
    assert any("05.!" in row for row in drawn(shown, plain))


def test_goodput_is_shown_where_it_is_known() -> None:
    shown = board(job("a"), job("b"), goodput={"a": Goodput(0.9641, NOW), "b": Goodput(None, NOW)})
    lines = drawn(shown)
    assert any("96.4 %" in line for line in lines)
    assert "96.4" not in next(line for line in lines if " b " in line)


def test_colours_are_those_of_ps_and_none_without() -> None:
    assert any("\x1b[36mRUNNING\x1b[0m" in line for line in frame(busy(), NOW, Look(80, 24, True, True)))
    assert not any("\x1b" in line for line in frame(busy(), NOW, SMALL))


def test_a_controller_of_an_older_release_has_no_summary() -> None:
    old = job("old")
    old.ClearField("summary")
    old.ClearField("gpu_count")
    old.wait_reason = "no host has 8 free GPUs"
    text = "\n".join(drawn(board(old)))
    assert "no host has 8 free GPUs" in text and "waits" in text


ENDS = "Between Tue 14:00 and Tue 19:00 (80 %), from 3 h of steps, if it goes on to be interrupted as before"


def running(**fields: Any) -> job_pb2.CustomJob:
    """A job that was interrupted, with an expected end."""
    made = job("job-a", **fields)
    made.summary.happened = "3 interruptions, the last 3 h ago: rank 19 stood still in its data loader"
    made.summary.done = "Relaunched in place as generation 4; back at its step after 2 m"
    made.expected_end.words = ENDS
    return made


@pytest.mark.parametrize("look", [SMALL, LARGE])
def test_the_chosen_job_s_expected_end_is_shown_whole(look: Look) -> None:
    text = " ".join(" ".join(drawn(board(running()), look)).split())
    assert f"ends {ENDS} happened 3 interruptions" in text
    assert "done Relaunched in place as generation 4; back at its step after 2 m to do Nothing" in text


def test_of_a_chosen_job_among_many_the_end_is_kept_and_the_past_gives_way() -> None:
    shown = board(running(), *(job(f"job-{number}") for number in range(30)))
    shown.chosen[Pane.JOBS] = "job-a"
    lines = drawn(shown)
    assert [line.split()[0] for line in lines[-4:-1]] == ["now", "ends", "to"]


def test_lines_about_the_chosen_row_stay_where_they_are_as_it_moves() -> None:
    shown = board(running(), job("job-b", "WAITS", "Needs 2 GPUs on one host"), job("job-c", "ENDED", "Failed"))
    rules = []
    for name in ("job-a", "job-b", "job-c"):
        shown.chosen[Pane.JOBS] = name
        rules.append(next(at for at, line in enumerate(drawn(shown)) if line.startswith(f"── {name} ")))
    assert len(set(rules)) == 1
