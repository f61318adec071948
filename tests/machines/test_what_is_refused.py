"""What goes wrong on a real host, and the sentence that an admin reads then."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machines.cluster import ADMIN, USER, employ, init, install, join, tell
from tests.machines.conftest import NEEDS
from tests.machines.machine import Machine, booted
from tests.support.fake_clock.library import DAY_S, FakeClock

pytestmark = [*NEEDS, pytest.mark.require("cc")]
FULL = "No space left on device|disk is full"
HERE = "127.0.0.1"
AGENT = "/usr/bin/holdfast-agent --config /etc/holdfast/agent.toml"
CONTROLLER = "/usr/bin/holdfast-controller --config /etc/holdfast/controller.toml"


def holdfast(machine: Machine, *words: str, fails: bool = False) -> str:
    return machine.run("holdfast", *words, env=ADMIN, fails=fails)


def until(machine: Machine, wanted: str, *words: str) -> str:
    settings = [f"{name}={value}" for name, value in ADMIN.items()]
    return machine.until(wanted, "env", *settings, "holdfast", *words)


@pytest.fixture(scope="module")
def machine(lower: Path, tmp_path_factory: pytest.TempPathFactory, packages: list[Path]) -> Iterator[Machine]:
    """With a controller that runs; it has not joined."""
    print()
    with booted(lower, tmp_path_factory.mktemp("h1"), "h1") as found:
        tell("packages on a machine")
        install(found, packages, "controller", "agent", "client")
        employ(found)
        init(found, HERE)
        until(found, "", "host", "list")
        yield found


@pytest.mark.parametrize(("days", "sentence"), [(1, "is ahead of the controller's"), (-1, "begins only at")])
def test_a_clock_that_is_a_day_off_is_named_when_joining(
    machine: Machine, tmp_path: Path, days: int, sentence: str
) -> None:
    clock = FakeClock(tmp_path)
    clock.jump(days * DAY_S)
    for name in ("clock.so", "clock.offset"):
        machine.put(tmp_path / name, f"/root/{name}")
    line = holdfast(machine, "host", "token", "create", "h1").strip()
    fake = "LD_PRELOAD=/root/clock.so FAKE_CLOCK_OFFSET=/root/clock.offset"
    refused = machine.sh(f"{fake} {line}", fails=True)
    tell(refused.strip())
    assert sentence in refused and "Set the clock (timedatectl set-ntp true)" in refused
    assert machine.sh("ls /etc/holdfast/agent.toml", fails=True)


def test_a_daemon_that_is_started_twice_says_who_runs_already(machine: Machine) -> None:
    join(machine, machine, f'address = "{HERE}"', f'worker_user = "{USER}"')
    until(machine, "READY", "host", "list")
    for part, command, user in (("agent", AGENT, "root"), ("controller", CONTROLLER, "holdfast")):
        refused = machine.run("runuser", "-u", user, "--", *command.split(), fails=True)
        tell(refused.strip())
        assert f"Another {part} (pid " in refused and "Stop it first" in refused
    until(machine, "READY", "host", "list")


def fill(machine: Machine, part: str) -> None:
    """Have a daemon's state on a small disk of its own, with nothing free."""
    folder = f"/var/lib/holdfast/{part}"
    machine.sh(
        f"cp -a {folder} /root/{part}.kept && mount -t tmpfs -o size=16M,mode=755 none {folder}"
        f" && cp -a /root/{part}.kept/. {folder} && cat /dev/zero > {folder}/filler; test -s {folder}/filler"
    )


def test_a_host_whose_disk_is_full_takes_no_work_and_says_so(machine: Machine) -> None:
    machine.run("systemctl", "stop", "holdfast-agent")
    fill(machine, "agent")
    machine.run("systemctl", "start", "holdfast-agent")
    until(machine, "READY", "host", "list")
    holdfast(machine, "run", "--detach", "--workdir", "/tmp", "--", "true")
    said = until(machine, "MiB free", "host", "show", "h1")
    tell(next(text for text in said.splitlines() if "MiB free" in text))
    machine.sh("systemctl stop holdfast-agent && umount /var/lib/holdfast/agent && systemctl start holdfast-agent")


def test_a_controller_whose_disk_is_full_says_so_and_is_there_once_there_is_room(machine: Machine) -> None:
    machine.run("systemctl", "stop", "holdfast-controller")
    fill(machine, "controller")
    machine.run("systemctl", "start", "--no-block", "holdfast-controller")
    said = machine.until(FULL, "journalctl", "-u", "holdfast-controller", "--no-pager", "--output=cat")
    tell(next(text for text in said.splitlines() if re.search(FULL, text)))
    machine.run("rm", "/var/lib/holdfast/controller/filler")
    until(machine, "h1", "host", "list")
