"""What a shim's death, its disk and its own faults leave behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import FAILPOINTS

from holdfast._session.reports import Exit
from holdfast_agent.shell.shims.shim_files import (
    Empty,
    Forking,
    Intent,
    Started,
    boot_id,
    is_alive,
    read_shim_id,
)

Shim = Any
Eventually = Callable[[Callable[[], bool]], None]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_shim_does_not_die_of_a_polite_signal(shim: Shim, number: int) -> None:
    shim.launch(1, shim.sh("exec sleep 600"))
    shim.expect("started")
    shim.process.send_signal(number)
    assert shim.connect()["phase"] == "running"


def test_killed_shim_leaves_a_readable_journal(shim: Shim, strays: list[int]) -> None:
    shim.launch(1, shim.sh("exec sleep 600"), shim.sh("exit 7", rank=1))
    messages = shim.until("exited")
    pids = {m["rank"]: m["pid"] for m in messages if m["ev"] == "started"}
    strays.append(pids[0])
    shim.process.kill()
    shim.wait()
    records = shim.journal()
    assert isinstance(records[0], Intent) and records[0].ranks == (0, 1)
    assert {r.rank: r.pid for r in records if isinstance(r, Started)} == pids
    assert [r.rank for r in records if isinstance(r, Exit)] == [1]
    identity = read_shim_id(shim.directory / "shim.json")
    assert identity is not None and not is_alive(identity)


def test_a_shim_that_dies_before_it_could_say_what_it_forked_has_said_that_it_would(
    hasty: Callable[..., Shim], tmp_path: Path, strays: list[int], eventually: Eventually
) -> None:
    armed = tmp_path / "failpoints"
    armed.mkdir()
    (armed / "shim.fork.after").write_text("exit")
    shim = hasty(FAILPOINTS.format(folder=str(armed)))
    ran = shim.out / "ran"
    shim.launch(1, shim.sh(f"echo $$ > {ran}; exec sleep 600"))
    assert shim.wait() == -signal.SIGKILL
    eventually(lambda: ran.exists() and ran.read_text().endswith("\n"))
    strays.append(int(ran.read_text()))
    assert shim.journal() == [Intent(1, (0,), boot_id(), ()), Forking()]


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_journal_with_a_torn_tail_tells_what_came_before(shim: Shim, cut: int) -> None:
    if not (shim.directory / "g1.journal").exists():
        shim.launch(1, shim.sh("exit 7"))
        shim.until("empty")
    path = shim.directory / "g1.journal"
    whole = shim.journal()
    path.write_bytes(path.read_bytes()[:-cut])
    torn = shim.journal()
    assert torn == whole[: len(torn)] and len(whole) - len(torn) in (1, 2)
    assert isinstance(whole[-1], Empty) and Empty() not in torn


def test_fault_of_the_shim_itself_is_written_down(
    start_shim: Callable[..., Shim], altered: Callable[[str, str, str], str]
) -> None:
    method = "def quit(self) -> None:\n"
    shim = start_shim(program=altered("shim.py", method, method + "        1 / 0\n"))
    shim.assign()
    shim.send(op="quit")
    assert shim.wait() == 1
    assert "ZeroDivisionError" in (shim.directory / "shim.err").read_text()


def test_rank_that_cannot_be_forked_is_not_started(
    start_shim: Callable[..., Shim], altered: Callable[[str, str, str], str]
) -> None:
    fault = "if plan.rank == 1:\n                raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
    call = "return spawn("
    shim = start_shim(program=altered("fork.py", call, f"{fault}            {call}"))
    shim.assign()
    shim.launch(1, *[shim.sh(f"exit {n}", rank=n) for n in range(3)])
    messages = shim.until("empty")
    assert [m["rank"] for m in messages if m["ev"] == "started"] == [0, 2]
    exits = {m["rank"]: (m["status"], m["reason"], m["message"]) for m in messages if m["ev"] == "exited"}
    assert exits[1] == (None, "NOT_STARTED", "cannot fork: Resource temporarily unavailable")
    assert exits[0][0] == 0 and exits[2][0] == 2 << 8


def test_shim_without_descriptors_refuses_launches_and_reports_exits(shim: Shim) -> None:
    shim.launch(1, shim.sh("echo up; sleep 0.3; exit 7"))
    shim.expect("started")
    limits = resource.prlimit(shim.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(shim.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    assert shim.until("exited")[-1]["status"] == 7 << 8
    shim.expect("empty")
    shim.launch(2, shim.sh("exit 0", generation=2))
    assert "Too many open files" in shim.expect("refused")["message"]
    resource.prlimit(shim.process.pid, resource.RLIMIT_NOFILE, limits)
    shim.launch(2, shim.sh("exit 0", generation=2))
    shim.until("empty")


# Its last lines need more room than the journal's last block has.
TALKER = "for i in 1 2 3 4 5 6 7 8 9; do echo %s >&2; done; sleep 0.5; exit 7" % ("y" * 500)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "none", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(path: Path) -> Path:
    """Takes every block that is left."""
    file = path / "ballast"
    with file.open("ab", buffering=0) as out:
        try:
            while out.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return file


@pytest.mark.require("root")
@pytest.mark.require("mount")
def test_full_disk_costs_the_reserve_and_no_exit(small_disk: Path, start_shim: Callable[..., Shim]) -> None:
    shim = on_disk(start_shim, small_disk)
    shim.launch(1, shim.sh(TALKER))
    shim.expect("started")
    fill(small_disk)
    assert shim.until("exited")[-1]["status"] == 7 << 8
    shim.expect("empty")
    assert not (shim.directory / "reserve").exists()
    shim.launch(2, shim.sh("exit 0", generation=2))
    refused = shim.expect("refused")
    assert refused["message"] == "the journal: No space left on device"
    assert not (shim.directory / "g2.journal").exists()
    (small_disk / "ballast").unlink()
    shim.launch(2, shim.sh("exit 0", generation=2))
    shim.until("empty")


@pytest.mark.require("root")
@pytest.mark.require("mount")
def test_exit_that_cannot_be_written_is_told_only_once_it_is(
    small_disk: Path, start_shim: Callable[..., Shim]
) -> None:
    shim = on_disk(start_shim, small_disk)
    shim.launch(1, shim.sh(TALKER))
    shim.expect("started")
    (shim.directory / "reserve").unlink()
    ballast = fill(small_disk)
    stuck = shim.expect("stuck")
    assert stuck["message"] == "the journal can't be written: No space left on device" and stuck["pids"] == []
    with pytest.raises(TimeoutError):
        shim.receive(timeout_s=1.5)
    assert [type(r) for r in shim.journal()] == [Intent, Forking, Started], (
        "nothing half-written is taken for a record"
    )
    assert shim.connect()["phase"] == "running", "not yet empty for anyone to build on"
    shim.expect("started")
    shim.launch(2, shim.sh("exit 0", generation=2))
    shim.expect("refused")
    ballast.unlink()
    assert shim.until("empty")[-2]["status"] == 7 << 8
    assert [type(r) for r in shim.journal()] == [Intent, Forking, Started, Exit, Empty]


def on_disk(start_shim: Callable[..., Shim], disk: Path) -> Shim:
    """A shim with its directory on the small disk and its ranks' files elsewhere."""
    shim = start_shim(disk / "worker")
    shim.assign()
    shim.out = disk.parent
    return shim


def test_no_descriptor_of_the_agent_is_kept(start_shim: Callable[..., Shim]) -> None:
    shim = start_shim()
    shim.assign()
    targets = [os.readlink(path) for path in Path(f"/proc/{shim.process.pid}/fd").iterdir() if int(path.name) > 2]
    mine = [target for target in targets if not target.startswith(("socket:", "pipe:", "anon_inode:", "/dev/"))]
    assert sorted(mine) == sorted([str(shim.directory), str(shim.directory / "shim.json")])
