"""The file of series, whatever happens to it: damaged, full, deleted, frozen. Nothing ever waits for it."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from holdfast._series.block import Block, Track, pack, unpack
from holdfast._series.figures import Figure
from holdfast.errors import Unavailable
from holdfast_controller.shell.store.series import store as series_store
from holdfast_controller.shell.store.series.file import DAY, HOUR, MINUTE, Limits, Piece, SeriesFile, TooFull
from holdfast_controller.shell.store.series.store import SeriesStore

START = 1_790_000_000 // DAY * DAY


def piece(at: int, value: float = 5.0, *, job: str = "train-1", generation: int = 1, samples: float = 30) -> Piece:
    tracks = {(0, Figure.CPU): Track.flat([value]), (0, Figure.SAMPLES): Track.flat([samples])}
    block = Block(at, MINUTE, 1, tracks)
    return Piece(job, "workerpool0-0", generation, at, at + MINUTE, pack(block))


def recording(at: int, name: str) -> Piece:
    block = Block(at, 2, 450, {(0, Figure.CPU): Track.flat([1.0] * 450)})
    return Piece("train-1", "workerpool0-0", 1, at, block.end, pack(block), name, 3)


def cpu(file: SeriesFile, job: str = "train-1") -> dict[int, float]:
    """Every known value by its time."""
    found = {}
    for _, _, data in file.blocks(job, 0, 1 << 40, None):
        block = unpack(data)
        for slot, value in enumerate(block.tracks[0, Figure.CPU].mean):
            if not math.isnan(value):
                found[block.start + slot * block.step] = round(value, 3)
    return found


def spans(file: SeriesFile) -> list[int]:
    return [span for _, span, _ in file.blocks("train-1", 0, 1 << 40, None)]


def tidy(file: SeriesFile, now_s: float, limits: Limits | None = None) -> None:
    for _ in range(1_000):
        if not file.tidy(now_s, limits or Limits()):
            return
    raise AssertionError("there is always more to do")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "series.db"


@pytest.fixture
def file(path: Path) -> Iterator[SeriesFile]:
    made = SeriesFile(path, reserve_bytes=0)
    yield made
    made.close()


def test_minutes_become_hours_and_hours_become_quarters(file: SeriesFile) -> None:
    file.write([piece(START + at * MINUTE, at) for at in range(120)])
    tidy(file, START + 2 * HOUR + 400)
    assert spans(file) == [HOUR, HOUR]
    assert cpu(file) == {START + at * MINUTE: at for at in range(120)}
    tidy(file, START + 32 * DAY)
    assert spans(file) == [DAY]
    assert cpu(file) == {START + quarter * 900: quarter * 15 + 7 for quarter in range(8)}
    tidy(file, START + 500 * DAY)
    assert spans(file) == []


def test_an_hour_is_put_together_once_it_is_over_and_late_minutes_are_added(file: SeriesFile) -> None:
    file.write([piece(START + at * MINUTE, 1) for at in range(10)])
    tidy(file, START + HOUR)
    assert spans(file) == [MINUTE] * 10
    tidy(file, START + HOUR + 400)
    file.write([piece(START + 30 * MINUTE, 9)])
    tidy(file, START + HOUR + 400)
    assert spans(file) == [HOUR]
    assert cpu(file)[START + 30 * MINUTE] == 9
    assert len(cpu(file)) == 11


def test_a_minute_in_two_parts_is_one_minute(file: SeriesFile) -> None:
    file.write([piece(START, 2, samples=20)])
    file.write([piece(START, 8, samples=10)])
    assert cpu(file) == {START: 4}
    file.write([piece(START, 9, generation=2)])
    assert spans(file) == [MINUTE, MINUTE]


def test_the_oldest_go_where_there_is_too_much(file: SeriesFile) -> None:
    for hour in range(40):
        file.write([piece(START + hour * HOUR + at * MINUTE, at) for at in range(0, 60, 5)])
    tidy(file, START + 41 * HOUR)
    before = file.size()
    file.write([piece(START + 42 * HOUR + at * MINUTE, at) for at in range(60)])
    tidy(file, START + 42 * HOUR, Limits(most_bytes=before // 2))
    assert file.size() <= before // 2 or not spans(file)


def test_what_is_deleted_leaves_nothing(file: SeriesFile) -> None:
    file.write([piece(START), piece(START, job="other-1"), recording(START, "exit-1-workerpool0-0")])
    assert file.jobs() == {"train-1", "other-1"}
    file.forget(["train-1"])
    assert file.jobs() == {"other-1"}
    assert file.recordings("train-1") == []


def test_recordings_are_listed_and_read(file: SeriesFile) -> None:
    file.write([recording(START, "exit-1-workerpool0-0"), recording(START + 2000, "hang-1")])
    assert [one.name for one in file.recordings("train-1")] == ["exit-1-workerpool0-0", "hang-1"]
    ((start, length, data),) = file.recording("train-1", "hang-1")
    assert (start, length, unpack(data).slots) == (START + 2000, 900, 450)
    assert file.recording("train-1", "hang-2") == []


@pytest.mark.parametrize("wrong", ["no database", "header", "middle", "another database"])
def test_a_damaged_file_is_set_aside_and_begun_again(path: Path, wrong: str) -> None:
    first = SeriesFile(path, reserve_bytes=0)
    first.write([piece(START + at * MINUTE) for at in range(500)])
    first.close()
    if wrong == "no database":
        path.write_bytes(b"anything else" * 1000)
    elif wrong == "another database":
        path.unlink()
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE blocks (something TEXT)")
    else:
        data = bytearray(path.read_bytes())
        at = 0 if wrong == "header" else 4096
        data[at : at + 60_000] = os.urandom(60_000)
        path.write_bytes(data)
    file = SeriesFile(path, reserve_bytes=0)
    for _ in range(3):
        try:
            file.write([piece(START + 900 * MINUTE)])
            assert cpu(file)[START + 900 * MINUTE] == 5
            break
        except sqlite3.Error as error:
            file.recover(error)
    else:
        raise AssertionError("it is never well again")
    file.close()
    assert path.with_suffix(".damaged").exists()


def test_a_file_of_a_newer_release_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 7")
    file = SeriesFile(path, reserve_bytes=0)
    with pytest.raises(sqlite3.Error, match="newer release") as raised:
        file.write([piece(START)])
    file.recover(raised.value)
    assert path.exists()
    assert not path.with_suffix(".damaged").exists()


def test_a_block_that_is_damaged_is_left_out_of_its_hour(file: SeriesFile) -> None:
    good = piece(START)
    file.write([good, Piece("train-1", "workerpool0-0", 1, START + MINUTE, START + 2 * MINUTE, b"garbage")])
    tidy(file, START + 2 * HOUR)
    assert cpu(file) == {START: 5}


def test_the_largest_value_of_all_may_be_alone_in_its_hour(file: SeriesFile) -> None:
    """A host may send it; while an hour can't be put together nothing else is kept."""
    file.write([piece(START + MINUTE, 1e9), piece(START + MINUTE, 5.0, job="train-2")])
    tidy(file, START + 2 * HOUR)
    assert spans(file) == [HOUR]
    assert cpu(file, "train-2") == {START + MINUTE: 5}


