"""Keys move, sort, filter, and lead to the commands that say more."""

from __future__ import annotations

import pytest
from tests.unit.cli.top.boards import LARGE, NOW, alert, board, drawn, host, job

from holdfast.cli.top.board import ROWS, ROWS_MOST, Board, Goodput, Group, Pane
from holdfast.cli.top.keys import HELP, Ask, Run, press


def pressed(shown: Board, *keys: str) -> Ask | Run | None:
    """The answer to the last of these keys; a frame is drawn after each, as on a screen."""
    answer = None
    drawn(shown)
    for key in keys:
        answer = press(shown, key, key if len(key) == 1 else "", NOW)
        drawn(shown)
    return answer


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["down"], "j1"),
        (["j", "j", "k"], "j1"),
        (["end"], "j4"),
        (["G", "g"], "j0"),
        (["down"] * 9, "j4"),
        (["up"], "j0"),
        (["pagedown"], "j4"),
        (["pagedown", "pageup"], "j0"),
    ],
)
def test_the_chosen_row_moves_and_stops_at_the_ends(keys: list[str], chosen: str) -> None:
    shown = board(*(job(f"j{n}") for n in range(5)))
    pressed(shown, *keys)
    assert shown.chosen[Pane.JOBS] == chosen


def test_moving_in_an_empty_list_does_nothing() -> None:
    shown = board()
    for key in ("down", "up", "home", "end", "pageup", "pagedown", "tab", "down"):
        assert pressed(shown, key) is None


def test_lists_are_reached_by_tab_and_by_number() -> None:
    shown = board()
    assert [pressed(shown, "tab") or shown.pane for _ in range(3)] == [Pane.HOSTS, Pane.ALERTS, Pane.JOBS]
    assert [pressed(shown, key) or shown.pane for key in ("shift+tab", "2")] == [Pane.ALERTS, Pane.HOSTS]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("enter", ("job", "show", "--", "j1")),
        ("l", ("logs", "--follow", "--tail", "100", "--", "j1")),
        ("t", ("job", "stacks", "--", "j1")),
        ("h", ("job", "hangs", "--", "j1")),
        ("e", ("job", "events", "--", "j1")),
    ],
)
def test_a_key_runs_the_command_for_the_chosen_job(key: str, words: tuple[str, ...]) -> None:
    assert pressed(board(job("j1")), key) == Run(words)
    hanging = board(job("j1"), alert("HANG", "job/j1", "hangs"), pane=Pane.ALERTS)
    assert pressed(hanging, key) == Run(words)


def test_of_a_host_there_are_other_commands() -> None:
    shown = board(host("h1"), pane=Pane.HOSTS)
    assert pressed(shown, "enter") == Run(("host", "show", "--", "h1"))
    assert pressed(shown, "e") == Run(("host", "events", "--", "h1"))
    assert pressed(shown, "l") is None and drawn(shown)[-1] == "That is for jobs; of a host: Enter, e."
    assert pressed(shown, "down") is None and "That is for jobs" not in drawn(shown)[-1]


def test_without_a_row_no_command_is_run() -> None:
    shown = board(alert("NOTIFICATIONS", "lab", "can't be reached"))
    assert pressed(shown, "enter") is None and drawn(shown)[-1] == "No row is chosen."
    assert pressed(shown, "3", "enter") is None


def test_sorting_goes_round_and_back() -> None:
    shown = board(
        job("a", age_s=10, gpu_count=1, owner="zoe"),
        job("b", age_s=99, gpu_count=64, owner="ann"),
        job("c", "NEEDS_YOU", age_s=50, gpu_count=8, owner="bob"),
        goodput={"a": Goodput(0.9, NOW), "c": Goodput(0.5, NOW)},
    )
    found = []
    for _ in range(5):
        found.append("".join(shown.keys(Pane.JOBS, NOW)))
        pressed(shown, "s")
    assert found == ["cab", "acb", "bca", "cab", "bca"]
    assert shown.orders[Pane.JOBS] == 0


