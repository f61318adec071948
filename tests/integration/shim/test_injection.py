"""Faults that a real shim puts into a real rank: each is there, and each is undone, whoever goes away first."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.shim.conftest import PATIENCE_S, Shim, process_exists, wait_until
from tests.integration.shim.test_cgroup import place as place

from holdfast_agent.shell.shims.shim_files import Started
from holdfast_agent.shim.processes import Process
from holdfast_agent.shim.rehearsal import faults
from holdfast_agent.shim.rehearsal.injection import FAULTS, Order

COUNTS = """
import os, subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
def count(name):
    while True:
        open(name, "w").write(str(time.monotonic()))
        time.sleep(0.01)
threading.Thread(target=count, args=("beside",), daemon=True).start()
print(child.pid, flush=True)
count("main")
"""
WRITES = """
import time
print("on", flush=True)
while True:
    try:
        with open("data", "w") as file:
            file.write("x" * 100)
        open("said", "r+").write("fits ")
    except OSError as error:
        open("failed", "w").close()
    time.sleep(0.01)
"""
TALKS = """
import socket, time
time.sleep(0.5)  # until it is in its cgroup
theirs = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
theirs.bind(("127.0.0.1", 0))
theirs.settimeout(0.05)
print("on", flush=True)
while True:
    try:
        ours.sendto(b"x", theirs.getsockname())
        theirs.recv(10)
        said = "through"
    except OSError:
        said = "cut off"
        open("failed", "w").close()
    open("said", "w").write(said)
    time.sleep(0.01)
"""


class Injected:
    """The agent's end of one fault."""

    def __init__(self, shim: Shim, fault: str, for_s: float = 600.0, rank: int = 0, speed: int = 50) -> None:
        directory = os.open(shim.directory, os.O_RDONLY)
        listener = socket.socket(socket.AF_UNIX)
        try:
            name = f"fault.{time.monotonic_ns()}"
            listener.bind(f"/proc/self/fd/{directory}/{name}")
            listener.listen(1)
            listener.settimeout(PATIENCE_S)
            shim.send(op="inject", generation=1, rank=rank, socket=name, fault=fault, for_s=for_s, speed=speed)
            self.connection, _ = listener.accept()
        finally:
            os.close(directory)
            listener.close()
        self.connection.settimeout(PATIENCE_S)

    def says(self) -> tuple[str, str]:
        """Kind and words of the next frame; empty at the end."""
        head = self.connection.recv(3)
        if not head:
            return "", ""
        size = int.from_bytes(head[1:], "big")
        return head[:1].decode(), self.connection.recv(size).decode() if size else ""

    def begun(self) -> Injected:
        assert self.says() == ("b", "")
        return self


@pytest.fixture
def inject(shim: Shim) -> Iterator[Any]:
    """Puts faults into ranks of the shim; their connections are closed at the end."""
    made: list[Injected] = []

    def injects(*words: Any, **fields: Any) -> Injected:
        made.append(Injected(shim, *words, **fields))
        return made[-1]

    yield injects
    for each in made:
        each.connection.close()


@pytest.fixture
def counting(shim: Shim) -> tuple[int, int]:
    """Pids of a rank and of its child; two of the rank's threads write into files all the time."""
    shim.launch(1, shim.python(COUNTS))
    pid = shim.until("started")[-1]["pid"]
    child = int(shim.await_output())
    wait_until(lambda: moves(shim, "main") and moves(shim, "beside"))
    return pid, child


def moves(shim: Shim, name: str) -> bool:
    """Whether it is written within a fifth of a second; on a busy machine it may not be, though its writer is free."""
    file = Path(shim.out, name)
    before = file.stat().st_mtime_ns if file.exists() else 0
    time.sleep(0.2)
    return file.exists() and file.stat().st_mtime_ns != before


def keepers(shim: Shim) -> set[int]:
    """Processes of the shim that are no ranks: those that keep its faults."""
    below = Path(f"/proc/{shim.process.pid}/task/{shim.process.pid}/children").read_text().split()
    return {*map(int, below)} - {each.pid for each in shim.journal() if isinstance(each, Started)}


