"""A generation's /dev/shm: shared by the job's ranks on a host, seen by nobody else, gone with the last of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import wait_until

from holdfast_agent.shim.walls import namespaces as room

Shim = Any
pytestmark = pytest.mark.require("root", "mount")
LEAVE = "echo hello > /dev/shm/nccl-left; ipcmk -M 4096 > /dev/null; echo up; exec sleep 600"
LOOK = "ls -A /dev/shm; ipcs -m | grep -c 0x; exit 0"


def namespaces(pid: int | str) -> set[str]:
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("mnt", "ipc")}


def holders(wanted: set[str]) -> list[str]:
    """Processes that are in one of these namespaces, or hold a descriptor of it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = {os.readlink(link) for link in (*process.glob("fd/*"), process / "ns/mnt", process / "ns/ipc")}
        except OSError:
            continue
        if links & wanted:
            found.append(process.name)
    return found


@pytest.fixture
def pair(start_shim: Callable[..., Shim], tmp_path: Path) -> tuple[Shim, Shim]:
    """Two workers of one job."""
    both = start_shim(tmp_path / "job/w0"), start_shim(tmp_path / "job/w1")
    for index, shim in enumerate(both):
        shim.out = tmp_path / f"out{index}"
        shim.out.mkdir()
        shim.assign()
    return both


def start(shim: Shim, script: str, generation: int = 1, **fields: object) -> int:
    """The pid of a rank that has said something."""
    shim.launch(generation, shim.sh(script, generation=generation), private_shm=True, **fields)
    pid: int = shim.expect("started")["pid"]
    shim.await_output(generation=generation)
    return pid


def stop(shim: Shim, generation: int = 1) -> None:
    shim.send(op="stop", generation=generation, grace_s=0.0, reason="STOPPED")
    shim.until("empty")


def test_leftovers_are_seen_by_the_jobs_ranks_alone_and_die_with_the_generation(shim: Shim) -> None:
    mounted = Path("/proc/self/mountinfo").read_text()
    before = set(os.listdir("/dev/shm"))
    pid = start(shim, LEAVE)
    inside = namespaces(pid)
    assert not inside & namespaces("self")
    assert Path(f"/proc/{pid}/root/dev/shm/nccl-left").read_text() == "hello\n"
    assert set(os.listdir("/dev/shm")) == before
    assert Path("/proc/self/mountinfo").read_text() == mounted
    stop(shim)
    assert holders(inside) == []
    shim.launch(2, shim.sh(LOOK, generation=2), private_shm=True)
    shim.until("empty")
    assert shim.output(generation=2) == "0\n"
    assert Path("/proc/self/mountinfo").read_text() == mounted


