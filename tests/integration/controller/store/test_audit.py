"""The audit log on a real disk: bounded, readable after a torn line, and loud when it can't be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.errors import StoreError
from holdfast_controller.shell.base import audit
from holdfast_controller.shell.base.audit import Audit, Entry

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def entry(number: int, **more: str) -> Entry:
    said: dict[str, Any] = {"who": "user/ann", "peer": "10.0.0.1", "call": "JobService/CreateJob", **more}
    return Entry(float(number), **said)


def sizes(directory: Path) -> list[int]:
    return [path.stat().st_size for path in directory.iterdir()]


def modes(directory: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in directory.iterdir()}


async def test_what_was_written_is_read_back_newest_last(tmp_path: Path) -> None:
    log = Audit(tmp_path)
    for number in range(5):
        log.write(entry(number))
    log.write(entry(5, who="user/bob", outcome="DENIED", message="no"))
    assert await log.read(3) == [entry(3), entry(4), entry(5, who="user/bob", outcome="DENIED", message="no")]
    assert [e.time for e in await log.read(3, who="user/ann")] == [2.0, 3.0, 4.0]
    assert [e.time for e in await Audit(tmp_path).read(9, refused=True)] == [5.0]
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


async def test_it_stays_within_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES", 2000)
    monkeypatch.setattr(audit, "FILES", 3)
    log = Audit(tmp_path)
    for number in range(200):
        log.write(entry(number))
        await log.flush()
    assert len(sizes(tmp_path)) == 3
    assert sum(sizes(tmp_path)) < 3 * 2300
    kept = [e.time for e in await log.read(1000)]
    assert kept == [float(number) for number in range(200 - len(kept), 200)]
    assert len(kept) > 20


async def test_no_entry_is_lost_while_calls_come_in_and_the_file_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES", 20_000)
    monkeypatch.setattr(audit, "DURABLE_S", 0.01)
    log = Audit(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.run)
        for number in range(1000):
            log.write(entry(number))
            if number % 20 == 0:
                await anyio.sleep(0.001)
            if number % 200 == 199:
                await log.flush()  # however slow the disk is, no batch is larger than a file
        tasks.cancel_scope.cancel()
    assert len(sizes(tmp_path)) > 2
    assert [e.time for e in await log.read(1000)] == [float(number) for number in range(1000)]
    assert modes(tmp_path) == {0o600}


async def test_the_name_of_a_new_file_is_durable_before_its_entries_count_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(audit, "_sync_names", synced.append)
    monkeypatch.setattr(audit, "FILE_BYTES", 500)
    log = Audit(tmp_path)
    for number in range(8):
        log.write(entry(number))
        await log.flush()
    assert len(synced) == len(sizes(tmp_path)) > 1


async def test_texts_of_strangers_are_cut(tmp_path: Path) -> None:
    log = Audit(tmp_path)
    log.write(entry(1, target="x" * 100_000, message="é\n" * 100_000))
    assert [len(e.target) for e in await log.read(1)] == [audit.TEXT_MOST]
    assert (tmp_path / "audit.jsonl").read_bytes().count(b"\n") == 1


async def test_a_line_that_was_cut_by_a_power_loss_is_left_out(tmp_path: Path) -> None:
    log = Audit(tmp_path)
    log.write(entry(1))
    await log.flush()
    with log.path.open("ab") as file:
        file.write(b'{"time": 2.0, "who": "us')
    log = Audit(tmp_path)
    log.write(entry(3))
    assert [e.time for e in await log.read(9)] == [1.0, 3.0]


async def test_a_disk_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    log = Audit(tmp_path / "gone")
    log.write(entry(1))
    with pytest.raises(StoreError, match="cannot be written: No such file"):
        await log.flush()
