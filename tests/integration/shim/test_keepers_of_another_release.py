"""A shim outlives upgrades of its agent: what it loads only then may be of another release, or gone."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast_agent.shim.rehearsal as rehearsal
import holdfast_agent.shim.shells as shells
from holdfast_agent.shim import keepers
from holdfast_agent.shim.rehearsal import injection
from holdfast_agent.shim.shells import rank_shell

SHELL = {"rank": 0, "socket": "s", "argv": ["true"], "terminal": False, "term": "", "rows": 1, "columns": 1}
FAULT = {"rank": 0, "socket": "s", "fault": "kill", "for_s": 1.0, "speed": 1}


@pytest.mark.parametrize(
    ("order", "package", "module"),
    [(rank_shell.Order(SHELL), shells, "shell_keeper"), (injection.Order(FAULT), rehearsal, "fault_keeper")],
    ids=["shell", "fault"],
)
def test_an_order_whose_keeper_cannot_be_loaded_is_refused_and_the_shim_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Any, package: Any, module: str
) -> None:
    monkeypatch.delattr(package, module, raising=False)
    monkeypatch.setitem(sys.modules, f"{package.__name__}.{module}", None)
    generation: Any = SimpleNamespace(
        number=1, gone=False, stop=None, keepers=set(), plans={0: None}, cgroup=None, injected={}
    )
    generation.live = {7: SimpleNamespace(rank=0, pid=7)}
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(f"/proc/self/fd/{directory}/s")
        agent.listen(1)
        keepers.begin(generation, 1, order, directory)
        connection, _ = agent.accept()
        with connection:
            assert b"the agent was upgraded" in connection.recv(1000)
    os.close(directory)