def until_over(shim: Shim) -> None:
    """A fault says that it is undone a moment before the shim has reaped its keeper and takes another one."""
    wait_until(lambda: not keepers(shim))


def state(pid: int) -> str:
    return Process(pid).state


def test_the_shim_says_which_faults_it_knows(shim: Shim) -> None:
    assert shim.connect()["faults"] == list(FAULTS)


def test_kill_ends_the_rank_with_all_that_it_has_started(
    shim: Shim, inject: Any, counting: tuple[int, int]
) -> None:
    fault = inject("kill").begun()
    exited = shim.until("exited")[-1]
    assert (exited["reason"], exited["status"]) == ("SIGNALED", signal.SIGKILL)
    assert fault.says() == ("x", "") and fault.says() == ("", "")
    wait_until(lambda: not process_exists(counting[1]))


def test_stop_holds_all_of_the_rank_and_lets_it_go_in_time(
    shim: Shim, inject: Any, counting: tuple[int, int]
) -> None:
    held = inject("stop").begun()
    assert [state(pid) for pid in counting] == ["T", "T"]
    assert not moves(shim, "main") and not moves(shim, "beside")
    held.connection.close()
    wait_until(lambda: "T" not in [state(pid) for pid in counting])
    until_over(shim)
    assert inject("stop", for_s=0.2).begun().says() == ("x", "")
    assert "T" not in [state(pid) for pid in counting]
    wait_until(lambda: moves(shim, "main"))


@pytest.mark.parametrize("fault", ["stop", "slow"])
def test_a_fault_is_undone_when_the_agent_goes_away(
    shim: Shim, inject: Any, counting: tuple[int, int], fault: str
) -> None:
    inject(fault, speed=1).begun().connection.close()
    wait_until(lambda: moves(shim, "main"))


def test_nothing_stands_still_once_the_shim_is_dead(
    shim: Shim, inject: Any, counting: tuple[int, int], strays: list[int]
) -> None:
    strays += counting
    given = inject("stop").begun()
    shim.process.kill()
    assert given.says() == ("x", "")
    # The kernel ends a process group that is left with stopped processes, and no parent, by SIGHUP.
    wait_until(lambda: not process_exists(counting[0]) or moves(shim, "main"))


@pytest.mark.parametrize("fault", ["stop", "disk"])
def test_a_fault_is_undone_when_its_keeper_is_killed(shim: Shim, inject: Any, fault: str) -> None:
    shim.launch(1, shim.python(WRITES.replace("import time", "import time; open('said', 'w').write('     ')")))
    pid = shim.until("started")[-1]["pid"]
    shim.await_output()
    given = inject(fault).begun()
    (keeper,) = keepers(shim)
    os.kill(keeper, signal.SIGKILL)
    assert given.says() == ("", "")
    said = Path(shim.out, "said")
    wait_until(lambda: state(pid) in "RSD")
    said.write_text("     ")
    wait_until(lambda: said.read_text() == "fits ")


def test_a_stopped_rank_is_told_to_end_and_does(shim: Shim, inject: Any, counting: tuple[int, int]) -> None:
    given = inject("stop").begun()
    shim.stop(grace_s=PATIENCE_S)
    assert shim.until("exited")[-1]["message"].endswith("(SIGTERM)")
    assert given.says() == ("x", "")
    shim.until("empty")


def test_a_stopped_rank_that_is_killed_ends_its_fault(shim: Shim, inject: Any, counting: tuple[int, int]) -> None:
    given = inject("stop").begun()
    inject("kill").begun()
    assert shim.until("exited")[-1]["status"] == signal.SIGKILL
    assert given.says() == ("x", "")


def test_slow_runs_for_its_part_of_the_time(shim: Shim, inject: Any) -> None:
    shim.launch(1, shim.python("print('on', flush=True)\nwhile True: pass"))
    pid = shim.until("started")[-1]["pid"]
    shim.await_output()

    def used_s() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    given = inject("slow", for_s=3.0, speed=20).begun()
    before = used_s()
    assert given.says() == ("x", "")
    assert used_s() - before < 3.0 * 0.45
    assert state(pid) in "RSD"


