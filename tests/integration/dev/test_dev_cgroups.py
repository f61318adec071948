"""Cgroups of a dev cluster with real daemons: ``dev stop`` leaves none behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import dev

WITHIN_S = 180.0


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < ends, "it never came about"
        time.sleep(0.05)


@pytest.mark.require("cgroup", "root")
def test_stop_removes_the_cgroups_of_its_agents(tmp_path: Path) -> None:
    folder = tmp_path / "dev"
    dev.start(folder)
    try:
        env = os.environ | {"HOLDFAST_CONFIG": str(folder / "client.toml")}
        run = [sys.executable, "-m", "holdfast", "run", "--detach", "--", "sleep", "600"]
        job = subprocess.run(run, env=env, check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()
        root = Path((folder / "hosts/host-0/state/cgroup").read_text())
        until(lambda: any(root.glob(f"{job}/*/g1")))
    finally:
        dev.stop(folder)
    assert not root.exists()
