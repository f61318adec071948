"""Output is copied to the base output directory, whole, again and again until it is there."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from holdfast._session.assignment import Launch, Task
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.accounts import AccountRules
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import Program
from holdfast_agent.shell.output import archive, archive_copy
from holdfast_agent.shell.output.archive import Archive, Order, copy
from holdfast_agent.shell.output.log_index import punch
from holdfast_agent.shell.users.accounts import Accounts

KEY = WorkerId("job-1", "workerpool0-0")
ME = WorkerUser("me", "/", "/bin/sh")
BLOCK = 4096


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Output of two generations, and what else lies there."""
    found = tmp_path / "logs" / KEY.job
    for generation in (1, 2):
        folder = found / f"g{generation}"
        folder.mkdir(parents=True)
        for name in ("workerpool0-0.r0.out", "workerpool0-0.r0.err", "workerpool1-0.r1.out"):
            (folder / name).write_text(f"{name} of {generation}\n")
        (folder / "workerpool0-0.r0.out.idx").write_bytes(b"\0" * 16)
        (folder / "workerpool0-0.errors").mkdir()
    (found / "latest").symlink_to("g2")
    return found


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder to which other users find their way."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def archived(base: Path) -> dict[str, str]:
    """Every file below the base but the indexes, by its path."""
    found = [path for path in sorted(base.rglob("*")) if path.is_file() and path.suffix != ".idx"]
    return {str(path.relative_to(base)): path.read_text() for path in found}


EXPECTED = {
    f"rank-logs/job-1/g{n}/workerpool0-0.r0.{stream}": f"workerpool0-0.r0.{stream} of {n}\n"
    for n in (1, 2)
    for stream in ("out", "err")
}


def run(logs: Path, base: Path) -> str:
    return copy(str(logs), Order(KEY.job, KEY.worker, str(base)), ME)


def test_every_generation_of_the_worker_is_copied_and_nothing_else(logs: Path, tmp_path: Path) -> None:
    base = tmp_path / "made" / "out"
    assert run(logs, base) == ""
    assert archived(base) == EXPECTED


def test_second_try_goes_on_where_the_first_was_broken_off(logs: Path, tmp_path: Path) -> None:
    base = tmp_path / "out"
    assert run(logs, base) == ""
    there = base / "rank-logs/job-1/g1/workerpool0-0.r0.out"
    kept = there.stat().st_ino
    torn = base / "rank-logs/job-1/g2/workerpool0-0.r0.out"
    os.truncate(torn, 4)
    assert run(logs, base) == ""
    assert archived(base) == EXPECTED
    assert there.stat().st_ino == kept


@pytest.mark.parametrize("planted", ["rank-logs", "rank-logs/job-1", "rank-logs/job-1/g1"])
def test_no_planted_link_is_followed(logs: Path, tmp_path: Path, planted: str) -> None:
    base, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (base / planted).parent.mkdir(parents=True)
    (base / planted).symlink_to(elsewhere)
    assert "Not a directory" in run(logs, base) or "symbolic link" in run(logs, base)
    assert list(elsewhere.iterdir()) == []


def test_planted_file_link_is_replaced_and_its_target_left_alone(logs: Path, tmp_path: Path) -> None:
    base, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_text("precious")
    folder = base / "rank-logs/job-1/g1"
    folder.mkdir(parents=True)
    (folder / "workerpool0-0.r0.out").symlink_to(victim)
    (folder / ".workerpool0-0.r0.err.idx").symlink_to(victim)
    os.mkfifo(folder / "workerpool0-0.r0.err")
    assert run(logs, base) == ""
    assert (victim.read_text(), archived(base)) == ("precious", EXPECTED)
    assert not (folder / "workerpool0-0.r0.out").is_symlink()


def test_links_and_pipes_among_the_logs_are_not_read(logs: Path, tmp_path: Path) -> None:
    (logs / "g1/workerpool0-0.r1.out").symlink_to("/etc/passwd")
    assert "workerpool0-0.r1.out" in run(logs, tmp_path / "out")
    (logs / "g1/workerpool0-0.r1.out").unlink()
    os.mkfifo(logs / "g1/workerpool0-0.r1.out")
    assert run(logs, tmp_path / "out") == ""
    assert archived(tmp_path / "out") == EXPECTED


def test_stream_that_was_cut_is_copied_from_its_first_kept_byte(logs: Path, tmp_path: Path) -> None:
    stream = logs / "g1/workerpool0-0.r0.out"
    stream.write_bytes(b"a" * BLOCK + b"b" * BLOCK)
    try:
        punch(str(stream), BLOCK)
    except OSError:
        pytest.skip("this file system can't cut files")
    assert run(logs, tmp_path / "out") == ""
    assert (tmp_path / "out/rank-logs/job-1/g1/workerpool0-0.r0.out").read_bytes() == b"b" * BLOCK
    assert run(logs, tmp_path / "out") == ""


