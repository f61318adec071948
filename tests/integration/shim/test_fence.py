"""A generation with a deadline ends by itself when nobody renews it, and says why."""

from __future__ import annotations

import signal
import time

from tests.integration.shim.conftest import Shim

from holdfast_agent.shell.shims.shim_files import Stopping, read_journal
from holdfast_agent.shim.processes import now_s

SLEEP = "sleep 600"
IGNORE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
DEAF = IGNORE + "; print('up', flush=True); time.sleep(600)"


def launch(shim: Shim, term_s: float, *, python: str = "", left_s: float | None = None) -> float:
    """One rank with a fence; returns when it was ordered."""
    began = time.monotonic()
    rank = shim.python(python) if python else shim.sh(SLEEP)
    shim.launch(1, rank, fence_s=term_s, fence_deadline=now_s() + (term_s if left_s is None else left_s))
    return began


def test_ranks_are_stopped_at_the_deadline_and_the_journal_says_why(shim: Shim) -> None:
    began = launch(shim, 1.0)
    *_, stopping, exited = shim.until("exited")
    assert 0.9 < time.monotonic() - began < 30
    assert stopping["ev"] == "stopping"
    assert exited["reason"] == "STOPPED"
    assert exited["message"] == (
        "stopped by itself: no word from the controller for 1 s: killed by signal 15 (SIGTERM)"
    )
    shim.expect("empty")
    assert [record.reason for record in shim.journal() if isinstance(record, Stopping)] == ["STOPPED"]


def test_a_rank_that_ignores_term_is_killed_soon_after(shim: Shim) -> None:
    launch(shim, 2.0, python=DEAF)
    shim.await_output()
    exited = shim.until("exited")[-1]
    assert exited["message"].endswith("killed by signal 9 (SIGKILL)")
    shim.expect("empty")


def test_each_renewal_moves_the_deadline_on(shim: Shim) -> None:
    began = launch(shim, 5.0, left_s=2.0)
    shim.expect("started")
    for renewal in range(1, 4):
        shim.send(op="renew", generation=1, deadline=now_s() + 2.0 + renewal / 2)
    exited = shim.until("exited")[-1]
    assert time.monotonic() - began > 3.4
    assert "no word from the controller" in exited["message"]


def test_a_renewal_never_moves_it_back_nor_beyond_its_term_nor_for_another_generation(shim: Shim) -> None:
    began = launch(shim, 1.5)
    shim.expect("started")
    shim.send(op="renew", generation=1, deadline=now_s() - 100)
    shim.send(op="renew", generation=1, deadline=now_s() + 100)
    shim.send(op="renew", generation=2, deadline=now_s() + 100)
    shim.until("exited")
    assert 1.4 < time.monotonic() - began < 30


def test_it_holds_without_anybody_connected(shim: Shim) -> None:
    launch(shim, 0.5)
    shim.until("started")
    shim.hang_up()
    deadline = time.monotonic() + 20
    while not any(type(record).__name__ == "Empty" for record in read_journal(shim.directory / "g1.journal")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    hello = shim.connect()
    assert hello["phase"] == "empty"
    assert "no word" in shim.until("exited")[-1]["message"]


def test_a_deadline_that_is_over_refuses_the_launch(shim: Shim) -> None:
    launch(shim, 5.0, left_s=-1.0)
    assert shim.expect("refused")["message"] == "the controller has not been heard for 5 s"
    assert not (shim.directory / "g1.journal").exists()


def test_a_launch_without_one_runs_on(shim: Shim) -> None:
    shim.launch(1, shim.sh("sleep 2; exit 3"), fence_s=0, fence_deadline=0)
    assert shim.until("exited")[-1]["reason"] == "NONZERO_EXIT"


def test_a_stop_with_a_long_grace_is_cut_short_by_the_deadline(shim: Shim) -> None:
    began = launch(shim, 1.5, python=DEAF)
    shim.await_output()
    shim.stop(grace_s=600)
    exited = shim.until("exited")[-1]
    assert time.monotonic() - began < 60
    assert exited["message"].endswith("killed by signal 9 (SIGKILL)")


# --- the warning signal ------------------------------------------------------------------------------------------

COUNT = (
    "import signal, time\n"
    "signal.signal(signal.SIGUSR1, lambda *_: print('warned', flush=True))\n"
    "print('up', flush=True)\n"
    "for _ in range(10000):\n    time.sleep(0.05)\n"
)


def test_each_rank_gets_the_signal_once_across_connections(shim: Shim) -> None:
    shim.launch(1, shim.python(COUNT), shim.python(COUNT, rank=1))
    shim.until("started")
    for rank in (0, 1):
        shim.await_output(rank)
    shim.send(op="signal", generation=1, signal=int(signal.SIGUSR1))
    assert shim.until("warned")[-1]["signal"] == signal.SIGUSR1
    shim.connect()
    shim.send(op="signal", generation=1, signal=int(signal.SIGUSR1))
    shim.send(op="signal", generation=2, signal=int(signal.SIGUSR1))
    deadline = time.monotonic() + 20
    while not all("warned" in shim.output(rank) for rank in (0, 1)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    shim.stop()
    shim.until("empty")
    assert [shim.output(rank).count("warned") for rank in (0, 1)] == [1, 1]


def test_what_is_no_signal_ends_the_connection_not_the_ranks(shim: Shim) -> None:
    shim.launch(1, shim.sh(SLEEP))
    shim.until("started")
    shim.send(op="signal", generation=1, signal=9999)
    while shim.receive() is not None:
        pass
    assert shim.connect()["phase"] == "running"


def test_a_generation_that_is_being_stopped_is_not_warned(shim: Shim) -> None:
    shim.launch(1, shim.python(DEAF))
    shim.await_output()
    shim.stop(grace_s=1.0)
    shim.send(op="signal", generation=1, signal=int(signal.SIGUSR1))
    assert "warned" not in [message["ev"] for message in shim.until("empty")]
