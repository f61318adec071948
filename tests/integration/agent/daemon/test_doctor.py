"""The doctor on this machine, with things really broken: in namespaces of its own, with a scripted driver."""

from __future__ import annotations

import datetime
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_nvml.library import FakeNvml

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast.doctor.findings import Finding, Status
from holdfast_agent.core.doctor import gpus, network
from holdfast_agent.core.model.gpus import Blind, Reading
from holdfast_agent.shell import config
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.doctor import host, outside, rounds

BREAK = """
set -e
mount --make-rprivate /
ip link set lo up
mount -t tmpfs -o size=8m tmpfs /dev/shm
printf '127.0.0.1 localhost\\n127.0.1.1 %s\\n' "$(hostname)" > "$1/hosts"
mount --bind "$1/hosts" /etc/hosts
mount -t tmpfs -o size=64k tmpfs "$1/state"
mount -t tmpfs -o size=1m,nr_inodes=20 tmpfs "$1/logs"
head -c 900k /dev/zero > "$1/logs/full"
shift
exec "$@"
"""
AS_NOBODY = """
import os, sys
from holdfast_agent.shell.main import cli
from holdfast_agent.shell.doctor import rounds
from holdfast.v1 import access_pb2
import encodings.idna, grpc_health.v1.health_pb2, psutil, anyio, anyio._backends._asyncio
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
cli.main(sys.argv[1:])
"""


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return joined(tmp_path)


def joined(folder: Path) -> Config:
    """A host that has joined and whose agent doesn't run."""
    pki.create_ca("test", folder)
    pki.issue(folder, Identity("test", Kind.HOST, "h7"), folder, "host")
    values = {"controller": "127.0.0.1:1", "name": "h7", "state_dir": "state", "log_dir": "logs"}
    values |= {"ca": "ca.pem", "cert": "host.pem", "key": "host.key", "port_range": "21700-21719"}
    (folder / "agent.toml").write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))
    for name in ("state", "logs"):
        (folder / name).mkdir()
    return config.load(folder / "agent.toml")