def test_slow_counts_the_time_in_which_it_looks_for_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast_agent.shim.rehearsal import faults
    from holdfast_agent.shim.rehearsal.injection import Order

    stood: list[float] = []
    looks_at = iter((100.0, 100.1))
    monkeypatch.setattr(faults, "now_s", lambda: next(looks_at), raising=False)
    monkeypatch.setattr(faults, "tree", lambda _: [])
    monkeypatch.setattr("time.sleep", stood.append)
    order = Order({"rank": 0, "socket": "s", "fault": "slow", "for_s": 30.0, "speed": 50})
    faults.Slow(0, order, "").again()
    assert stood == [pytest.approx(0.2)], (
        "as long as it ran: 0.1 s of its period, and 0.1 s while it was looked for"
    )


def test_disk_lets_no_file_grow_and_is_undone(shim: Shim, inject: Any) -> None:
    shim.launch(1, shim.python(WRITES.replace("import time", "import time; open('said', 'w').write('     ')")))
    shim.until("started")
    shim.await_output()
    said = Path(shim.out, "said")
    wait_until(lambda: said.read_text() == "fits ")
    given = inject("disk", for_s=1.0).begun()
    assert given.says() == ("x", "")
    assert Path(shim.out, "failed").exists()
    wait_until(lambda: said.read_text() == "fits " and Path(shim.out, "data").stat().st_size == 100)


@pytest.mark.require("cgroup")
def test_disk_limits_all_that_live_and_forgets_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    first, ended, other = (subprocess.Popen(["sleep", "600"]) for _ in range(3))
    try:
        tree = [Process(each.pid) for each in (first, ended, other)]
        ended.kill()
        ended.wait()
        limit = resource.prlimit(other.pid, resource.RLIMIT_FSIZE)
        monkeypatch.setattr(faults, "tree", lambda _: tree)
        fault = faults.Disk(first.pid, cast(Order, None), "")
        fault.begin()
        assert resource.prlimit(other.pid, resource.RLIMIT_FSIZE) == (0, limit[1])
        del tree[1:]  # its parent has ended, so it is below the rank no more
        fault.undo()
        assert {resource.prlimit(each.pid, resource.RLIMIT_FSIZE) for each in (first, other)} == {limit}
    finally:
        for each in (first, ended, other):
            each.kill()
            each.wait()


def test_net_cuts_the_ranks_off_and_is_undone(shim: Shim, inject: Any, place: Path) -> None:
    shim.launch(1, shim.python(TALKS), cgroup=str(place))
    shim.until("started")
    shim.await_output()
    said = Path(shim.out, "said")
    wait_until(lambda: said.exists() and said.read_text() == "through")
    given = inject("net", for_s=1.0).begun()
    assert given.says() == ("x", "")
    assert Path(shim.out, "failed").exists()
    wait_until(lambda: said.read_text() == "through")
    until_over(shim)
    given = inject("net").begun()
    wait_until(lambda: said.read_text() == "cut off")
    given.connection.close()
    wait_until(lambda: said.read_text() == "through")
    shim.stop(grace_s=0)
    shim.until("empty")


def test_what_cannot_be_done_is_refused_with_its_cause(shim: Shim, inject: Any, counting: tuple[int, int]) -> None:
    assert "has no cgroup" in inject("net").says()[1]
    assert inject("stop", rank=7).says() == ("p", "rank 7 is not running there")
    inject("stop").begun()
    assert inject("slow").says() == ("p", "rank 0 has a fault already; wait until it is over")
    shim.stop(grace_s=0)
    shim.until("empty")
    assert "are not running there" in inject("stop").says()[1]


@pytest.mark.parametrize("wrong", [{"fault": "burn"}, {"for_s": 0}, {"for_s": 3601}, {"speed": 0}, {"speed": 100}])
def test_an_order_that_makes_no_sense_ends_the_connection_and_nothing_else(
    shim: Shim, counting: tuple[int, int], wrong: dict[str, Any]
) -> None:
    order = {"rank": 0, "socket": "x", "fault": "stop", "for_s": 1, "speed": 50, **wrong}
    shim.send(op="inject", generation=1, **order)
    assert shim.receive() is None
    assert shim.connect()["phase"] == "running" and state(counting[0]) in "SRD"
