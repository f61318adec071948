"""The units that come with Holdfast: what the daemons' promises rest on is written in them."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path
from typing import get_type_hints

import pytest

from holdfast.spec.models.lifecycle import Scheduling

UNITS = Path(__file__).parents[3] / "deploy/systemd"
AGENT, CONTROLLER = UNITS / "holdfast-agent.service", UNITS / "holdfast-controller.service"


def section(unit: Path, name: str) -> dict[str, str]:
    """Later lines of a key that may be repeated win."""
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(unit)
    return dict(parsed[name])


@pytest.mark.parametrize("unit", [AGENT, CONTROLLER], ids=lambda unit: unit.stem)
def test_both_daemons_are_watched_and_started_again_for_ever(unit: Path) -> None:
    service = section(unit, "Service")
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0
    assert service["Restart"] == "always"
    assert section(unit, "Unit")["StartLimitIntervalSec"] == "0"


def test_a_stop_of_the_agent_leaves_its_workers_alone() -> None:
    service = section(AGENT, "Service")
    assert service["KillMode"] == "process"
    assert service["Delegate"] == "yes"


def test_workers_get_what_trainings_need() -> None:
    service = section(AGENT, "Service")
    assert service["TasksMax"] == service["LimitMEMLOCK"] == "infinity"
    assert int(service["LimitNOFILE"]) >= 131072
    assert int(service["OOMScoreAdjust"]) == -900


def test_at_shutdown_the_agent_may_wait_for_the_longest_grace() -> None:
    (bounds,) = get_type_hints(Scheduling, include_extras=True)["grace_period"].__metadata__
    assert int(section(AGENT, "Service")["TimeoutStopSec"]) > bounds.high


def test_the_controller_has_a_user_of_its_own_and_no_capability() -> None:
    service = section(CONTROLLER, "Service")
    assert service["User"] == "holdfast"
    assert service["CapabilityBoundingSet"] == ""


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")
def test_the_controller_is_exposed_to_hardly_anything() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--json=short", "--threshold=15", str(CONTROLLER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    units = []
    for unit in sorted(UNITS.iterdir()):
        copy = tmp_path / unit.name
        # The daemons may not be installed where the tests run.
        text = unit.read_text()
        for daemon in ("agent", "controller"):
            text = text.replace(f"=/usr/bin/holdfast-{daemon} ", "=/bin/true ")
        copy.write_text(text)
        units.append(str(copy))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=180)
    # Of other units on this machine nothing is asked.
    assert [line for line in done.stderr.splitlines() if "holdfast" in line] == []
