"""A generation in its cgroup: killed whole, proven empty, bounded, and "out of memory" only from its counter.

Where the memory controller is out of reach its files are stood in for by plain ones.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import wait_until
from tests.support import machine_parts

from holdfast_agent.shim.walls import cgroup

Shim = Any
STAY = "echo up; exec sleep 600"
FILES = {
    "cgroup.procs": "",
    "cgroup.kill": "",
    "cgroup.events": "populated 0\nfrozen 0\n",
    "memory.max": "max\n",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    "pids.max": "max\n",
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A real cgroup for a worker."""
    top = machine_parts.cgroup_mount()
    path = Path(top, f"holdfast-test-{os.getpid()}", "job", "w0")
    yield path
    for _ in range(100):
        for folder in sorted(path.parent.parent.glob("**/"), reverse=True):
            (folder / "cgroup.kill").write_text("1")
            try:
                folder.rmdir()
            except OSError:
                time.sleep(0.02)
        if not path.parent.parent.exists():
            return


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """What looks like a worker's, with its first generation's files."""
    group = tmp_path / "cgroups/w0/g1"
    group.mkdir(parents=True)
    for name, text in FILES.items():
        (group / name).write_text(text)
    return group


def launch(shim: Shim, place: Path, script: str, generation: int = 1, **fields: object) -> int:
    order = shim.sh(script, generation=generation)
    shim.launch(generation, order, cgroup=str(place), **fields)
    pid: int = shim.expect("started")["pid"]
    return pid


def stop(shim: Shim, grace_s: float = 0.0) -> None:
    shim.send(op="stop", generation=1, grace_s=grace_s, reason="STOPPED")


# -- the kernel's ------------------------------------------------------------------------------------------------


@pytest.mark.require("cgroup")
def test_ranks_and_all_they_start_are_in_it_and_nothing_is_left_of_either(shim: Shim, place: Path) -> None:
    script = "setsid sh -c 'env -i sleep 600 & env -i sleep 600 &' ; " + STAY
    rank = launch(shim, place, script)
    shim.await_output()
    group = place / "g1"
    wait_until(lambda: len((group / "cgroup.procs").read_text().split()) == 3)
    pids = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    assert rank in pids
    assert shim.process.pid not in pids
    stop(shim)
    shim.until("empty")
    assert not group.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.require("cgroup")
def test_a_process_in_it_that_is_no_child_keeps_it_from_being_empty_and_is_killed(shim: Shim, place: Path) -> None:
    launch(shim, place, STAY)
    shim.await_output()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (place / "g1/cgroup.procs").write_text(str(stranger.pid))
        stop(shim)
        shim.until("empty")
        assert stranger.wait(timeout=20) == -signal.SIGKILL


@pytest.mark.require("cgroup")
def test_emptiness_is_told_at_once_where_nothing_is_left(shim: Shim, place: Path) -> None:
    took_s: list[float] = []
    for generation in range(1, 21):
        began = time.monotonic()
        shim.launch(generation, shim.sh("exit 0", generation=generation), cgroup=str(place))
        shim.until("empty")
        took_s.append(time.monotonic() - began)
    assert statistics.median(took_s) < 1.0
    assert list(place.glob("g*")) == []


@pytest.mark.require("cgroup")
def test_a_cgroup_that_a_rank_has_made_goes_too(shim: Shim, place: Path) -> None:
    wait = f"while ! grep -q $$ {place}/g1/cgroup.procs; do sleep 0.01; done; "
    launch(shim, place, wait + f"mkdir {place}/g1/inner && (echo 0 > {place}/g1/inner/cgroup.procs; {STAY})")
    shim.await_output()
    stop(shim)
    shim.until("empty")
    assert not (place / "g1").exists()


# -- stood in for ------------------------------------------------------------------------------------------------


