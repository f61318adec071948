"""BMCs that fence commands talk to: OpenIPMI's simulator, and OpenStack's emulator of Redfish. Neither is ours."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from tests.faults.network import Network

USER, PASSWORD = "root", "calvin"
SIMULATOR = "ipmi_sim"
EMULATOR = str(Path(__file__).parents[2] / "build/redfish/bin/sushy-emulator")
"""In an environment of its own (``.ci/run`` makes it): it brings more packages than all that we test."""
_LAN = """name "bmc"
set_working_mc 0x20
  startlan 1
    addr 0.0.0.0 623
    priv_limit admin
    allowed_auths_callback none
    allowed_auths_user none
    allowed_auths_operator none md5
    allowed_auths_admin none md5
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{power}"
  user 2 true "{user}" "{password}" admin 10 none md5
"""
_CONTROLLER = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""
_POWER = """#!/bin/sh
echo "$*" >> {folder}/calls
case "$*" in
"get power") if {runs}; then echo power:1; else echo power:0; fi ;;
"set power 0") {off} ;;
esac
"""
_SYSTEM = """SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_LISTEN_IP = "0.0.0.0"
SUSHY_EMULATOR_LISTEN_PORT = 443
SUSHY_EMULATOR_SSL_CERT = "{folder}/cert.pem"
SUSHY_EMULATOR_SSL_KEY = "{folder}/key.pem"
SUSHY_EMULATOR_AUTH_FILE = "{folder}/htpasswd"
SUSHY_EMULATOR_STATE_DIR = "{folder}/state"
SUSHY_EMULATOR_FAKE_SYSTEMS = [{{"uuid": "1", "name": "system", "power_state": "On", "nics": []}}]
"""
_HTPASSWD = "root:$2b$04$shAY7iMBHAbH1zjdm.bb2.MfQ8Ug2IrQGEiqcEX7SmFY.An6TvpZ6\n"
"""Of the password above, as bcrypt keeps it."""


def missing() -> list[str]:
    """What a BMC that is reached by IPMI needs and is not here."""
    return [name for name in (SIMULATOR, "ipmitool") if not shutil.which(name)]


@dataclass(frozen=True)
class Bmc:
    """One that listens."""

    folder: Path

    def calls(self) -> list[str]:
        """What it has been asked for, by IPMI."""
        return (self.folder / "calls").read_text().splitlines()


@contextlib.contextmanager
def ipmi(folder: Path, network: Network, where: str, *, asks: str, runs: str, off: str) -> Iterator[Bmc]:
    """A BMC at port 623 of ``where``, which ``asks`` has had an answer from; no answer, no test.

    ``runs`` and ``off`` are shell commands: whether its host runs, and what switches it off.
    """
    (folder / "state").mkdir(parents=True)
    (folder / "power").write_text(_POWER.format(folder=folder, runs=runs, off=off))
    (folder / "power").chmod(0o755)
    (folder / "lan.conf").write_text(_LAN.format(power=folder / "power", user=USER, password=PASSWORD))
    (folder / "bmc.emu").write_text(_CONTROLLER)
    files = ("-c", str(folder / "lan.conf"), "-f", str(folder / "bmc.emu"), "-s", str(folder / "state"))
    simulator = network.inside(where, SIMULATOR, *files, "-n")
    options = ("-N", "1", "-R", "1", "-H", network.address(where), "-U", USER, "-P", PASSWORD)
    asked = network.inside(asks, "ipmitool", "-I", "lanplus", *options, "chassis", "power", "status")
    with _running(folder, simulator):
        deadline = time.monotonic() + 60
        while (found := subprocess.run(asked, capture_output=True, text=True)).returncode:
            if time.monotonic() > deadline:
                said = found.stdout + found.stderr + (folder / "log").read_text()
                pytest.skip(f"{SIMULATOR} and ipmitool do not understand each other on this machine: {said!r}")
            time.sleep(0.5)
        yield Bmc(folder)


@contextlib.contextmanager
def redfish(folder: Path, inside: Sequence[str], name: str) -> Iterator[Path]:
    """A BMC at port 443, started by the words ``inside``. The CA of its certificate, which is for ``name``."""
    (folder / "state").mkdir(parents=True)
    authority = trustme.CA()
    own = authority.issue_cert(name)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    own.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    own.private_key_pem.write_to_path(str(folder / "key.pem"))
    (folder / "htpasswd").write_text(_HTPASSWD)
    (folder / "conf").write_text(_SYSTEM.format(folder=folder))
    with _running(folder, [*inside, EMULATOR, "--config", str(folder / "conf")]):
        deadline = time.monotonic() + 60
        while b"Running on" not in (log := (folder / "log").read_bytes()):
            assert time.monotonic() < deadline, log
            time.sleep(0.1)
        yield folder / "ca.pem"


@contextlib.contextmanager
def _running(folder: Path, command: Sequence[str]) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
