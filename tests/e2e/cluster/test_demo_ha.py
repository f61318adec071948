"""``make demo-ha``, with a short training."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples import demo_ha
from tests.support import postgres

ROOT = Path(__file__).parents[3]


@pytest.mark.require("postgres")
def test_the_demo_of_two_controllers_tells_what_nobody_noticed() -> None:
    command = [sys.executable, "-m", "examples.demo_ha", "--epochs", "100"]
    environment = {name: value for name, value in os.environ.items() if name != "HOLDFAST_CONFIG"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\*\*\* SIGKILL to the controller that leads, process \d+\n", done.stdout)
    for finding in (
        r"the other controller led after \d+\.\d s",
        r"ranks: \d+, \d+, \d+, \d+, the same processes before and after",
        "log: 10 reports, none missing, none twice, in order",
        "exit status of holdfast run: 0",
    ):
        assert re.search(finding, done.stdout), done.stdout


@pytest.mark.parametrize("missing", demo_ha.INSTALL)
def test_the_demo_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(postgres, "missing", lambda: missing)
    monkeypatch.setattr(sys, "argv", ["demo_ha"])
    assert demo_ha.main() == 1
    assert f"there is no {missing} here. Install it: {demo_ha.INSTALL[missing]}." in capsys.readouterr().err
