"""A rank that is killed while it builds an extension must not hang the next generation."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import wait_until

Shim = Any
# As torch's FileBaton does it: the file is the lock.
BUILD = """
import os, sys, time
lock = sys.argv[1]
try:
    os.open(lock, os.O_CREAT | os.O_EXCL)
except FileExistsError:
    print("waits", flush=True)
    while os.path.exists(lock):
        time.sleep(0.02)
    print("goes on", flush=True)
else:
    print("builds", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "home/.cache/torch_extensions/py311_cpu/fused/lock"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere"


def build(shim: Shim, lock: Path, generation: int, home: Path | None = None) -> dict[str, Any]:
    order: dict[str, Any] = shim.python(BUILD, generation=generation)
    order["argv"].append(str(lock))
    order["env"]["HOME"] = str(home or lock.parents[4])
    return order


def killed_while_building(shim: Shim, lock: Path) -> None:
    shim.launch(1, build(shim, lock, 1))
    pid = shim.expect("started")["pid"]
    assert shim.await_output() == "builds\n"
    os.kill(pid, signal.SIGKILL)
    shim.until("empty")
    assert lock.exists()


def test_the_lock_of_a_killed_build_is_gone_before_the_next_generation(shim: Shim, lock: Path) -> None:
    killed_while_building(shim, lock)
    shim.launch(2, build(shim, lock, 2))
    assert shim.await_output(generation=2) == "builds\n"
    said = Path(f"{shim.out}/g2.r0.err").read_text()
    assert said == f"holdfast: removed {lock}, the lock of a build that was killed\n"


def test_where_it_is_not_looked_for_the_next_generation_hangs(shim: Shim, lock: Path, elsewhere: Path) -> None:
    """What happens without it: the same program, whose lock lies outside the caches that its environment names."""
    killed_while_building(shim, lock)
    shim.launch(2, build(shim, lock, 2, elsewhere))
    assert shim.await_output(generation=2) == "waits\n"
    with pytest.raises(TimeoutError):
        shim.until("exited", 1.0)
    lock.unlink()
    wait_until(lambda: shim.output(generation=2) == "waits\ngoes on\n")


def test_another_programs_build_under_way_is_waited_for(shim: Shim, lock: Path) -> None:
    shim.launch(1, shim.sh("exit 0"))
    shim.until("empty")
    with subprocess.Popen(
        ["/bin/sh", "-c", f"exec 9>{lock}; echo up; exec sleep 600"], stdout=subprocess.PIPE
    ) as builder:
        try:
            assert builder.stdout is not None
            builder.stdout.readline()
            shim.launch(2, build(shim, lock, 2))
            assert shim.await_output(generation=2) == "waits\n"
        finally:
            builder.kill()
    assert lock.exists()
    assert Path(f"{shim.out}/g2.r0.err").read_text() == ""


@pytest.mark.require("root")
def test_it_is_done_as_the_ranks_user(shim: Shim, lock: Path, tmp_path: Path) -> None:
    """So root never touches a file that a user has named, and a user's own lock goes away all the same."""
    killed_while_building(shim, lock)
    nobody = {"uid": 65534, "gid": 65534, "groups": []}
    for path in (tmp_path, *tmp_path.parents):
        if path.name.startswith(("pytest-", "popen-")):
            path.chmod(path.stat().st_mode | 0o011)
    for path in (tmp_path, shim.out, *list(lock.parents)[:6]):
        path.chmod(0o777)
    order = shim.sh(f"test -e {lock} && echo there || echo gone", generation=2)
    order["env"]["HOME"] = str(lock.parents[4])
    shim.launch(2, order, **nobody)
    shim.until("empty")
    assert shim.output(generation=2) == "there\n", "root's is not the user's"
    os.chown(lock, 65534, 65534)
    order = shim.sh(f"test -e {lock} && echo there || echo gone", generation=3)
    order["env"]["HOME"] = str(lock.parents[4])
    shim.launch(3, order, **nobody)
    shim.until("empty")
    assert shim.output(generation=3) == "gone\n"
