"""Shims of one gang keep each other's ranks running while no controller is heard, and say which of them is silent."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import FAILPOINTS, Message, Shim, process_exists, wait_until

from holdfast_agent.shim.processes import now_s

TERM_S = 2.0
SECRET = "5e" * 16
SLEEP = "exec sleep 600"


class Relay:
    """A path for datagrams from a port of its own to another port, and back; each way can be cut."""

    def __init__(self, target: int) -> None:
        self.front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.front.bind(("127.0.0.1", 0))
        self.back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.back.connect(("127.0.0.1", target))
        self.port = int(self.front.getsockname()[1])
        self.there = self.back_again = True
        self.seen: list[bytes] = []
        self._client: tuple[str, int] | None = None
        self._stop, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            waited: list[Any] = [self.front, self.back, self._stop]
            ready, _, _ = select.select(waited, [], [])
            if self._stop in ready:
                return
            try:
                if self.front in ready:
                    data, self._client = self.front.recvfrom(2048)
                    self.seen.append(data)
                    if self.there:
                        self.back.send(data)
                if self.back in ready:
                    data = self.back.recv(2048)
                    self.seen.append(data)
                    if self.back_again and self._client is not None:
                        self.front.sendto(data, self._client)
            except ConnectionRefusedError:
                pass  # nothing listens there now

    def close(self) -> None:
        os.close(self._wake)
        self._thread.join()
        for each in (self.front, self.back):
            each.close()
        os.close(self._stop)


@pytest.fixture
def relay() -> Iterator[Callable[[int], Relay]]:
    made: list[Relay] = []

    def start(target: int) -> Relay:
        made.append(Relay(target))
        return made[-1]

    yield start
    for each in made:
        each.close()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def launch(
    shim: Shim, index: int, port: int, others: dict[int, int], *, script: str = SLEEP, **more: object
) -> None:
    """One rank of a worker whose controller was heard just now, and is not heard again."""
    order = {
        "index": index,
        "port": port,
        "secret": SECRET,
        "others": [[other, f"127.0.0.1:{at}"] for other, at in others.items()],
    }
    fence = {"fence_s": TERM_S, "fence_deadline": now_s() + TERM_S}
    shim.launch(1, shim.sh(script), peers=order | fence, **more)
    shim.until("started")


@pytest.fixture
def pair(start_shim: Callable[..., Shim], tmp_path: Path) -> tuple[Shim, Shim]:
    """The shims of two workers."""
    made = start_shim(tmp_path / "a" / "worker"), start_shim(tmp_path / "b" / "worker")
    for each in made:
        each.assign()
    return made


def together(pair: tuple[Shim, Shim]) -> None:
    ports = free_port(), free_port()
    for index, shim in enumerate(pair):
        launch(shim, index, ports[index], {1 - index: ports[1 - index]})


def nothing_for(shim: Shim, seconds: float) -> None:
    with pytest.raises(TimeoutError):
        shim.receive(seconds)


def die_at_once(shim: Shim, pid: int) -> None:
    """As in a power cut: the shim and its rank are gone in the same moment."""
    shim.process.send_signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    shim.process.kill()
    shim.process.wait()


def pid_of(shim: Shim) -> int:
    started = next(each for each in shim.journal() if type(each).__name__ == "Started")
    return int(started.pid)  # type: ignore[union-attr]


def test_ranks_outlive_the_controllers_silence_while_the_gang_is_whole(pair: tuple[Shim, Shim]) -> None:
    together(pair)
    nothing_for(pair[0], 4 * TERM_S)
    assert all(process_exists(pid_of(shim)) for shim in pair)


def test_a_worker_whose_peer_is_dead_ends_and_the_peer_is_reported_silent(pair: tuple[Shim, Shim]) -> None:
    together(pair)
    time.sleep(1.0)
    began = time.monotonic()
    die_at_once(pair[1], pid_of(pair[1]))
    exited = pair[0].until("exited", 3 * TERM_S)[-1]
    assert exited["reason"] == "STOPPED"
    assert exited["message"].startswith(
        "stopped by itself: no word from the controller for 2 s, nor from another worker of the job"
    )
    assert pair[0].until("peers", 3 * TERM_S)[-1]["silent"] == [[1, 1]]
    # By then the deadline and the grace of what was silent are over: its last question came at most a share earlier.
    assert time.monotonic() - began > TERM_S * (1.2 - 1 / 8) - 0.05


def test_a_controller_that_is_heard_is_enough(pair: tuple[Shim, Shim]) -> None:
    together(pair)
    time.sleep(1.0)
    die_at_once(pair[1], pid_of(pair[1]))
    for _ in range(12):
        time.sleep(TERM_S / 4)
        pair[0].send(op="renew", generation=1, deadline=now_s() + TERM_S)
    assert [each["ev"] for each in pair[0].until("peers")] == ["peers"]
    assert process_exists(pid_of(pair[0]))


@pytest.mark.parametrize("way", ["there", "back_again"])
def test_either_way_of_the_network_is_needed(
    pair: tuple[Shim, Shim], relay: Callable[[int], Relay], way: str
) -> None:
    ports = free_port(), free_port()
    between = relay(ports[1])
    back = relay(ports[0])
    launch(pair[0], 0, ports[0], {1: between.port})
    launch(pair[1], 1, ports[1], {0: back.port})
    time.sleep(1.0)
    # Only datagrams towards worker 1 are lost, or only those from it.
    setattr(between, way, False)
    setattr(back, "back_again" if way == "there" else "there", False)
    for shim in pair:
        assert "another worker" in shim.until("exited", 3 * TERM_S)[-1]["message"]
    for index, shim in enumerate(pair):
        told = shim.until("peers", 3 * TERM_S)[-1] if not index else None
        assert told is None or told["silent"] == [[1, 1]]


def test_peers_that_never_answered_are_not_relied_on_nor_reported(pair: tuple[Shim, Shim]) -> None:
    peer = free_port()
    launch(pair[0], 0, free_port(), {1: peer})
    note = pair[0].until("note", 3 * TERM_S)[-1]["message"]
    assert note == f"no answer by UDP from 127.0.0.1:{peer}: should this host be lost, the job waits for it"
    nothing_for(pair[0], 3 * TERM_S)
    assert process_exists(pid_of(pair[0]))


def test_one_of_two_peers_is_not_enough_to_be_relied_on(pair: tuple[Shim, Shim]) -> None:
    ports = free_port(), free_port()
    launch(pair[0], 0, ports[0], {1: ports[1], 2: free_port()})
    launch(pair[1], 1, ports[1], {0: ports[0]})
    pair[0].until("note", 3 * TERM_S)
    nothing_for(pair[0], 3 * TERM_S)
    assert process_exists(pid_of(pair[0]))
    assert process_exists(pid_of(pair[1])), "it is answered, whatever its peer relies on"


def test_a_worker_that_has_finished_still_answers(pair: tuple[Shim, Shim]) -> None:
    ports = free_port(), free_port()
    launch(pair[0], 0, ports[0], {1: ports[1]})
    launch(pair[1], 1, ports[1], {0: ports[0]}, script="sleep 1")
    pair[1].until("empty")
    told: list[Message] = []
    while not told or told[-1]["ev"] != "peers":
        message = pair[0].receive(4 * TERM_S)
        assert message is not None
        told.append(message)
    assert told[-1]["silent"] == [[1, 1]], "it asks for nothing any more: nothing of it is left to run"
    assert process_exists(pid_of(pair[0]))


def test_an_agent_that_connects_again_is_told_again(pair: tuple[Shim, Shim]) -> None:
    together(pair)
    time.sleep(1.0)
    die_at_once(pair[1], pid_of(pair[1]))
    pair[0].until("peers", 4 * TERM_S)
    pair[0].connect()
    assert pair[0].until("peers")[-1]["silent"] == [[1, 1]]


def test_an_agent_that_was_away_is_told_that_nobody_is_silent_any_more(pair: tuple[Shim, Shim]) -> None:
    together(pair)
    time.sleep(1.0)
    pair[0].connect()
    assert pair[0].until("peers")[-1]["silent"] == []


def test_what_is_forged_or_sent_again_grants_nothing(
    pair: tuple[Shim, Shim], relay: Callable[[int], Relay]
) -> None:
    ports = free_port(), free_port()
    between = relay(ports[1])
    launch(pair[0], 0, ports[0], {1: between.port})
    launch(pair[1], 1, ports[1], {0: ports[0]})
    time.sleep(1.0)
    die_at_once(pair[1], pid_of(pair[1]))
    began, sender = time.monotonic(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        while time.monotonic() < began + TERM_S + 1.0:
            for data in [*between.seen[-64:], b"", b"x" * 37, os.urandom(37)]:
                sender.sendto(data, ("127.0.0.1", ports[0]))
            time.sleep(0.1)
    assert "another worker" in pair[0].until("exited", TERM_S)[-1]["message"]


def test_a_port_that_is_taken_is_said_and_the_ranks_run_on(pair: tuple[Shim, Shim]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        port = int(taken.getsockname()[1])
        order = {"index": 0, "port": port, "secret": SECRET, "others": [[1, "127.0.0.1:9"]]}
        fence: Message = {"fence_s": 0.5, "fence_deadline": now_s() + 0.5}
        pair[0].launch(1, pair[0].sh("sleep 2; exit 3"), peers=order | fence)
        assert "no lease with the job's other workers" in pair[0].expect("note")["message"]
        assert pair[0].until("exited")[-1]["reason"] == "NONZERO_EXIT"


def test_a_relaunch_takes_the_same_port_again(pair: tuple[Shim, Shim]) -> None:
    ports = free_port(), free_port()
    launch(pair[0], 0, ports[0], {1: ports[1]}, script="exit 1")
    launch(pair[1], 1, ports[1], {0: ports[0]})
    pair[0].until("empty")
    order = {"index": 0, "port": ports[0], "secret": SECRET, "others": [[1, f"127.0.0.1:{ports[1]}"]]}
    fence: Message = {"fence_s": TERM_S, "fence_deadline": now_s() + TERM_S}
    pair[0].launch(2, pair[0].sh(SLEEP, generation=2), peers=order | fence)
    assert [each["ev"] for each in pair[0].until("started")] == ["started"]
    nothing_for(pair[0], 3 * TERM_S)
    wait_until(lambda: process_exists(pid_of(pair[1])))


@pytest.mark.parametrize("where", ["shim.clock.after", "shim.heard.after", "anywhere"])
def test_a_shim_that_stood_still_for_longer_than_the_lease_hears_first_what_was_said_meanwhile(
    hasty: Callable[..., Shim], tmp_path: Path, where: str
) -> None:
    """Its agent heard the controller all the time; the questions of its peer lie in its socket."""
    armed = tmp_path / "failpoints"
    armed.mkdir()
    pair = (
        hasty(FAILPOINTS.format(folder=str(armed)), tmp_path / "a" / "worker"),
        hasty("", tmp_path / "b" / "worker"),
    )
    together(pair)
    time.sleep(1.0)
    if where == "anywhere":
        pair[0].process.send_signal(signal.SIGSTOP)
    else:
        (armed / where).write_text("stop")
    try:
        for _ in range(10):
            for shim in pair:
                shim.send(op="renew", generation=1, deadline=now_s() + TERM_S)
            time.sleep(TERM_S / 4)
        assert Path(f"/proc/{pair[0].process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    finally:
        pair[0].process.send_signal(signal.SIGCONT)
    for _ in range(6):
        for shim in pair:
            shim.send(op="renew", generation=1, deadline=now_s() + TERM_S)
        time.sleep(TERM_S / 4)
    assert all(process_exists(pid_of(shim)) for shim in pair)
    said: list[dict[str, object]] = []
    with contextlib.suppress(TimeoutError):
        while (message := pair[0].receive(0.5)) is not None:
            said.append(dict(message))
    assert [each for each in said if each["ev"] == "peers" and each["silent"]] == [], "it took no peer for silent"