def test_a_damaged_file_on_a_disk_that_is_read_only_is_no_more_than_trouble(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    path.write_bytes(b"garbage" * 1_000)
    file = SeriesFile(path, reserve_bytes=0)
    with pytest.raises(sqlite3.Error) as raised:
        file.size()
    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", refused)
        disk.setattr(Path, "unlink", refused)
        file.recover(raised.value)
    file.recover(raised.value)
    file.write([piece(START)])
    assert cpu(file) == {START: 5}
    file.close()


@pytest.mark.parametrize("journals", [True, False])
def test_a_file_that_is_deleted_while_it_is_open_is_made_again(
    file: SeriesFile, path: Path, journals: bool
) -> None:
    file.write([piece(START)])
    path.unlink()
    if journals:
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink()
    file.write([piece(START + MINUTE)])
    assert cpu(file) == {START + MINUTE: 5}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_disk_with_little_left_is_left_to_the_store(path: Path) -> None:
    file = SeriesFile(path, reserve_bytes=1 << 60)
    with pytest.raises(TooFull, match="MiB are free"):
        file.write([piece(START)])
    assert not path.exists()


def fill(file: SeriesFile) -> None:
    for first in range(0, 1_000_000, 50):
        file.write([recording(START, f"exit-{at}") for at in range(first, first + 50)])


@pytest.mark.require("root")
def test_a_full_disk_loses_nothing_that_was_there(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "series-test", disk], check=True)
    try:
        file = SeriesFile(disk / "series.db", reserve_bytes=0)
        file.write([piece(START)])
        with pytest.raises((sqlite3.Error, OSError)) as raised:
            fill(file)
        file.recover(raised.value)
        assert cpu(file) == {START: 5}
        assert not (disk / "series.damaged").exists()
        file.close()
    finally:
        subprocess.run(["umount", disk], check=True)


