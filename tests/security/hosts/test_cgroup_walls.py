"""Ranks that fight the walls of their cgroup (v2): bombs, what is done before anyone looks, freezing, hiding, leaving.

By shims alone, since it is they who build these walls. Hosts whose controllers are with version 1 skip most of it;
``make test-cgroups`` runs it on a kernel of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import Shim, process_exists, wait_until
from tests.integration.shim.conftest import shim as shim
from tests.integration.shim.conftest import start_shim as start_shim
from tests.support import machine_parts

from holdfast_agent.shim.processes import descendants
from holdfast_agent.shim.walls import cgroup

pytestmark = pytest.mark.require("root", "cgroup")
NOBODY = {"uid": 65534, "gid": 65534, "groups": []}
MIB = 1 << 20
EAT = "held = []\nwhile True: held.append(bytearray(1 << 20))"
TOP = Path(machine_parts.cgroup_mount() or os.devnull)


@pytest.fixture
def place() -> Iterator[Path]:
    """Where a worker's cgroups are made; below it lies whatever a test has made."""
    own = TOP / f"holdfast-test-{os.getpid()}"
    cgroup.enable(str(TOP))
    yield own / "w0"
    wait_until(lambda: _gone(own))


def _gone(own: Path) -> bool:
    with contextlib.suppress(OSError):
        (own / "cgroup.kill").write_text("1")
    cgroup.remove(str(own))
    return not own.exists()


def below(shim: Shim) -> set[int]:
    return {process.pid for process in descendants(shim.process.pid) if process.state not in "ZX"}


def members(place: Path) -> set[int]:
    return {int(pid) for pid in (place / "cgroup.procs").read_text().split()}


def events(file: Path) -> dict[str, int]:
    return {name: int(count) for name, count in (line.split() for line in file.read_text().splitlines())}


def ends(shim: Shim) -> None:
    """All of it can be killed, and that is proven."""
    pids = below(shim)
    shim.stop(grace_s=0.2)
    shim.until("empty")
    assert not any(process_exists(pid) for pid in pids)


# -- before anyone looks -------------------------------------------------------------------------------------------


def test_a_rank_is_in_its_cgroup_from_its_first_instruction(shim: Shim, place: Path) -> None:
    for generation in range(1, 21):
        order = shim.rank("/bin/cat", "/proc/self/cgroup", generation=generation)
        shim.launch(generation, order, cgroup=str(place))
        shim.until("empty")
        assert f"{place.relative_to(TOP)}/g{generation}\n" in shim.output(generation=generation)


def test_a_rank_whose_start_can_not_be_in_it_is_moved(
    shim: Shim, place: Path, start_shim: Callable[..., Shim], tmp_path: Path
) -> None:
    """As in a container whose filter knows no clone3."""
    program = tmp_path / "old_kernel.py"
    words = (
        f"import sys; sys.path.insert(0, {str(Path(cgroup.__file__).parents[3])!r})\n"
        "from holdfast_agent.shim import shim\nfrom holdfast_agent.shim.walls import cgroup\n"
        "cgroup.CLONE3 = 1023\n"  # no kernel has so many
        "shim.run(int(sys.argv[1]))\n"
    )
    program.write_text(words)
    other = start_shim(tmp_path / "other", program=str(program))
    other.assign()
    other.launch(1, other.sh("echo up; exec sleep 600"), cgroup=str(place))
    pid = other.until("started")[-1]["pid"]
    wait_until(lambda: members(place / "g1") == {pid})
    ends(other)


@pytest.mark.require("memcg")
def test_no_rank_is_forked_beyond_the_bound_of_processes(shim: Shim, place: Path) -> None:
    ranks = [shim.sh("exec sleep 600", rank=rank) for rank in range(4)]
    shim.launch(1, *ranks, cgroup=str(place), pids=3)
    refused = shim.until("exited")[-1]
    assert (refused["rank"], refused["reason"]) == (3, "CANNOT_START")
    assert refused["message"] == "cannot fork: Resource temporarily unavailable"
    assert len(members(place / "g1")) == 3
    ends(shim)


@pytest.mark.require("memcg")
def test_a_fork_bomb_gets_no_further_than_its_bound(shim: Shim, place: Path) -> None:
    """One that needs no interpreter, so that it bursts while the shim still writes its journal."""
    shim.launch(1, shim.sh("b() { b | b & }; b; exec sleep 600"), cgroup=str(place), pids=150)
    shim.until("started")
    bomb = place / "g1"
    wait_until(lambda: events(bomb / "pids.events")["max"] > 0)
    for _ in range(5):
        assert int((bomb / "pids.current").read_text()) <= 150
        outside = {pid for pid in below(shim) - members(bomb) if process_exists(pid)}
        assert outside == set()
    ends(shim)