def test_lost_and_faulty_hosts_come_first_until_they_are_sorted_by_name() -> None:
    shown = board(
        host("a"), host("b", cordoned=True), host("c", problem="Xid 79"), host("d", state=3), pane=Pane.HOSTS
    )
    assert shown.keys(Pane.HOSTS, NOW) == ["d", "c", "b", "a"]
    pressed(shown, "s")
    assert shown.keys(Pane.HOSTS, NOW) == ["a", "b", "c", "d"]


def test_jobs_are_searched_by_the_controller_when_the_text_is_complete() -> None:
    shown = board(job("j1"))
    assert pressed(shown, "/", "a", "n", "x", "backspace") is None
    assert drawn(shown)[-1] == "/an_"
    assert pressed(shown, "enter") is Ask.JOBS
    assert shown.search[Pane.JOBS] == "an" and shown.typing is None
    assert "with 'an'" in "\n".join(drawn(shown, LARGE))
    assert pressed(shown, "escape") is Ask.JOBS and not shown.search[Pane.JOBS]
    assert pressed(shown, "escape") is None


def test_keys_of_commands_are_letters_while_a_text_is_typed() -> None:
    shown = board(job("j1"))
    assert pressed(shown, "/", "q", "s", "?", "1") is None
    assert shown.typing == "qs?1" and shown.pane is Pane.JOBS
    assert pressed(shown, "escape") is None and shown.typing is None
    pressed(shown, "/", *"x" * 300)
    assert shown.typing == "x" * 100


def test_hosts_are_filtered_as_the_text_is_typed() -> None:
    shown = board(host("a1", labels={"rack": "r7"}), host("b1", job="train-9"), pane=Pane.HOSTS)
    pressed(shown, "/", "r", "7")
    assert shown.keys(Pane.HOSTS, NOW) == ["a1"]
    pressed(shown, "escape", "/", *"train-9")
    assert shown.keys(Pane.HOSTS, NOW) == ["b1"]
    pressed(shown, "x", "enter")
    assert any("No row matches; Esc shows all." in line for line in drawn(shown))


def test_groups_of_jobs_go_round_and_are_asked_for() -> None:
    shown = board(job("j1"), pane=Pane.HOSTS, limit=600)
    groups = []
    for _ in Group:
        assert pressed(shown, "f") is Ask.JOBS
        groups.append(shown.group)
    assert groups == [Group.RUNNING, Group.WAITING, Group.ENDED, Group.ALL]
    assert (shown.pane, shown.limit) == (Pane.JOBS, ROWS)


def test_the_last_row_asks_for_more_up_to_a_bound() -> None:
    shown = board(job("j1"), job("j2"), more_jobs=True)
    assert pressed(shown, "up") is None
    for limit in range(ROWS * 2, ROWS_MOST + 1, ROWS):
        assert pressed(shown, "end") is Ask.JOBS and shown.limit == limit
    assert pressed(shown, "end") is None and shown.limit == ROWS_MOST
    assert "No more than 1000 jobs" in drawn(shown)[-1]


def test_help_lists_the_keys_and_any_key_leaves_it() -> None:
    shown = board(job("j1"))
    pressed(shown, "?")
    assert all(any(keys in line for line in drawn(shown, LARGE)) for keys, _ in HELP)
    assert pressed(shown, "down") is None and not shown.helps and shown.chosen[Pane.JOBS] == "j1"


@pytest.mark.parametrize("keys", [["q"], ["?", "q"]])
def test_q_leaves(keys: list[str]) -> None:
    assert pressed(board(), *keys) is Ask.QUIT


def test_ctrl_c_leaves_the_screen_but_first_the_text() -> None:
    shown = board()
    assert press(shown, "ctrl+c", "\x03", NOW) is Ask.QUIT
    pressed(shown, "/", "a")
    assert press(shown, "ctrl+c", "\x03", NOW) is None and shown.typing is None