def test_the_mount_is_as_large_as_the_hosts_and_anybody_may_write_to_it(shim: Shim) -> None:
    shim.launch(1, shim.sh("df -k --output=size /dev/shm | tail -1; stat -c %a /dev/shm"), private_shm=True)
    shim.until("empty")
    found = os.statvfs("/dev/shm")
    assert shim.output().split() == [str(found.f_blocks * found.f_frsize // 1024), "1777"]


def test_a_jobs_workers_share_it_and_it_goes_with_the_last(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    inside = namespaces(start(first, LEAVE))
    assert namespaces(start(second, "cat /dev/shm/nccl-left; exec sleep 600")) == inside
    assert second.output() == "hello\n"
    stop(first)
    assert len(holders(inside)) == 2, "the second shim and its rank"
    stop(second)
    assert holders(inside) == []


def test_a_late_worker_of_a_generation_whose_room_is_gone_gets_a_new_one(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    start(first, LEAVE)
    stop(first)
    assert not namespaces(start(second, "ls -A /dev/shm; echo up; exec sleep 600")) & namespaces("self")
    assert second.output() == "up\n"


def test_generations_and_jobs_do_not_share(
    pair: tuple[Shim, Shim], start_shim: Callable[..., Shim], tmp_path: Path
) -> None:
    first, second = pair
    other = start_shim(tmp_path / "other/w0")
    other.assign()
    rooms = [namespaces(start(first, LEAVE)), namespaces(start(second, LEAVE, 2)), namespaces(start(other, LEAVE))]
    assert len(set.union(*rooms)) == 6


def test_a_shim_that_dies_leaves_its_ranks_in_the_room_and_the_others_keep_theirs(
    pair: tuple[Shim, Shim], strays: list[int]
) -> None:
    first, second = pair
    rank = start(first, LEAVE)
    strays.append(rank)
    inside = namespaces(rank)
    start(second, "echo up; exec sleep 600")
    first.process.kill()
    first.process.wait()
    assert Path(f"/proc/{rank}/root/dev/shm/nccl-left").exists()
    os.kill(rank, signal.SIGKILL)
    stop(second)
    wait_until(lambda: not holders(inside))


def test_a_description_that_names_something_else_is_not_believed(pair: tuple[Shim, Shim]) -> None:
    first, second = pair
    inside = namespaces(start(first, LEAVE))
    file = first.directory.parent / room.FILE
    said = json.loads(file.read_text())
    for change in ({"mounts": [0, 1]}, {"pid": os.getpid()}, {"ipc": None}, {"generation": 9}):
        file.write_text(json.dumps(said | change))
        generation = 9 if change == {"generation": 9} else said["generation"]
        made = start(second, "echo up; exec sleep 600", generation) if generation == 9 else 0
        assert not made or namespaces(made) == inside, "it says so, and the inodes are right"
        if made:
            stop(second, 9)
    file.write_text("not JSON")
    assert not namespaces(start(second, "echo up; exec sleep 600", 10)) & inside


def test_what_a_rank_mounts_does_not_appear_on_the_host(shim: Shim) -> None:
    pid = start(shim, f"mount -t tmpfs inner {shim.out}/ && echo up; exec sleep 600")
    assert f" {shim.out} " in Path(f"/proc/{pid}/mountinfo").read_text()
    assert f" {shim.out} " not in Path("/proc/self/mountinfo").read_text()


def test_a_rank_of_another_user_can_use_it(shim: Shim) -> None:
    for path in (shim.out, *shim.out.parents):
        if path.name.startswith(("pytest-", "popen-")) or path == shim.out:
            path.chmod(path.stat().st_mode | 0o011)
    nobody = {"uid": 65534, "gid": 65534, "groups": []}
    shim.launch(1, shim.sh("echo x > /dev/shm/torch_1 && stat -c %u /dev/shm/torch_1"), private_shm=True, **nobody)
    shim.until("empty")
    assert shim.output() == "65534\n"


def test_unless_asked_for_ranks_share_the_hosts(shim: Shim) -> None:
    shim.launch(1, shim.sh("echo up; exec sleep 600"))
    assert namespaces(shim.expect("started")["pid"]) == namespaces("self")
    assert not (shim.directory.parent / room.FILE).exists()


def test_where_the_host_does_not_allow_it_ranks_share_the_hosts_and_that_is_said(tmp_path: Path) -> None:
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(room.__file__).parents[2])!r})
from holdfast_agent.shim.walls import namespaces as room
os.mkdir({str(tmp_path / "w0")!r})
try:
    room.take(1, os.open({str(tmp_path / "w0")!r}, os.O_RDONLY))
except room.NotAllowed as problem:
    print(problem)
"""
    bare = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, "-c", script]
    said = subprocess.run(bare, capture_output=True, text=True, check=True)
    assert said.stdout == "Operation not permitted\n"


def test_a_room_that_cannot_be_made_refuses_the_launch(
    shim: Shim,
) -> None:
    """Else one worker might share the host's while another has its own: their ranks would not find each other."""
    (shim.directory.parent / room.FILE).mkdir()
    shim.launch(1, shim.sh("exit 0"), private_shm=True)
    refused = shim.expect("refused")
    assert refused["message"] == "a /dev/shm of its own: Is a directory"
    shim.launch(1, shim.sh("exit 0"))
    shim.until("empty")