# --- the thread ---------------------------------------------------------------------------------------------------


class Frozen(SeriesFile):
    """A file whose disk hangs until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, reserve_bytes=0)
        self.gate = threading.Event()
        self.gate.set()
        self.hanging = threading.Event()

    def write(self, pieces: object) -> None:
        if not self.gate.is_set():
            self.hanging.set()
        self.gate.wait()
        super().write(pieces)  # type: ignore[arg-type]


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110  # a thread's doing
            await asyncio.sleep(0.01)


@pytest.fixture
def unusable(path: Path) -> Path:
    """The place of the file, where none can be opened; ask for it before the store."""
    os.mkdir(path)
    return path


@pytest.fixture
async def frozen(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SeriesStore, Frozen]]:
    monkeypatch.setattr(series_store, "BATCH_EVERY_S", 0.02)
    monkeypatch.setattr(series_store, "TRY_AGAIN_S", 0.05)
    monkeypatch.setattr(series_store, "CLOSED_WITHIN_S", 0.2)
    file = Frozen(path)
    store = SeriesStore(file, Limits)
    store.start()
    yield store, file
    file.gate.set()
    store.close()


async def test_what_is_put_is_kept_and_can_be_asked_for(frozen: tuple[SeriesStore, Frozen]) -> None:
    store, _ = frozen
    assert store.put(piece(START))
    await until(lambda: store.kept == 1)
    assert await store.ask(cpu) == {START: 5}


async def test_a_frozen_disk_holds_nothing_up(
    frozen: tuple[SeriesStore, Frozen], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file = frozen
    monkeypatch.setattr(series_store, "WAITING_BYTES", 2_000)
    monkeypatch.setattr(series_store, "READ_WITHIN_S", 0.1)
    file.gate.clear()
    taken = 0
    while store.put(piece(START + taken * MINUTE)):
        taken += 1
        assert taken < 1000
    assert store.full
    await until(file.hanging.is_set)
    with pytest.raises(Unavailable, match="slow or hangs"):
        await store.ask(cpu)
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 20
    file.gate.set()


async def test_readings_of_a_frozen_disk_do_not_pile_up(
    frozen: tuple[SeriesStore, Frozen], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file = frozen
    monkeypatch.setattr(series_store, "READ_WITHIN_S", 30.0)
    file.gate.clear()
    store.put(piece(START))
    await until(file.hanging.is_set)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(store.ask(cpu, f"user-{at}")) for at in range(series_store.READS_MOST)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="too often"):
            await store.ask(cpu)
        file.gate.set()
    assert [one.result() for one in asked] == [{START: 5}] * series_store.READS_MOST


async def test_one_users_readings_wait_for_each_other_and_leave_room_to_those_of_others(
    frozen: tuple[SeriesStore, Frozen], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file = frozen
    monkeypatch.setattr(series_store, "READ_WITHIN_S", 30.0)
    file.gate.clear()
    store.put(piece(START))
    await until(file.hanging.is_set)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(store.ask(cpu, "ann")) for _ in range(3 * series_store.READS_MOST)]
        await asyncio.sleep(0)
        asked.append(tasks.create_task(store.ask(cpu, "bob")))
        await asyncio.sleep(0)
        file.gate.set()
    assert [one.result() for one in asked] == [{START: 5}] * (3 * series_store.READS_MOST + 1)


async def test_after_trouble_what_waited_is_kept(unusable: Path, frozen: tuple[SeriesStore, Frozen]) -> None:
    store, _ = frozen
    assert store.put(piece(START))
    await until(lambda: store.problem != "")
    assert store.waiting == 1
    os.rmdir(unusable)
    await until(lambda: store.kept == 1)
    assert store.problem == ""
    assert await store.ask(cpu) == {START: 5}


async def test_series_of_unknown_jobs_are_dropped(frozen: tuple[SeriesStore, Frozen]) -> None:
    store, _ = frozen
    store.put(piece(START))
    store.put(piece(START, job="gone-1"))
    await until(lambda: store.kept == 2)
    await store.forget_all_but(lambda job: job == "train-1")
    assert await store.ask(lambda file: file.jobs()) == {"train-1"}
