"""A shim that is told of a guard, and its ranks, do not outlive it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from tests.integration.shim.conftest import Shim, process_exists, wait_until

from holdfast_agent.shell.shims.shim_files import start_ticks


@pytest.fixture
def leash() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def shim(start_shim: Callable[..., Shim]) -> Shim:
    """One that was not told its directory yet."""
    return start_shim()


def guarded(shim: Shim, leash: subprocess.Popen[bytes]) -> None:
    shim.directory.mkdir(parents=True, exist_ok=True)
    named = {"pid": leash.pid, "start_ticks": start_ticks(leash.pid)}
    shim.send(op="assign", dir=str(shim.directory), guard=named)


def end(leash: subprocess.Popen[bytes]) -> None:
    leash.kill()
    leash.wait()


def test_an_idle_shim_ends_with_its_guard(shim: Shim, leash: subprocess.Popen[bytes]) -> None:
    guarded(shim, leash)
    shim.expect("hello")

    end(leash)

    assert shim.wait() == 0


def test_ranks_get_term_when_the_guard_is_gone_and_the_shim_ends_after_them(
    shim: Shim, leash: subprocess.Popen[bytes]
) -> None:
    guarded(shim, leash)
    shim.expect("hello")
    shim.launch(1, shim.sh("trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    shim.await_output()

    end(leash)

    assert shim.wait() == 0
    assert shim.output() == "up\ntold\n"
    assert any("holdfast guard is gone" in str(each) for each in shim.journal())


def test_ranks_are_killed_with_a_guarded_shim(shim: Shim, leash: subprocess.Popen[bytes]) -> None:
    guarded(shim, leash)
    shim.expect("hello")
    shim.launch(1, shim.rank("sleep", "1000"))
    rank = shim.until("started")[-1]["pid"]

    shim.process.send_signal(signal.SIGKILL)
    shim.wait()

    wait_until(lambda: not process_exists(rank))


def test_a_shim_whose_guard_is_gone_already_takes_no_worker(shim: Shim, leash: subprocess.Popen[bytes]) -> None:
    named = {"pid": leash.pid, "start_ticks": start_ticks(leash.pid)}
    end(leash)
    shim.directory.mkdir(parents=True, exist_ok=True)

    shim.send(op="assign", dir=str(shim.directory), guard=named)

    assert "cannot take" in shim.expect("refused")["message"]
    assert shim.wait() == 0
