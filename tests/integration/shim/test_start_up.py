"""A shim starts lean: what it imports is the standard library, and little of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_agent.shim import shim as shim_program

Shim = Any
HEAVY = {"asyncio", "dataclasses", "inspect", "logging", "pathlib", "socket", "subprocess", "threading", "typing"}


def test_only_the_standard_library_and_its_own_parts_are_imported() -> None:
    root = Path(shim_program.__file__).parents[2]
    script = f"import sys; sys.path.append({str(root)!r}); import holdfast_agent.shim.shim; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", script]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in modules if name.startswith("holdfast_agent")}
    assert all(name.split(".")[1:2] in ([], ["shim"]) for name in ours)
    others = {name.split(".")[0] for name in modules} - {"holdfast_agent", "__main__"}
    assert others <= sys.stdlib_module_names
    assert not others & HEAVY


def test_memory_of_its_own_stays_small(shim: Shim) -> None:
    shim.launch(1, *[shim.sh("exit 0", rank=n) for n in range(8)])
    shim.until("empty")
    lines = Path(f"/proc/{shim.process.pid}/smaps_rollup").read_text().splitlines()
    pss_kib = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    assert pss_kib < 12_000  # 6 MB measured; how much of Python is shared differs between machines


def test_idle_shim_uses_no_processor(shim: Shim) -> None:
    shim.launch(1, shim.sh("exec sleep 600"))
    shim.expect("started")

    def ticks() -> int:
        fields = Path(f"/proc/{shim.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1.0)
    assert ticks() - before <= 1


@pytest.mark.parametrize("argument", ["", "x"])
def test_shim_without_a_descriptor_ends_at_once(argument: str) -> None:
    command = [sys.executable, "-I", "-S", shim_program.__file__, *filter(None, [argument])]
    assert subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 1


def test_shim_leads_its_session_even_if_nobody_made_it(start_shim: Callable[..., Shim]) -> None:
    shim = start_shim()
    shim.assign()
    fields = Path(f"/proc/{shim.process.pid}/stat").read_text().rpartition(")")[2].split()
    assert int(fields[3]) == shim.process.pid
    assert Path(f"/proc/{shim.process.pid}/comm").read_text() == "holdfast-shim\n"
