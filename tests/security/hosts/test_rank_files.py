"""Files that a rank's program names, where its agent looks for them: as the rank would, though the agent is root."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_agent.shell.evidence import rank_files, records
from holdfast_agent.shell.evidence.blocking import Blocking
from holdfast_agent.shell.evidence.tools import Tools
from holdfast_agent.shim.processes import Process

pytestmark = [pytest.mark.anyio, pytest.mark.require("root")]

NOBODY, TEAM = 65534, 4242


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RECORDER_AGAIN_S", 0.0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """The rank's own, reached by all, as a test's own folder isn't."""
    with tempfile.TemporaryDirectory(prefix="rank-files-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def hidden(folder: Path) -> Path:
    """A folder that is none of the rank's business, which a link of the rank's leads to."""
    private = folder / "others"
    private.mkdir(mode=0o700)
    (folder / "way").symlink_to(private)
    return private


@pytest.fixture
def rank() -> Iterator[Process]:
    with subprocess.Popen(["sleep", "600"], cwd="/", user=NOBODY, group=NOBODY, extra_groups=[TEAM]) as started:
        yield Process(started.pid)
        started.kill()


async def said(rank: Process, path: Path) -> str:
    found, whole = await records.flight_record(rank, str(path), Tools(), Blocking())
    assert not whole
    return found.problem


async def test_what_is_said_of_a_dump_tells_nothing_of_files_that_the_rank_may_not_see(
    rank: Process, folder: Path, hidden: Path
) -> None:
    (hidden / "there3").write_bytes(b"x")
    told = {await said(rank, way / name) for way in (hidden, folder / "way") for name in ("there3", "missing3")}
    assert told == {"Permission denied"}
    assert await said(rank, folder / "missing3") == "No such file or directory"
    pipes = {records._ask(rank.pid, f"{hidden}/{name}.pipe") for name in ("there", "missing")}
    assert pipes == {"its pipe: Permission denied"}
    assert records._written(rank.pid, f"{hidden}/there3") == 0


async def test_a_device_that_the_rank_may_not_open_is_not_opened_for_it(
    rank: Process, folder: Path, hidden: Path
) -> None:
    """A watchdog's resets the host soon after, a tape's winds it back; here a pipe tells that it was opened."""
    os.mkfifo(hidden / "watchdog0", 0o600)
    opened = threading.Event()

    def wait() -> None:
        os.close(os.open(hidden / "watchdog0", os.O_WRONLY))
        opened.set()

    waits = threading.Thread(target=wait)
    waits.start()
    try:
        assert await said(rank, folder / "way" / "watchdog0") == "Permission denied"
        assert not opened.wait(0.3)
    finally:
        os.close(os.open(hidden / "watchdog0", os.O_RDONLY | os.O_NONBLOCK))
        waits.join()


def test_what_its_account_and_groups_may_see_is_found(rank: Process, folder: Path) -> None:
    own = folder / "own"
    own.mkdir(mode=0o750)
    os.chown(own, 0, TEAM)
    (own / "dump3").write_bytes(b"dump")
    (own / "dump3").chmod(0o644)
    assert records._written(rank.pid, f"{own}/dump3")
    dump = rank_files.opened(rank.pid, f"{own}/dump3", os.O_RDONLY)
    assert os.read(dump, 8) == b"dump"
    os.close(dump)
    assert os.getgroups() != [TEAM]


async def test_a_link_is_no_dump_and_a_relative_path_leads_nowhere(rank: Process, folder: Path) -> None:
    (folder / "link3").symlink_to("/etc/hostname")
    assert await said(rank, folder / "link3") == "Too many levels of symbolic links"
    assert records._written(rank.pid, "etc/hostname") == 0
