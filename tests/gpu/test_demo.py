"""The whole demo with the machine's own GPUs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gpu.machine import Machine, Report

pytestmark = pytest.mark.gpu
DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_demo_on_the_machines_own_gpus(machine: Machine, report: Report, tmp_path: Path) -> None:
    if importlib.util.find_spec("numpy") is None:
        pytest.skip("the demo's training needs numpy")
    gpus = min(machine.gpus, 2)
    command = [sys.executable, str(DEMO), "--own-gpus", str(gpus), "--dir", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    print(done.stdout[-6000:], done.stderr[-4000:])
    assert done.returncode == 0
    report.note("demo", done.stdout.splitlines()[-1:])