@pytest.mark.require("root")
def test_copy_has_the_rights_of_the_workers_user(logs: Path, reachable: Path) -> None:
    closed, open_ = reachable / "closed", reachable / "open"
    shutil.copytree(logs, reachable / "logs", symlinks=True)
    logs = reachable / "logs"
    closed.mkdir(mode=0o700)
    open_.mkdir()
    os.chown(open_, 65534, 65534)
    nobody = replace(ME, uid=65534, gid=65534, groups=())
    if programs.run(Program([sys.executable, "-I", "-S", "-c", ""], 20, user=nobody)).code != 0:
        pytest.skip("the Python of the tests is not there for others")
    if programs.run(Program(["test", "-r", archive_copy.__file__], 20, user=nobody)).code != 0:
        pytest.skip("the code under test is not there for others")
    order = Order(KEY.job, KEY.worker, str(closed / "out"))
    assert copy(str(logs), order, nobody).endswith("Permission denied")
    assert copy(str(logs), replace(order, base=str(open_)), nobody) == ""
    assert (open_ / "rank-logs").stat().st_uid == 65534
    assert archived(open_) == EXPECTED


async def test_due_output_is_tried_until_it_is_there_and_told_meanwhile(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "pause_s", lambda _: 0.05)
    base = tmp_path / "file"
    base.write_text("in the way")
    launch = Launch(Task(("x",)), 0, 1, 1, output_uri=str(base))
    facts = HostFacts("h", str(tmp_path / "logs"), str(tmp_path / "scratch"), ME, 1)
    told: list[str] = []
    connected = False

    def tell(key: WorkerId, problem: str) -> bool:
        assert key == KEY
        if connected:
            told.append(problem)
        return connected

    first = Archive(tmp_path / "orders", facts, Accounts(ME, AccountRules(os.geteuid())), tell)
    first.keep(KEY, launch)
    first.keep(WorkerId("job-2", "workerpool0-0"), replace(launch, output_uri=""))
    later = Archive(tmp_path / "orders", facts, Accounts(ME, AccountRules(os.geteuid())), tell)
    later.recover({KEY})
    assert [order.due_since for order in later._orders()] == [0.0], "the worker is still there"
    later.recover(())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later.run)
        await _until(lambda: any(order.failures > 1 for order in later._orders()))
        assert told == []
        connected = True
        await _until(lambda: bool(told))
        base.unlink()
        await _until(lambda: later._orders() == [])
        tasks.cancel_scope.cancel()
    assert told == [f"{base}: File exists; tried again", ""]
    assert archived(base) == EXPECTED


def entries(path: Path) -> list[list[int]]:
    return [[int(number) for number in line.split()] for line in path.read_text().splitlines()]


def test_what_was_written_since_is_appended_and_nothing_is_read_twice(logs: Path, tmp_path: Path) -> None:
    base, stream = tmp_path / "out", logs / "g2/workerpool0-0.r0.out"
    assert run(logs, base) == ""
    there = base / "rank-logs/job-1/g2/workerpool0-0.r0.out"
    first = there.stat().st_ino
    with stream.open("a") as file:
        file.write("more\n")
    assert run(logs, base) == ""
    assert (there.read_text(), there.stat().st_ino) == (stream.read_text(), first)
    index = there.with_name(".workerpool0-0.r0.out.idx")
    size = len("workerpool0-0.r0.out of 2\n")
    assert [line[:2] for line in entries(index)] == [[0, 0], [size, size]]
    before = index.read_text()
    assert run(logs, base) == ""
    assert index.read_text() == before, "nothing new, nothing written"


def test_each_time_takes_a_bounded_part(logs: Path, tmp_path: Path) -> None:
    order, stream = Order(KEY.job, KEY.worker, str(tmp_path / "out")), logs / "g2/workerpool0-0.r0.out"
    stream.write_text("x" * 1000)
    there = tmp_path / "out/rank-logs/job-1/g2/workerpool0-0.r0.out"
    for expected in (400, 800, 1000):
        assert copy(str(logs), order, ME, most=400) == ""
        assert there.stat().st_size == expected


def test_bytes_that_are_cut_between_two_copies_are_skipped_and_the_earlier_ones_kept(
    logs: Path, tmp_path: Path
) -> None:
    stream = logs / "g1/workerpool0-0.r0.out"
    stream.write_bytes(b"a" * BLOCK)
    assert run(logs, tmp_path / "out") == ""
    with stream.open("ab") as file:
        file.write(b"b" * BLOCK + b"c" * BLOCK)
    try:
        punch(str(stream), 2 * BLOCK)
    except OSError:
        pytest.skip("this file system can't cut files")
    assert run(logs, tmp_path / "out") == ""
    there = tmp_path / "out/rank-logs/job-1/g1/workerpool0-0.r0.out"
    assert there.read_bytes() == b"a" * BLOCK + b"c" * BLOCK
    index = entries(there.with_name(".workerpool0-0.r0.out.idx"))
    assert [line[:2] for line in index] == [[0, 0], [2 * BLOCK, BLOCK]]


