"""The fault ``hang``: main threads wait in a call that never returns, and all else of the rank goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import PATIENCE_S, Shim, wait_until
from tests.integration.shim.test_injection import counting as counting
from tests.integration.shim.test_injection import inject as inject
from tests.integration.shim.test_injection import keepers, state, until_over

PYTHON_AND_C = """
import os, signal, subprocess, sys, threading, time
handled = []
signal.signal(signal.SIGUSR1, lambda *_: open("handled", "a").write("x"))
def count(name):
    n = 0
    while True:
        n += 1
        open(name + ".new", "w").write(str(n))
        os.rename(name + ".new", name)
        MODE
threading.Thread(target=count, args=("beside",), daemon=True).start()
print("on", flush=True)
count("main")
"""


def counts(shim: Shim, name: str) -> int:
    return int(Path(shim.out, name).read_text())


def until_past(shim: Shim, name: str, count: int) -> None:
    wait_until(lambda: counts(shim, name) > count)


COMPUTES = "sum(range(200_000)); time.sleep(0.002)"
"""Most of the time, and holds Python's lock then."""


@pytest.mark.parametrize(
    "waits_in", ["time.sleep(0.01)", "__import__('select').select([], [], [], 0.01)", COMPUTES]
)
def test_a_hanging_rank_waits_in_a_call_and_goes_on_where_it_was(shim: Shim, inject: Any, waits_in: str) -> None:
    shim.launch(1, shim.python(PYTHON_AND_C.replace("MODE", waits_in)))
    pid = shim.until("started")[-1]["pid"]
    shim.await_output()
    wait_until(lambda: Path(shim.out, "main").exists() and Path(shim.out, "beside").exists())
    for _ in range(3):
        given = inject("hang").begun()
        at, beside = counts(shim, "main"), counts(shim, "beside")
        os.kill(pid, signal.SIGUSR1)
        until_past(shim, "beside", beside + 20)
        assert counts(shim, "main") == at
        assert state(pid) == "S" and Path(f"/proc/{pid}/wchan").read_text().endswith("pause")
        assert "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text(), "to the detection it is no debugger's"
        given.connection.close()
        until_past(shim, "main", at + 20)
        until_over(shim)
    wait_until(lambda: Path(shim.out, "handled").exists())  # signals that came meanwhile are taken then


@pytest.mark.usefixtures("counting")
def test_a_hanging_rank_is_killed_where_its_keeper_was(shim: Shim, inject: Any) -> None:
    given = inject("hang").begun()
    (keeper,) = keepers(shim)
    os.kill(keeper, signal.SIGKILL)
    assert given.says() == ("", "")
    assert shim.until("exited")[-1]["status"] == signal.SIGKILL


def test_a_hanging_rank_is_killed_at_the_end_of_its_grace(
    shim: Shim, inject: Any, counting: tuple[int, int]
) -> None:
    inject("hang").begun()
    shim.stop(grace_s=PATIENCE_S)
    assert shim.until("exited")[-1]["message"].endswith("(SIGTERM)"), "the fault is undone first"


def test_a_rank_whose_memory_may_not_be_read_is_not_made_to_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast_agent.shim.rehearsal import hang

    machine = os.uname()
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"machine": "riscv64"}))
    with pytest.raises(OSError, match="can't be made to hang on riscv64"):
        hang.Held(os.getpid())
    monkeypatch.setattr(os, "uname", lambda: machine)
    with pytest.raises(OSError, match="its memory can't be read"):
        hang.Held(2**22 + 1)
    assert not hang.is_held(os.getpid()) and not hang.is_held(2**22 + 1)
