"""Ranks in a container; any process with a mount namespace of its own is as good as an engine's."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.test_room import holders

from holdfast_agent.shim.processes import Process

Shim = Any
pytestmark = pytest.mark.require("root", "mount")
HOLD = (
    "mount -t tmpfs none /mnt && echo boxed > /mnt/mark"
    " && exec setpriv --bounding-set=-all,+chown,+setpcap,+kill sh -c 'echo up; exec sleep 600'"
)


@pytest.fixture
def holder() -> Iterator[dict[str, int]]:
    """What an order says of a container whose /mnt is not the host's."""
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", HOLD], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield {"pid": process.pid, "start_ticks": Process(process.pid).start_ticks}
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def shim(start_shim: Callable[..., Shim], tmp_path: Path) -> Shim:
    found = start_shim(tmp_path / "job/w0")
    found.assign()
    return found


def test_rank_sees_the_containers_files_and_is_the_shims_child(shim: Shim, holder: dict[str, int]) -> None:
    script = "cat /mnt/mark; cat /proc/self/comm; echo $PPID; echo $$; exit 7"
    shim.launch(1, shim.sh(script), container=holder)
    records = shim.until("exited")
    assert os.waitstatus_to_exitcode(records[-1]["status"]) == 7
    pid = next(record["pid"] for record in records if record["ev"] == "started")
    assert shim.output().split() == ["boxed", "cat", str(shim.process.pid), str(pid)]
    assert not Path("/mnt/mark").exists()
    shim.until("empty")


def test_rank_of_another_account_is_bound_in_a_container_too(shim: Shim, holder: dict[str, int]) -> None:
    cpu = str(max(os.sched_getaffinity(0)))
    binding = {"cpus": cpu, "exclusive": True, "memory_nodes": "", "nics": [], "note": ""}
    rank = shim.sh("cat /mnt/mark; id -u; grep Cpus_allowed_list /proc/self/status") | {
        "binding": binding,
        "cwd": "/",
    }
    shim.launch(1, rank, container=holder, uid=65_534, gid=65_534, groups=[])
    shim.until("empty")
    assert shim.output().split() == ["boxed", "65534", "Cpus_allowed_list:", cpu]


def test_signal_that_ends_a_rank_is_told_as_such(shim: Shim, holder: dict[str, int]) -> None:
    shim.launch(1, shim.sh("kill -ABRT $$"), container=holder)
    assert os.waitstatus_to_exitcode(shim.until("exited")[-1]["status"]) == -6


def test_what_a_rank_leaves_behind_is_ended_with_it(shim: Shim, holder: dict[str, int]) -> None:
    shim.launch(1, shim.sh("setsid sleep 600 & echo $!; exit 0"), container=holder)
    shim.until("empty")
    with pytest.raises(ProcessLookupError):
        os.kill(int(shim.output()), 0)


def test_files_stay_and_shared_memory_goes_from_one_generation_to_the_next(
    shim: Shim, holder: dict[str, int]
) -> None:
    script = "ls -A /dev/shm /mnt; touch /dev/shm/left /mnt/left; exit 0"
    for generation in (1, 2):
        shim.launch(generation, shim.sh(script, generation=generation), container=holder, private_shm=True)
        shim.until("empty")
    assert shim.output(generation=1).split() == ["/dev/shm:", "/mnt:", "mark"]
    assert shim.output(generation=2).split() == ["/dev/shm:", "/mnt:", "left", "mark"]
    assert not Path("/dev/shm/left").exists()


def test_roots_rank_keeps_no_more_capabilities_than_the_container_has(shim: Shim, holder: dict[str, int]) -> None:
    shim.launch(1, shim.sh("grep -E 'Cap(Eff|Bnd)' /proc/self/status; exit 0"), container=holder)
    shim.until("exited")
    chown, kill, setpcap = 1 << 0, 1 << 5, 1 << 8
    assert [int(line.split()[1], 16) for line in shim.output().splitlines()] == [chown | kill | setpcap] * 2


@pytest.mark.parametrize(
    "container",
    [{"pid": 1, "start_ticks": 12345678}, {"pid": 2**22 + 1, "start_ticks": 1}, {"pid": 1}, {"pid": "x"}],
)
def test_container_that_is_gone_or_ill_named_refuses_the_launch(shim: Shim, container: dict[str, Any]) -> None:
    shim.launch(1, shim.sh("exit 0"), container=container, private_shm=True)
    refused = shim.until("refused")[-1]
    assert refused["generation"] == 1
    shim.launch(1, shim.sh("exit 0"))
    assert shim.until("exited")[-1]["status"] == 0


def test_nothing_holds_the_generations_namespaces_once_it_is_empty(shim: Shim, holder: dict[str, int]) -> None:
    shim.launch(1, shim.sh("readlink /proc/self/ns/mnt; readlink /proc/self/ns/ipc; exit 0"), container=holder)
    shim.until("empty")
    mounts, ipc = shim.output().split()
    assert holders({mounts}) == []
    assert ipc == os.readlink("/proc/self/ns/ipc")


def test_secret_of_a_file_is_the_hosts_which_the_container_hides_and_read_as_the_account(
    shim: Shim, holder: dict[str, int]
) -> None:
    with tempfile.TemporaryDirectory(dir="/mnt") as folder:
        os.chmod(folder, 0o755)
        file = Path(folder, "key")
        file.write_text("host's own\n")
        os.chown(file, 65534, 65534)
        file.chmod(0o400)
        script = f'echo "$KEY"; cat {file} 2> /dev/null || echo hidden; id -u'
        rank = shim.sh(script) | {"secret_files": {"KEY": str(file)}, "cwd": "/"}
        shim.launch(1, rank, container=holder, uid=65534, gid=65534, groups=[])
        assert shim.until("exited")[-1]["status"] == 0
    assert shim.output().splitlines() == ["host's own", "hidden", "65534"]
