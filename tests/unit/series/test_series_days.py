"""Days of quarter-hours that lie beside the hours that they were made of: they show the same, and count for nothing."""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast._series.block import Block, Track, pack, unpack
from holdfast._series.figures import Figure
from holdfast._series.joining import joined
from holdfast_controller.shell.store.series import file as series_file
from holdfast_controller.shell.store.series.file import (
    DAY,
    EARLIER_S,
    HOUR,
    MINUTE,
    QUARTER,
    Limits,
    Piece,
    SeriesFile,
)

START = 1_790_000_000 // DAY * DAY
RANKS = range(2)
MADE = START + DAY + EARLIER_S + 1
"""When the first day may be made."""
FOLDED = START + DAY + HOUR
"""When its hours are put together and it is not made yet."""


def minute(at: int, generation: int, dice: random.Random) -> Piece:
    """One in twenty has no GPU to see, and of one in ten there are fewer looks."""
    tracks = {}
    for rank in RANKS:
        low = dice.uniform(0, 50)
        util = Track([low + dice.uniform(0, 25)], [low], [low + dice.uniform(25, 50)])
        tracks[rank, Figure.SAMPLES] = Track.flat([30 if dice.random() < 0.9 else dice.randrange(1, 30)])
        tracks[rank, Figure.STEP] = Track.flat([(at - START) // 7 + rank])
        tracks[rank, Figure.THROTTLE] = Track.flat([dice.choice((0, 0, 4, 8))])
        if dice.random() > 0.05:
            tracks[rank, Figure.GPU_UTIL] = util
    return Piece("train-1", "workerpool0-0", generation, at, at + MINUTE, pack(Block(at, MINUTE, 1, tracks)))


def lived(file: SeriesFile, days: float = 1.5) -> None:
    """A worker's life with a restart in the middle of an hour, and half an hour of which nothing is known."""
    dice = random.Random(7)
    minutes = [START + n * MINUTE for n in range(int(days * DAY / MINUTE)) if not 300 <= n < 330]
    file.write([minute(at, 1 if at < START + 7 * HOUR + 20 * MINUTE else 2, dice) for at in minutes])


def tidy(file: SeriesFile, now_s: float, limits: Limits | None = None) -> None:
    for _ in range(1_000):
        if not file.tidy(now_s, limits or Limits()):
            return
    raise AssertionError("there is always more to do")


def rows(file: SeriesFile, *, coarse: bool = True) -> list[tuple[int, int]]:
    """(Start, span) of what is read."""
    return [(start, span) for start, span, _ in file.blocks("train-1", 0, 1 << 40, None, coarse=coarse)]


def shown(file: SeriesFile, *, coarse: bool, step: int = 2 * HOUR) -> Block:
    read = file.blocks("train-1", START, START + 3 * DAY, ["workerpool0-0"], coarse=coarse)
    return joined([unpack(data) for _, _, data in read], START, step, 3 * DAY // step)


def alike(one: Block, other: Block) -> None:
    """The same but for the resolution that a mean is stored with, of quarters of an hour once more."""
    assert one.tracks.keys() == other.tracks.keys()
    for key, track in one.tracks.items():
        there = other.tracks[key]
        for found, expected in zip(track.mean, there.mean, strict=True):
            assert math.isnan(found) == math.isnan(expected)
            assert math.isnan(found) or abs(found - expected) <= (0.5 if key[1] is Figure.GPU_UTIL else 0), key
        assert str(track.least) == str(there.least) or key[1] is not Figure.GPU_UTIL
        assert str(track.most) == str(there.most) or key[1] is not Figure.GPU_UTIL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "series.db"


@pytest.fixture
def file(path: Path) -> Iterator[SeriesFile]:
    made = SeriesFile(path, reserve_bytes=0)
    yield made
    made.close()


@pytest.mark.parametrize("step", [2 * QUARTER, 5 * QUARTER, 2 * HOUR, 29 * QUARTER])
def test_a_day_shows_what_its_minutes_show(file: SeriesFile, step: int) -> None:
    lived(file)
    tidy(file, MADE)
    assert rows(file)[:2] == [(START, DAY), (START, DAY)]  # of two generations
    assert [span for _, span in rows(file)[2:]] == [HOUR] * 12
    assert DAY not in {span for _, span in rows(file, coarse=False)}
    alike(shown(file, coarse=True, step=step), shown(file, coarse=False, step=step))


def test_it_is_made_once_nothing_more_can_come_and_drops_with_the_minutes(file: SeriesFile) -> None:
    lived(file, days=1)
    tidy(file, MADE - 2)
    assert {span for _, span in rows(file)} == {HOUR}
    tidy(file, MADE)
    before = shown(file, coarse=True)
    assert {span for _, span in rows(file)} == {DAY}
    while file.tidy(START + 32 * DAY, Limits()):
        assert str(shown(file, coarse=True).tracks) == str(before.tracks)
    assert rows(file) == rows(file, coarse=False) == [(START, DAY)] * 2
    tidy(file, START + 500 * DAY)
    assert rows(file) == []


def test_a_minute_that_comes_late_all_the_same_is_in_it(file: SeriesFile) -> None:
    lived(file, days=1)
    tidy(file, MADE)
    size = sum(shown(file, coarse=True).tracks[0, Figure.SAMPLES].mean[:12])
    late = Block(START + 310 * MINUTE, MINUTE, 1, {(0, Figure.SAMPLES): Track.flat([30])})
    file.write([Piece("train-1", "workerpool0-0", 1, late.start, late.end, pack(late))])

    def samples() -> float:
        return sum(shown(file, coarse=True).tracks[0, Figure.SAMPLES].mean[:12]) - size

    assert samples() == 30  # beside the day, as long as its hour has it not
    steps = 0
    while file.tidy(MADE, Limits()):
        assert samples() == 30
        steps += 1
    assert steps == 2  # the hour, and the day
    assert {span for _, span in rows(file)} == {DAY}


def crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Have the upkeep fail at its so many-th putting together of blocks; returns how many there were."""
    whole, calls = series_file._together, [0]

    def together(*asked: object) -> bytes | None:
        calls[0] += 1
        if calls[0] == at:
            raise sqlite3.OperationalError("the machine is gone")
        return whole(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(series_file, "_together", together)
    return lambda: calls[0]


@pytest.mark.parametrize("now_s", [MADE, START + 33 * DAY])
def test_a_crash_at_any_point_of_the_upkeep_loses_and_doubles_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, now_s: int
) -> None:
    file = SeriesFile(path, reserve_bytes=0)
    lived(file)
    tidy(file, FOLDED)
    expected = shown(file, coarse=False)
    if now_s > MADE:
        tidy(file, MADE)
    at = 1
    while True:
        with monkeypatch.context() as patch:
            calls = crashing(patch, at)
            try:
                tidy(file, now_s)
            except sqlite3.OperationalError:
                file.close()  # what was not committed is gone
            else:
                break
            assert calls() == at
        alike(shown(file, coarse=True), expected)
        alike(shown(file, coarse=False), expected)
        at += 1
        if at % 2:
            assert file.tidy(now_s, Limits())  # goes on from wherever that was
    assert at > 2
    alike(shown(file, coarse=True), expected)
    assert DAY in {span for _, span in rows(file)}
    file.close()


def test_days_are_made_of_the_hours_of_an_old_file_and_an_old_release_can_go_on_with_it(path: Path) -> None:
    file = SeriesFile(path, reserve_bytes=0)
    lived(file)
    tidy(file, FOLDED)
    file.close()
    with sqlite3.connect(path) as old:
        old.executescript(
            "DROP TRIGGER hour_is_written; DROP TRIGGER day_is_written; DROP TABLE days; PRAGMA user_version = 1;"
        )
    alike(shown(file, coarse=True), shown(file, coarse=False))
    tidy(file, MADE)
    assert rows(file)[0] == (START, DAY)
    alike(shown(file, coarse=True), shown(file, coarse=False))
    file.close()
    # An earlier release writes an hour anew, and knows nothing of days.
    with sqlite3.connect(path) as old:
        assert old.execute("PRAGMA user_version").fetchone() == (1,)
        columns = "job, start, worker, generation, span, data"
        old.execute(
            f"INSERT OR REPLACE INTO blocks ({columns}) SELECT {columns} FROM blocks WHERE start = ?", (START,)
        )
    assert rows(file)[0] == (START, HOUR)
    tidy(file, MADE)
    assert rows(file)[0] == (START, DAY)
    alike(shown(file, coarse=True), shown(file, coarse=False))
    file.close()


def test_what_is_cut_and_what_is_forgotten_leaves_no_day(file: SeriesFile, path: Path) -> None:
    lived(file, days=3)
    tidy(file, MADE + 2 * DAY)

    def days() -> int:
        with sqlite3.connect(path) as seen:
            return int(seen.execute("SELECT count(*) FROM days WHERE data IS NOT NULL").fetchone()[0])

    assert days() == 4
    tidy(file, MADE + 2 * DAY, Limits(most_bytes=file.size() // 2))
    assert rows(file, coarse=False) == rows(file) == []  # a cut takes 256 blocks
    assert days() == 0
    lived(file, days=1)
    tidy(file, MADE)
    assert days() == 2
    file.forget(["train-1"])
    assert days() == 0


def test_hours_that_are_cut_leave_their_day_until_all_of_it_has_gone(
    file: SeriesFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would be made again after each cut, of the hours that are left."""
    monkeypatch.setattr(series_file, "CUT_AT_ONCE", 1)
    lived(file, days=2)
    tidy(file, MADE + DAY)
    made = []
    monkeypatch.setattr(series_file, "_together", lambda *_: made.append(1))
    for _ in range(30):
        assert file.tidy(MADE + DAY, Limits(most_bytes=1))
    assert not made
    assert rows(file, coarse=False)[0] > (START + DAY, 0)
    assert rows(file) == [(START + DAY, DAY)]


def test_a_day_of_hours_that_none_can_read_is_not_made(file: SeriesFile) -> None:
    lived(file, days=1)
    tidy(file, FOLDED)
    file._database().execute("UPDATE blocks SET data = x'00'")
    tidy(file, MADE)
    assert {span for _, span in rows(file)} == {HOUR}
    assert not file.tidy(MADE, Limits())


def test_a_day_whose_hours_none_can_read_any_more_drops_with_them(file: SeriesFile) -> None:
    lived(file, days=1)
    tidy(file, MADE)
    file._database().execute("UPDATE blocks SET data = x'00'")
    assert shown(file, coarse=True).ranks
    tidy(file, START + 32 * DAY)
    assert rows(file) == []


def test_with_little_disk_left_no_day_is_made_and_the_upkeep_goes_on(path: Path) -> None:
    file = SeriesFile(path, reserve_bytes=0)
    lived(file, days=1)
    file.close()
    file = SeriesFile(path, reserve_bytes=1 << 60)
    tidy(file, MADE)
    assert {span for _, span in rows(file)} == {HOUR}
    tidy(file, START + 500 * DAY)
    assert rows(file) == []
    file.close()