def doctor(*words: str, before: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """(exit status, what was wrong: by check, its finding)."""
    command = [*before, sys.executable, "-m", "holdfast_agent", "doctor", "-o", "json", "--patience", "2", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == "", done.stderr
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {each["check"]: each for each in found}


@pytest.mark.require("root", "mount", "netns")
def test_a_host_on_which_much_is_broken(settings: Config, tmp_path: Path) -> None:
    pki.issue(
        tmp_path, Identity("test", Kind.HOST, "h8"), tmp_path, "host", lifetime=datetime.timedelta(seconds=-5)
    )
    settings.key.chmod(0o644)
    path = tmp_path / "agent.toml"
    path.write_text(path.read_text().replace("21700-21719", "40000-40099") + "worker_user = 'ghost'\n")
    code, found = doctor(
        f"--config={path}", before=("unshare", "-m", "-n", "sh", "-c", BREAK, "break", str(tmp_path))
    )
    assert code == 1
    saw = {check: each["saw"] for check, each in found.items() if each["status"] == "error"}
    assert "/dev/shm has 8 MiB" in saw["memory.shm"]
    assert saw["network.hostname"] == f"{socket.gethostname()} is 127.0.1.1: the host's own name is loopback"
    assert "40000-40099 lies in the ephemeral range" in saw["network.port_range"]
    assert "lies in memory (tmpfs)" in saw["disk.state_dir"]
    assert "0 MiB free of the 1024 MiB that it must have" in saw["disk.log_dir"]
    assert "mode 0644" in saw["certificates.key"]
    assert saw["certificates.end"].endswith(" ago")
    assert "is of holdfast://test/host/h8, the settings say host/h7" in saw["certificates.identity"]
    assert saw["accounts.worker"] == "there is no user 'ghost'"
    assert saw["controller.tcp"] == "127.0.0.1:1 does not take connections: Connection refused"
    assert found["service.agent"]["status"] == "warning"
    assert all(each["fix"] and each["why"] for each in found.values() if each["status"] in ("error", "warning"))
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [], "nothing is left behind"


@pytest.mark.require("root")
def test_without_root_what_cannot_be_looked_at_is_said() -> None:
    # Not below pytest's folder, which every session closes to others anew.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        joined(Path(folder))
        command = [sys.executable, "-c", AS_NOBODY, "doctor", "--patience=2", f"--config={folder}/agent.toml"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == "", done.stderr
    assert "host.key: Permission denied" in done.stdout
    assert "?        certificates.files" in done.stdout
    assert done.stdout.endswith("  Run it as root to look at everything.\n")


def test_settings_that_cannot_be_read_are_a_finding_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text("colour = 'red'\n")
    _, findings = rounds.make(tmp_path / "agent.toml", 5.0)
    assert [each.check for each in findings] == ["settings.file", "time.ntp"], "some needs no settings"
    assert findings[0].status is Status.ERROR
    assert "unknown key 'colour'" in findings[0].saw


def test_a_port_of_the_range_that_somebody_holds_is_named_with_its_holder(settings: Config) -> None:
    with socket.create_server(("127.0.0.1", 21707)):
        found = {each.check: each for each in network.check(outside.network(settings))}
    assert found["network.ports"].status is Status.WARNING
    assert f"(pid {os.getpid()})" in found["network.ports"].saw
    again = {each.check: each for each in network.check(outside.network(settings))}
    assert again["network.ports"].saw == "20 of 20 are free"


@pytest.mark.require("cc")
class TestDriver:
    def test_a_driver_that_answers(self, settings: Config, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpus(2)
        fake_nvml.say("driver 550.54.15", "awake 0 1", "awake 1 0")
        facts = outside.gpus(settings, 20.0)
        assert isinstance(facts.reading, Reading)
        assert facts.driver == gpus.DriverFacts("550.54.15", (("GPU-0", True), ("GPU-1", False)))
        found = {each.check: each for each in gpus.check(replace(facts, pci=2))}
        assert found["gpus.driver"].saw == "driver 550.54.15, 2 GPUs"
        assert found["gpus.persistence"].saw == "off for 1 GPU of 2"

    @pytest.mark.parametrize("call", ["nvmlInitWithFlags -2", "nvmlDeviceGetUUID 1"], ids=["start", "device"])
    def test_a_driver_that_hangs_is_told_of_in_time(self, settings: Config, fake_nvml: FakeNvml, call: str) -> None:
        fake_nvml.gpus(2)
        fake_nvml.say(f"hang {call}")
        facts = outside.gpus(settings, 2.0)
        assert isinstance(facts.reading, Blind)
        (found,) = gpus.check(facts)
        assert found.status is Status.ERROR
        assert "within" in found.saw


def test_a_look_that_hangs_holds_up_no_other(settings: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    stuck = threading.Event()

    def hangs(*_: object, **__: object) -> list[Finding]:
        stuck.wait()
        return []

    monkeypatch.setattr(f"{rounds.__name__}.disks.check", hangs)
    try:
        _, findings = rounds.make(settings.state_dir.parent / "agent.toml", 1.0)
    finally:
        stuck.set()
    late = [each for each in findings if "no answer within 4 s" in each.saw]
    assert [each.check for each in late] == ["disk.state_dir", "disk.log_dir"]
    assert {"network.ports", "certificates.end", "debugging.stacks"} <= {each.check for each in findings}


def test_sources_of_installations_are_shown_without_logins_and_what_they_lack(
    settings: Config, tmp_path: Path
) -> None:
    site = tmp_path / "site.env"
    site.write_text("PIP_INDEX_URL=https://ann:s3cret@pypi.corp.example/simple\nPIP_CONFIG_FILE=/dev/null\n")
    told = replace(settings, env_file=site)
    facts = host.packages(told)
    assert facts.problem == "" and facts.installer
    assert facts.sources.startswith("index https://***@pypi.corp.example/simple") and "s3cret" not in str(facts)
    site.write_text(f"PIP_CONFIG_FILE=/dev/null\nPIP_CERT={tmp_path}/missing.pem\n")
    assert f"{tmp_path}/missing.pem, which" in host.packages(told).problem
