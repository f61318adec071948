"""The agent comes and goes, stalls or talks nonsense; ranks and records don't mind."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Shim = Any
Eventually = Callable[[Callable[[], bool]], None]


def test_hello_names_the_phase(shim: Shim) -> None:
    assert shim.connect() == {
        "ev": "hello",
        "version": 1,
        "pid": shim.process.pid,
        "generation": 0,
        "phase": "idle",
        "shells": True,
        "bindings": True,
        "faults": ["kill", "stop", "slow", "disk", "net", "hang"],
    }
    shim.launch(1, shim.sh("trap '' TERM; echo up; while :; do sleep 0.05; done"))
    shim.await_output()
    assert shim.connect()["phase"] == "running"
    shim.stop(grace_s=600)
    shim.until("stopping")
    assert shim.connect()["phase"] == "stopping"
    shim.stop(grace_s=0)
    shim.until("empty")
    hello = shim.connect()
    assert (hello["generation"], hello["phase"]) == (1, "empty")


def test_exit_while_no_agent_is_there_is_told_to_the_next(shim: Shim, eventually: Eventually) -> None:
    shim.launch(1, shim.sh("sleep 0.3; exit 7"))
    live = [shim.expect("started")]
    shim.hang_up()
    eventually(lambda: len(shim.journal()) == 5)
    assert shim.connect()["phase"] == "empty"
    replay = shim.until("empty")
    assert replay[0] == live[0]
    assert [(m["ev"], m.get("status")) for m in replay] == [("started", None), ("exited", 7 << 8), ("empty", None)]
    shim.connect()
    assert shim.until("empty") == replay, "as often as it is asked for"


def test_new_connection_replaces_the_old_one(shim: Shim) -> None:
    old = shim.connection
    shim.connection = socket.socket()
    shim.connect()
    assert old.recv(1) == b""
    old.close()
    shim.launch(1, shim.sh("exit 0"))
    shim.until("empty")


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b"17\n",
        b"{}\n",
        b'{"op": "fly"}\n',
        b'{"op": "stop"}\n',
        b'{"op": "launch", "generation": "x"}\n',
        b'{"op": "launch", "generation": 1e999}\n',
        b'{"op": "stop", "generation": 1, "grace_s": NaN, "reason": "STOPPED"}\n',
        b'{"op": "stop", "generation": 1, "grace_s": -1, "reason": "STOPPED"}\n',
        b'{"op": "assign", "dir": "/tmp"}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_malformed_line_ends_the_connection_and_nothing_else(shim: Shim, line: bytes) -> None:
    shim.launch(1, shim.sh("exec sleep 600"))
    shim.expect("started")
    shim.connection.sendall(line)
    assert shim.receive() is None
    assert shim.connect()["phase"] == "running"


def test_line_without_end_is_cut_off(shim: Shim) -> None:
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        shim.connection.sendall(b"x" * (16 << 20))
    assert shim.connect()["phase"] == "idle"


def test_order_may_come_in_small_pieces(shim: Shim) -> None:
    order = json.dumps(shim.order(1, shim.sh("exit 0"))).encode() + b"\n"
    for start in range(0, len(order), 50):
        shim.connection.sendall(order[start : start + 50])
        time.sleep(0.001)
    shim.until("empty")


def test_agent_that_does_not_read_never_holds_the_shim_up(shim: Shim, eventually: Eventually) -> None:
    shim.launch(1, shim.sh("exec sleep 600"))
    refused = json.dumps(shim.order(1)).encode() + b"\n"
    deaf = shim.connection
    deaf.settimeout(60)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        deaf.sendall(refused * 100_000)  # each answered by a refusal that nobody reads
    assert shim.connect()["phase"] == "running"
    shim.stop()
    shim.until("empty")


def test_long_replay_reaches_an_agent_that_reads(shim: Shim) -> None:
    script = "i=0; while [ $i -lt 30 ]; do echo %s >&2; i=$((i+1)); done; exit 1" % ("y" * 190)
    shim.launch(1, *[shim.sh(script, rank=n) for n in range(100)])
    shim.until("empty", timeout_s=60)
    shim.connect()
    exits = [m for m in shim.until("empty") if m["ev"] == "exited"]
    assert len(exits) == 100 and all(len(m["stderr_tail"]) == 20 for m in exits)


def test_spare_ends_with_its_agent(start_shim: Callable[..., Shim]) -> None:
    spare = start_shim()
    spare.hang_up()
    assert spare.wait() == 0


def test_spare_that_hears_nonsense_ends(start_shim: Callable[..., Shim]) -> None:
    spare = start_shim()
    spare.send(op="launch", generation=1)
    assert spare.receive() is None
    assert spare.wait() == 0


def test_assigned_shim_outlives_its_agent(shim: Shim) -> None:
    shim.hang_up()
    assert shim.connect()["phase"] == "idle"


def test_directory_that_is_not_there_is_refused(start_shim: Callable[..., Shim], tmp_path: Path) -> None:
    shim = start_shim()
    shim.send(op="assign", dir=str(tmp_path / "nope"))
    refused = shim.expect("refused")
    assert refused == {
        "ev": "refused",
        "generation": 0,
        "message": f"cannot take {tmp_path}/nope: No such file or directory",
    }
    assert shim.wait() == 0


def test_two_shims_never_share_a_directory(start_shim: Callable[..., Shim], shim: Shim) -> None:
    other = start_shim(shim.directory)
    other.send(op="assign", dir=str(shim.directory))
    assert other.expect("refused")["message"] == f"cannot take {shim.directory}: another shim has it"
    assert other.wait() == 0
    assert shim.connect()["pid"] == shim.process.pid


def test_directory_deeper_than_a_socket_address(start_shim: Callable[..., Shim], tmp_path: Path) -> None:
    shim = start_shim(tmp_path / ("d" * 100) / ("é" * 100))
    shim.assign()
    assert shim.connect()["phase"] == "idle"


def test_quit_ends_an_idle_shim_and_its_socket(shim: Shim) -> None:
    shim.launch(1, shim.sh("exit 0"))
    shim.until("empty")
    shim.send(op="quit")
    assert shim.wait() == 0
    assert sorted(path.name for path in shim.directory.iterdir()) == ["g1.journal", "shim.json"]


def test_quit_is_refused_while_something_runs(shim: Shim) -> None:
    shim.launch(1, shim.sh("exec sleep 600"))
    shim.expect("started")
    shim.send(op="quit")
    assert shim.expect("refused")["message"] == "generation 1 is not empty"
