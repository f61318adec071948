"""The audit log on a real disk: bounded, readable after a torn line, and loud when it can't be written."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast._security.audit_chain import GENESIS, Verification, opened, parse_anchor
from holdfast.errors import StoreError
from holdfast_controller.core.access.audit import Entry, Trail
from holdfast_controller.shell.base import audit, audit_files
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.base.audit_files import Retention

pytestmark = pytest.mark.anyio


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
    monkeypatch.setattr(audit_files, "FILES", 3)
    log = Audit(tmp_path, Retention(3 * 2000))
    for number in range(200):
        log.write(entry(number))
        await log.flush()
    assert len(sizes(tmp_path)) == 3
    assert sum(sizes(tmp_path)) < 3 * 2700
    kept = [e.time for e in await log.read(1000)]
    assert kept == [float(number) for number in range(200 - len(kept), 200)]
    assert len(kept) > 10


async def test_no_entry_is_lost_while_calls_come_in_and_the_file_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "DURABLE_S", 0.01)
    log = Audit(tmp_path, Retention(audit_files.FILES * 40_000))
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
    monkeypatch.setattr(audit_files, "sync", synced.append)
    log = Audit(tmp_path, Retention(audit_files.FILES * 800))
    for number in range(8):
        log.write(entry(number))
        await log.flush()
    assert len(synced) == len(sizes(tmp_path)) > 1


async def test_texts_of_strangers_are_cut(tmp_path: Path) -> None:
    log = Audit(tmp_path)
    log.write(entry(1, target="x" * 100_000, message="é\n" * 100_000))
    assert [len(e.target) for e in await log.read(1)] == [audit_files.TEXT_BYTES]
    assert len((tmp_path / "audit.jsonl").read_bytes().splitlines()[-1]) < 1_000


async def test_a_line_that_was_cut_by_a_power_loss_is_left_out(tmp_path: Path) -> None:
    log = Audit(tmp_path)
    log.write(entry(1))
    await log.flush()
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"time": 2.0, "who": "us')
    log = Audit(tmp_path)
    log.write(entry(3))
    assert [e.time for e in await log.read(9)] == [1.0, 3.0]


@pytest.mark.parametrize(
    "line",
    [
        b'{"time":null}',
        b'{"time":"x","who":"user/ann","peer":"","call":"x"}',
        b'{"time":1e999,"who":"user/ann","peer":"","call":"x"}',
        b'{"time":1.0,"who":["user/ann"],"peer":"","call":"x"}',
        b'{"a":' * 100_000,
        b"[]",
    ],
    ids=["no time", "a word", "endless", "a list", "deep", "no object"],
)
async def test_a_damaged_line_ends_nothing_and_is_left_out(tmp_path: Path, line: bytes) -> None:
    log = Audit(tmp_path)
    log.write(entry(1))
    await log.flush()
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"\n".join([line, *path.read_bytes().split(b"\n")[1:]]))
    again = Audit(tmp_path)
    again.write(entry(2))
    assert await again.read(9) == [entry(1), entry(2)]


async def test_a_disk_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    log = Audit(tmp_path / "gone")
    log.write(entry(1))
    with pytest.raises(StoreError, match="cannot be written: No such file"):
        await log.flush()


# The hash chain


def lines(directory: Path, name: str = "audit") -> list[bytes]:
    """The lines of a trail, oldest first."""
    numbered = [*(directory / f"{name}.{number}.jsonl" for number in range(9, 0, -1)), directory / f"{name}.jsonl"]
    return [line for path in numbered if path.exists() for line in path.read_bytes().splitlines(keepends=True)]


def verified(found: list[bytes], *anchors: str) -> Verification:
    verification = Verification("users", tuple(map(parse_anchor, anchors)))
    for line in found:
        verification.take(line)
    verification.finish()
    return verification


async def chained(directory: Path, count: int = 6) -> list[bytes]:
    log = Audit(directory)
    for number in range(count):
        log.write(entry(number))
    await log.flush()
    return lines(directory)


async def test_one_trail_does_not_pass_for_another_nor_noise_for_none(tmp_path: Path) -> None:
    found = Verification("admins")
    for line in await chained(tmp_path):
        found.take(line)
    found.finish()
    assert found.problems == ["line 1 is of another trail: 'users'"]
    noise = Verification("users")
    noise.take(b"\x00\xff{noise\n")
    noise.finish()
    assert noise.problems == ["no line has a hash"]


async def test_a_chain_verifies_over_starts_rotation_and_removed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_files, "FILES", 3)
    for start in range(10):
        log = Audit(tmp_path, Retention(3 * 2000))
        for number in range(5):
            log.write(entry(10 * start + number))
            await log.flush()
    found = verified(lines(tmp_path))
    assert (found.problems, found.unchained, found.torn) == ([], 0, 0)
    assert found.first > 1 and found.last > 50, "the oldest files are gone, and each file has a line of its own"


async def test_entries_of_an_older_release_are_kept_and_the_chain_begins_after_them(tmp_path: Path) -> None:
    old = b'{"time":1.0,"who":"user/ann","peer":"","call":"C","target":"","outcome":"OK","message":"","unwritten":3}\n'
    (tmp_path / "audit.jsonl").write_bytes(old * 2)
    log = Audit(tmp_path)
    log.write(entry(5))
    assert [(e.time, e.unwritten) for e in await log.read(9)] == [(1.0, 3), (1.0, 3), (5.0, 0)]
    found = verified(lines(tmp_path))
    assert (found.problems, found.unchained, found.first, found.last) == ([], 2, 1, 2)


async def test_a_line_that_a_power_cut_has_torn_breaks_no_chain(tmp_path: Path) -> None:
    await chained(tmp_path, 3)
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(lines(tmp_path)[-1][:50])
    found = verified(await chained(tmp_path, 3))
    assert (found.problems, found.torn, found.last) == ([], 1, 7)


@pytest.mark.parametrize(
    ("tamper", "problem"),
    [
        (lambda found: [*found[:2], found[2].replace(b"user/ann", b"user/bob"), *found[3:]], "line 3 was changed"),
        (lambda found: [*found[:2], *found[3:]], "line 3 is missing: line 4 comes after line 2"),
        (lambda found: [*found[:2], found[3], found[2], *found[4:]], "line 3 is missing"),
        (lambda found: [*found[:3], *found[2:]], "line 4 is missing: line 3 comes after line 3"),
        (lambda found: [*found[:3], b'{"time":1.0,"who":"user/eve"}\n', *found[3:]], "a line without a hash"),
        (lambda found: found[1:], "line 2 is the oldest, and lacks the hash"),
        (lambda found: [line[: line.index(b',"n":')] + b"}\n" for line in found], "no line has a hash"),
    ],
)
async def test_what_was_changed_removed_moved_or_added_is_found(tmp_path: Path, tamper: Any, problem: str) -> None:
    found = verified(tamper(await chained(tmp_path)))
    assert len(found.problems) == 1 and problem in found.problems[0], found.problems


async def test_a_trail_that_was_cut_or_made_again_is_found_by_an_anchor_from_before(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    whole = await chained(tmp_path / "a")
    noted = verified(whole)
    anchor = f"users:{noted.last}:{noted.head}"
    assert verified(whole, anchor).problems == []
    assert verified(whole[:-2]).problems == [], "a chain alone does not show that its end is gone"
    assert f"line 7 was there when {anchor} was noted; now the newest is 5" in verified(whole[:-2], anchor).problems
    (tmp_path / "b").mkdir()
    other = await chained(tmp_path / "b", 9)
    assert f"line 7 has another hash than {anchor}" in verified(other, anchor).problems
    first = opened(whole[0])
    assert first is not None and first[0]["follows"] == GENESIS
    assert verified(whole, f"users:0:{GENESIS}").problems == []


# Who can push whom out


async def test_a_user_who_calls_without_end_neither_fills_the_log_nor_touches_that_of_admins(
    tmp_path: Path,
) -> None:
    log = Audit(tmp_path)
    log.write(entry(1, who="user/root", call="AccessService/AddUser"), Trail.ADMINS)
    for number in range(50_000):
        log.write(entry(number, who="user/eve", outcome="INVALID_ARGUMENT", message="é" * 300))
        log.refused(entry(number, who="user/eve", outcome="PERMISSION_DENIED"))
    await log.flush()
    assert sum(sizes(tmp_path)) < 2_000_000
    found = await log.read(1000)
    assert [e.who for e in await log.read(9, trail=Trail.ADMINS)] == ["user/root"]
    summaries = {e.outcome: e.unwritten for e in found if e.unwritten}
    assert 48_900 < summaries["INVALID_ARGUMENT"] <= 49_000
    assert 49_900 < summaries["PERMISSION_DENIED"] <= 49_980
    assert log.only_counted == sum(summaries.values())
    told = next(e.message for e in found if e.unwritten)
    assert re.search(r"\d+ more of these within \d+ s", told), "in seconds, one on a machine at rest"


async def test_entries_older_than_what_is_kept_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Audit(tmp_path, Retention(audit_files.FILES * 800, age_s=1000.0))
    for number in range(12):
        log.write(entry(number))
        await log.flush()
    for path in list(tmp_path.glob("audit.*.jsonl")):  # noqa: ASYNC240 - nothing else runs
        os.utime(path, (1.0, 1.0))
    before = len(sizes(tmp_path))
    for number in range(12, 15):
        log.write(entry(number))
        await log.flush()
    assert len(sizes(tmp_path)) <= 3 < before
    assert verified(lines(tmp_path)).problems == []


async def test_a_wall_clock_that_is_set_forward_by_years_removes_no_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    log = Audit(tmp_path, Retention(audit_files.FILES * 800))
    for number in range(12):
        log.write(entry(number))
        await log.flush()
        for path in tmp_path.iterdir():  # noqa: ASYNC240 - nothing else runs
            os.utime(path, (now[0], now[0]))
    before = len(sizes(tmp_path))
    now[0] += 10 * 365 * 86_400.0
    log.write(entry(12))
    await log.flush()
    assert len(sizes(tmp_path)) == min(before + 1, audit_files.FILES)
    assert [e.time for e in await log.read(1000)][-9:] == [float(number) for number in range(4, 13)]
