"""Daemons that are started with a umask of 000 make nothing that other users may write to."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agent.conftest import Agent, agent, controller, settings
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import launch

from holdfast._security.enrolment import files

__all__ = ["agent", "controller", "settings"]

HOLDFAST = [sys.executable, "-m", "holdfast"]


@pytest.fixture
def none() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(top: Path) -> list[str]:
    """All that group or others may write to below a folder, itself included."""
    found = []
    for path in (top, *top.rglob("*")):
        mode = path.lstat().st_mode
        # To connect to a socket one has to be let through its folder.
        if mode & 0o022 and not stat.S_ISLNK(mode) and not stat.S_ISSOCK(mode):
            found.append(f"{path.relative_to(top)} {mode & 0o7777:o}")
    return found


PRINT = "import os; print('umask %03o' % os.umask(0)); open('made', 'w').close()"


async def test_what_an_agent_and_its_shims_make(agent: Agent, controller: Controller, none: None) -> None:
    await controller.connected()
    assert agent.kill(signal.SIGTERM) == 0
    for made in ("state", "logs"):
        shutil.rmtree(agent.root / made)
    agent.settings |= {"state_dir": "new/deep/state", "log_dir": "new/deep/logs"}
    agent.start()
    await controller.connected(2)
    await launch(controller, [sys.executable, "-c", PRINT.replace("open('made'", "os.umask(0o022); open('made'")])
    assert (await controller.exit()).exit.exit_code == 0
    assert (agent.root / "new/deep/logs/job-1/g1/workerpool0-0.r0.out").read_text() == "umask 022\n"
    assert open_to_others(agent.root / "new") == []
    await controller.state("EMPTY")
    await controller.assign(assignment("FORGET"))
    await agent.gone(agent.root / "new/deep/state/workers/job-1")


def test_what_a_dev_cluster_and_its_daemons_make(tmp_path: Path, none: None) -> None:
    folder = tmp_path / "new/deep/dev"
    env = {**os.environ, "HOLDFAST_CONFIG": str(folder / "client.toml")}
    started = subprocess.run(
        [*HOLDFAST, "dev", "start", "--dir", str(folder)], env=env, capture_output=True, text=True
    )
    try:
        assert started.returncode == 0, started.stderr
        ran = subprocess.run(
            [*HOLDFAST, "run", "--", "true"], env=env, capture_output=True, text=True, cwd=tmp_path
        )
        assert ran.returncode == 0, ran.stderr
        assert open_to_others(tmp_path / "new") == []
    finally:
        subprocess.run([*HOLDFAST, "dev", "stop", "--dir", str(folder)], env=env, capture_output=True, check=True)


def test_folders_for_keys_and_those_above_them(tmp_path: Path, none: None) -> None:
    files.folder(tmp_path / "a/b/keys", 0o700)
    assert open_to_others(tmp_path / "a") == []
    assert os.umask(0) == 0, "of the process it stays"