@pytest.mark.parametrize("planted", ["", "nonsense\n", "0 99999 1\n", "99999999 0 1\n", "-1 0 1\n"])
def test_archive_that_was_tampered_with_is_written_from_the_start(logs: Path, tmp_path: Path, planted: str) -> None:
    assert run(logs, tmp_path / "out") == ""
    folder = tmp_path / "out/rank-logs/job-1/g1"
    (folder / "workerpool0-0.r0.out").write_text("other")
    (folder / ".workerpool0-0.r0.out.idx").write_text(planted)
    assert run(logs, tmp_path / "out") == ""
    assert archived(tmp_path / "out") == EXPECTED


async def test_output_is_shipped_while_the_worker_is_there(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "SHIP_EVERY_S", 0.1)
    base, stream = tmp_path / "out", logs / "g2/workerpool0-0.r0.out"
    launch = Launch(Task(("x",)), 0, 1, 1, output_uri=str(base))
    facts = HostFacts("h", str(tmp_path / "logs"), str(tmp_path / "scratch"), ME, 1)
    told: list[str] = []

    def tell(_: WorkerId, problem: str) -> bool:
        told.append(problem)
        return True

    shipping = Archive(tmp_path / "orders", facts, Accounts(ME, AccountRules(os.geteuid())), tell)
    await shipping.make_directories(KEY, launch, ME)
    assert sorted(path.name for path in base.iterdir()) == ["checkpoints", "logs", "model"]
    shipping.keep(KEY, launch)
    there = base / "rank-logs/job-1/g2/workerpool0-0.r0.out"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shipping.run)
        await _until(there.exists)
        with stream.open("a") as file:
            file.write("more\n")
        await _until(lambda: there.read_text() == stream.read_text())
        with stream.open("a") as file:
            file.write("last\n")
        shipping.release(KEY)
        await _until(lambda: shipping._orders() == [])
        tasks.cancel_scope.cancel()
    assert there.read_text() == stream.read_text()
    assert told == []


async def test_output_that_takes_several_copies_is_left_alone_once_all_is_there(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "SHIP_EVERY_S", 0.0)
    monkeypatch.setattr(archive, "SHIP_BYTES", 100)
    launch = Launch(Task(("x",)), 0, 1, 1, output_uri=str(tmp_path / "out"))
    facts = HostFacts("h", str(tmp_path / "logs"), str(tmp_path / "scratch"), ME, 1)
    (logs / "g2/workerpool0-0.r0.out").write_bytes(bytes(350))
    copies: list[int] = []

    def copied(*_: object, **__: object) -> str:
        copies.append(1)
        return ""

    monkeypatch.setattr(archive, "copy", copied)
    shipping = Archive(tmp_path / "orders", facts, Accounts(ME, AccountRules(os.geteuid())), lambda *_: True)
    shipping.keep(KEY, launch)
    (order,) = shipping._orders()
    while shipping._has_grown(order):
        await shipping._ship(order)
    assert len(copies) == 4


async def test_directories_that_cannot_be_made_are_told_and_taken_back_once_they_can(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "SHIP_EVERY_S", 0.1)
    monkeypatch.setattr(archive, "pause_s", lambda _: 0.1)
    base = tmp_path / "file"
    base.write_text("in the way")
    launch = Launch(Task(("x",)), 0, 1, 1, output_uri=str(base))
    facts = HostFacts("h", str(tmp_path / "logs"), str(tmp_path / "scratch"), ME, 1)
    told: list[str] = []

    def tell(_: WorkerId, problem: str) -> bool:
        told.append(problem)
        return True

    shipping = Archive(tmp_path / "orders", facts, Accounts(ME, AccountRules(os.geteuid())), tell)
    await shipping.make_directories(KEY, launch, ME)
    assert told == [f"{base}: File exists; tried again"]
    shipping.keep(KEY, launch)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shipping.run)
        await anyio.sleep(0.5)
        assert len(told) == 1
        base.unlink()
        await _until(lambda: len(told) == 2)
        tasks.cancel_scope.cancel()
    assert told[1] == ""
    assert archived(base) == EXPECTED


async def test_output_of_an_account_that_has_gone_is_told_of_and_kept(tmp_path: Path) -> None:
    launch = Launch(Task(("x",), account="no-such-account"), 0, 1, 1, output_uri=str(tmp_path / "out"))
    facts = HostFacts("h", str(tmp_path / "logs"), str(tmp_path / "scratch"), ME, 1)
    told: list[str] = []
    accounts = Accounts(ME, AccountRules(os.geteuid()))

    def tell(_: WorkerId, problem: str) -> bool:
        told.append(problem)
        return True

    archive = Archive(tmp_path / "orders", facts, accounts, tell)
    archive.keep(KEY, launch)
    archive.release(KEY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(archive.run)
        await _until(lambda: bool(told))
        tasks.cancel_scope.cancel()
    assert told == ["there is no account no-such-account on this host; tried again"]


async def _until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.02)