def test_limits_are_written_before_the_first_rank_is_moved(shim: Shim, fake: Path) -> None:
    rank = launch(shim, fake.parent, STAY, memory_bytes=4 << 30, pids=5000)
    shim.await_output()
    wait_until(lambda: (fake / "cgroup.procs").read_text().startswith(str(rank)))
    assert [(fake / name).read_text() for name in ("memory.max", "pids.max")] == [f"{4 << 30}", "5000"]
    stop(shim)
    shim.until("empty")
    assert (fake / "cgroup.kill").read_text() == "1"


def test_a_rank_that_the_kernel_kills_for_memory_is_out_of_memory(shim: Shim, fake: Path) -> None:
    script = f"echo oom_kill 1 > {fake}/memory.events; kill -9 $$"
    launch(shim, fake.parent, script, memory_bytes=4 << 30)
    exited = shim.until("exited")[-1]
    assert exited["reason"] == "OUT_OF_MEMORY"
    assert exited["status"] == signal.SIGKILL
    assert exited["message"] == "killed by signal 9 (SIGKILL): out of memory (its limit is 4096 MiB)"


def test_the_same_signal_without_the_counter_is_only_a_signal(shim: Shim, fake: Path) -> None:
    launch(shim, fake.parent, "kill -9 $$")
    exited = shim.until("exited")[-1]
    assert (exited["reason"], exited["message"]) == ("SIGNALED", "killed by signal 9 (SIGKILL)")


def test_a_kill_of_ours_is_never_called_out_of_memory(shim: Shim, fake: Path) -> None:
    """Though the kernel has killed a data loader of it before."""
    launch(shim, fake.parent, f"trap '' TERM; echo oom_kill 1 > {fake}/memory.events; {STAY}")
    shim.await_output()
    stop(shim)
    exited = shim.until("exited")[-1]
    assert exited["reason"] == "STOPPED"
    assert exited["message"].endswith("; the kernel has killed a process of this worker for lack of memory")


def test_a_rank_that_fails_for_its_dead_helper_says_so(shim: Shim, fake: Path) -> None:
    launch(shim, fake.parent, f"echo oom_kill 1 > {fake}/memory.events; exit 3", memory_bytes=1 << 30)
    exited = shim.until("exited")[-1]
    assert exited["reason"] == "NONZERO_EXIT"
    assert exited["message"] == (
        "exited with code 3; the kernel has killed a process of this worker for lack of memory"
        " (its limit is 1024 MiB)"
    )


def test_what_the_cgroup_counts_withholds_emptiness_and_is_told(shim: Shim, fake: Path) -> None:
    (fake / "cgroup.events").write_text("populated 1\n")
    launch(shim, fake.parent, "exit 0")
    stuck = shim.until("stuck")
    assert [message["ev"] for message in stuck] == ["exited", "stuck"]
    assert stuck[-1]["message"] == "outlive KILL: what its cgroup still counts"
    (fake / "cgroup.events").write_text("populated 0\n")
    shim.until("empty")


def test_ranks_run_without_one_where_it_cannot_be_made(shim: Shim, tmp_path: Path) -> None:
    shim.launch(1, shim.sh("echo fine"), cgroup=str(tmp_path / "no-cgroup/w0"))
    said = shim.until("empty")
    assert said[0]["ev"] == "note"
    assert said[0]["message"] == f"no cgroup: {tmp_path}/no-cgroup/w0/g1/cgroup.procs: No such file or directory"
    assert shim.output() == "fine\n"


def test_all_that_the_kernel_kills_at_once_are_out_of_memory(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(cgroup, "now_s", lambda: now)
    counted = cgroup.Cgroup(str(fake), 0, 0)
    try:
        assert not counted.ran_out_of_memory()
        (fake / "memory.events").write_text("oom_kill 2\n")
        assert counted.ran_out_of_memory()
        now += 0.5
        assert counted.ran_out_of_memory(), "the other one, whose end is seen a little later"
        now += 1.0
        assert not counted.ran_out_of_memory()
    finally:
        counted.close()