# -- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.require("memcg")
def test_a_memory_bomb_ends_itself_and_no_neighbour(
    shim: Shim, place: Path, start_shim: Callable[..., Shim], tmp_path: Path
) -> None:
    neighbour = start_shim(tmp_path / "neighbour")
    neighbour.assign()
    neighbour.launch(1, neighbour.sh("exec sleep 600"), cgroup=str(place.with_name("w1")), memory_bytes=64 * MIB)
    beside = neighbour.until("started")[-1]["pid"]
    shim.launch(1, shim.python(EAT), cgroup=str(place), memory_bytes=64 * MIB)
    ended = shim.until("exited")[-1]
    assert (ended["reason"], ended["status"]) == ("OUT_OF_MEMORY", signal.SIGKILL)
    assert ended["message"].endswith("out of memory (its limit is 64 MiB)")
    shim.until("empty")
    assert process_exists(beside) and neighbour.process.poll() is None
    ends(neighbour)


@pytest.mark.require("memcg")
def test_a_child_that_lacked_memory_is_named_at_its_ranks_end(shim: Shim, place: Path) -> None:
    child = f"import os\nif os.fork() == 0:\n    exec({EAT!r})\nprint(os.wait()[1])\nraise SystemExit(5)"
    shim.launch(1, shim.python(child), cgroup=str(place), memory_bytes=64 * MIB)
    ended = shim.until("exited")[-1]
    assert shim.output() == "9\n"
    assert ended["reason"] == "NONZERO_EXIT"
    assert "has killed a process of this worker for lack of memory (its limit is 64 MiB)" in ended["message"]


@pytest.mark.require("memcg")
def test_memory_that_is_taken_at_once_counts(shim: Shim, place: Path) -> None:
    """What is taken before a move stays with where it was taken."""
    shim.launch(1, shim.sh("exec head -c 400M /dev/zero | tail -c 400M"), cgroup=str(place), memory_bytes=64 * MIB)
    assert "memory (its limit is 64 MiB)" in shim.until("exited")[-1]["message"]


@pytest.mark.require("memcg")
def test_no_swap_is_had_beyond_the_bound(shim: Shim, place: Path) -> None:
    shim.launch(1, shim.sh("exec sleep 600"), cgroup=str(place), memory_bytes=64 * MIB)
    shim.until("started")
    assert (place / "g1/memory.max").read_text() == f"{64 * MIB}\n"
    assert (place / "g1/memory.swap.max").read_text() == "0\n"
    ends(shim)


@pytest.mark.require("memcg", "mount")
def test_what_fills_shared_memory_is_within_the_bound_and_gone_with_the_generation(shim: Shim, place: Path) -> None:
    fill = "head -c {}M /dev/zero > /dev/shm/full; echo $? $(ls /dev/shm)"
    bounds: dict[str, Any] = {"cgroup": str(place), "memory_bytes": 64 * MIB, "private_shm": True}
    shim.launch(1, shim.sh(fill.format(200)), **bounds)
    assert "memory (its limit is 64 MiB)" in shim.until("exited")[-1]["message"]
    shim.until("empty")
    shim.launch(2, shim.sh("ls /dev/shm; " + fill.format(32), generation=2), **bounds)
    shim.until("empty")
    assert shim.output(generation=2) == "0 full\n"


# -- ways out ------------------------------------------------------------------------------------------------------

TRIES = """
for file in cgroup.procs cgroup.freeze cgroup.kill memory.max pids.max cgroup.subtree_control; do
    for group in {own} {own}/.. {top}; do
        (echo 0 > $group/$file) 2>/dev/null && echo wrote $group/$file
    done
done
mkdir {own}/inner 2>/dev/null && echo made one
echo over
"""


def test_an_account_changes_nothing_of_its_walls(shim: Shim, place: Path) -> None:
    order = shim.sh(TRIES.format(own=place / "g1", top=TOP)) | {"cwd": "/"}
    shim.launch(1, order, cgroup=str(place), **NOBODY)
    shim.until("empty")
    assert shim.output() == "over\n"


def test_what_has_stopped_itself_is_killed(shim: Shim, place: Path) -> None:
    shim.launch(1, shim.sh("sh -c 'kill -STOP $$' & echo up; kill -STOP $$"), cgroup=str(place))
    shim.await_output()
    ends(shim)


@pytest.mark.parametrize("where", ["{own}", "{own}/inner", "{top}/holdfast-test-{pid}/elsewhere"])
def test_roots_rank_that_freezes_itself_is_killed(shim: Shim, place: Path, where: str) -> None:
    """In its own cgroup, in one below it, in one that no shim has made."""
    group = where.format(own=place / "g1", top=TOP, pid=os.getpid())
    script = f"mkdir -p {group}; echo $$ > {group}/cgroup.procs; echo up; echo 1 > {group}/cgroup.freeze; sleep 600"
    shim.launch(1, shim.sh(script), cgroup=str(place))
    shim.await_output()
    wait_until(lambda: "frozen 1" in Path(group, "cgroup.events").read_text())
    ends(shim)
    assert not (place / "g1").exists()


def test_roots_rank_that_makes_its_cgroup_threaded_is_killed(shim: Shim, place: Path) -> None:
    """There is no cgroup.kill in such a one."""
    inner = place / "g1/inner"
    script = f"mkdir {inner}; echo threaded > {inner}/cgroup.type; echo up; exec sleep 600"
    shim.launch(1, shim.sh(script), cgroup=str(place))
    rank = shim.until("started")[-1]["pid"]
    shim.await_output()
    (inner / "cgroup.threads").write_text(str(rank))
    ends(shim)
    assert not (place / "g1").exists()
