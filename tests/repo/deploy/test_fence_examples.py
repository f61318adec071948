"""The examples of fence commands, with stand-ins of ipmitool and curl: 0 only once the BMC says that it is off."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "deploy/fence"
IPMITOOL = """#!/bin/sh
echo "$* $IPMI_PASSWORD" >> {folder}/calls
case "$*" in
*"power off") rm -f {folder}/stays; exit "$OFF_ENDS" ;;
*"power status")
    [ "$ANSWERS" = yes ] || {{ echo "Error: Unable to establish a session" >&2; exit 1; }}
    read left < {folder}/left; echo $((left - 1)) > {folder}/left
    [ "$left" -gt 0 ] && echo "Chassis Power is on" || echo "Chassis Power is off" ;;
esac
"""
CURL = """#!/bin/sh
echo "$*" >> {folder}/calls
[ "$ANSWERS" = yes ] || {{ echo "curl: (28) timed out" >&2; exit 28; }}
case "$*" in
*ComputerSystem.Reset*) exit "$OFF_ENDS" ;;
*) read left < {folder}/left; echo $((left - 1)) > {folder}/left
    [ "$left" -gt 0 ] && echo '{{ "PowerState": "On", "Id": "1" }}' || echo '{{ "PowerState": "Off", "Id": "1" }}' ;;
esac
"""


Done = subprocess.CompletedProcess[str]


def ran(example: str, folder: Path, *, left: int, answers: str = "yes", off_ends: int = 0) -> Done:
    """Run an example; its BMC says ``left`` times that the power is on, and that it is off from then on."""
    for name, text in (("ipmitool", IPMITOOL), ("curl", CURL)):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    (folder / "bmc").write_text("admin\nsecret\n")
    (folder / "left").write_text(f"{left}\n")
    text = (EXAMPLES / example).read_text().replace("/etc/holdfast", str(folder)).replace("sleep 2", "sleep 0")
    env = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "HOLDFAST_HOST": "gpu-01",
        "ANSWERS": answers,
        "OFF_ENDS": str(off_ends),
    }
    return subprocess.run(["sh", "-c", text], env=env, capture_output=True, text=True, timeout=180)


every_example = pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.iterdir()))


@every_example
def test_it_waits_until_the_power_is_off(example: str, tmp_path: Path) -> None:
    done = ran(example, tmp_path, left=4)
    assert done.returncode == 0, done.stderr
    assert "off" in done.stdout.lower()
    calls = (tmp_path / "calls").read_text()
    assert "gpu-01-bmc" in calls and ("power off" in calls or "ForceOff" in calls)
    assert "secret" not in "".join(line.rpartition(" ")[0] for line in calls.splitlines()), (
        "not among the arguments"
    )


@every_example
def test_power_that_stays_on_is_no_proof(example: str, tmp_path: Path) -> None:
    done = ran(example, tmp_path, left=10_000)
    assert done.returncode == 1
    assert "on" in done.stdout.lower()


@every_example
def test_a_bmc_that_does_not_answer_is_no_proof(example: str, tmp_path: Path) -> None:
    done = ran(example, tmp_path, left=0, answers="no")
    assert done.returncode != 0
    last = (done.stdout or done.stderr).splitlines()[-1]
    assert "Unable to establish a session" in last or "timed out" in last, "not that the power is on"


def test_a_host_that_is_off_already_is_proven_off(tmp_path: Path) -> None:
    assert ran("ipmi.sh", tmp_path, left=0, off_ends=1).returncode == 0
    assert ran("redfish.sh", tmp_path, left=0, off_ends=1).returncode == 0
