"""Columns for people."""

from __future__ import annotations

from holdfast.cli.kit.table import Cell, Column, cell_len, cut, render

COLUMNS = (Column("ID"), Column("NAME", give=True), Column("N", right=True))


def lines(rows: list[list[Cell | str]], width: int | None = None, *, colour: bool = False) -> list[str]:
    return render(COLUMNS, rows, width=width, colour=colour).splitlines()


def test_columns_are_aligned() -> None:
    assert lines([["a", "long name", "5"], ["bbb", "x", "10"]]) == [
        "ID   NAME        N",
        "a    long name   5",
        "bbb  x          10",
    ]


def test_only_a_terminal_cuts() -> None:
    row: list[Cell | str] = ["a", "a name that is far too long", "5"]
    assert lines([row])[1] == "a   a name that is far too long  5"
    cut_line = lines([row], 24)[1]
    assert cut_line == "a   a name that is f…  5"


def test_a_terminal_too_narrow_keeps_what_matters() -> None:
    assert lines([["a", "a name that is far too long", "5"]], 5)[1] == "a   a name…   5"


def test_two_long_columns_share_the_room() -> None:
    columns = (Column("A", give=True), Column("B", give=True))
    (_, line) = render(columns, [["x" * 40, "y" * 60]], width=42, colour=False).splitlines()
    assert len(line) == 42
    assert abs(line.count("x") - line.count("y")) <= 1


def test_wide_characters_count_twice() -> None:
    assert lines([["a", "訓練", "5"], ["b", "abcd", "6"]])[1:] == ["a   訓練  5", "b   abcd  6"]
    assert [cut("訓練訓練", width) for width in (5, 4, 2, 1, 0)] == ["訓練…", "訓…", "…", "…", "…"]


def test_what_is_drawn_on_another_character_takes_no_cell() -> None:
    assert [cell_len(text) for text in ("é", "e\u0301", "\u1112\u116e\u11ab", "a\u200bb")] == [1, 1, 2, 2]


def test_nothing_drives_the_terminal_of_the_reader() -> None:
    assert lines([["a", "x\x1b[31m\ny", "5"]])[1] == "a   x?[31m y  5"


def test_colour_does_not_disturb_the_alignment() -> None:
    plain, coloured = (lines([[Cell("a", "31"), "b", "5"]], colour=c)[1] for c in (False, True))
    assert coloured.replace("\x1b[31m", "").replace("\x1b[0m", "") == plain
    assert "\x1b[31ma\x1b[0m" in coloured
