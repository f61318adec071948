"""Hosts to log in to: a network namespace for each, with an sshd of its own, and an ``ssh`` that knows them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults import network
from tests.faults.network import Network

PROGRAMS = ("ssh", "sshd", "ssh-keygen", "ip", "nsenter")
LOGIN = "login"
"""The namespace from which the others are logged in to."""
READY_S = 60.0
_SBIN = os.pathsep.join(("/usr/sbin", "/sbin"))

SSHD = """\
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
SetEnv TMPDIR={scratch} HOME=/proc/none
"""
SSH = """\
Host *
IdentityFile {folder}/user_key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
User root
"""


@dataclass(frozen=True)
class Hosts:
    """``network`` joins the hosts and ``login``; names are as ssh's configuration knows them, and DNS doesn't."""

    network: Network
    folder: Path

    def command(self, *command: str) -> list[str]:
        """What runs a command where the others are logged in to from."""
        return self.network.inside(LOGIN, *command)

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """With the ``ssh`` that knows the hosts first in PATH."""
        return env | {"PATH": f"{self.folder}/bin{os.pathsep}{env['PATH']}"}


@contextlib.contextmanager
def logged_in_to(names: Sequence[str], folder: Path, scratch: Path) -> Iterator[Hosts]:
    """Hosts that last as long as the block; their logins have ``scratch`` as TMPDIR, and a home that takes no file.

    Needs root.
    """
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    daemons: list[subprocess.Popen[bytes]] = []
    with network.joined([*names, LOGIN]) as joined:
        try:
            for name in names:
                daemons.append(_sshd(joined, name, folder, scratch))
            _write_client(joined, names, folder)
            for name in names:
                _wait_until_listening(joined, name)
            yield Hosts(joined, folder)
        finally:
            for daemon in daemons:
                daemon.terminate()
            for daemon in daemons:
                daemon.wait(READY_S)


def _sshd(joined: Network, name: str, folder: Path, scratch: Path) -> subprocess.Popen[bytes]:
    config = folder / f"sshd-{name}"
    config.write_text(SSHD.format(address=joined.address(name), folder=folder, scratch=scratch))
    sshd = shutil.which("sshd", path=_path())
    assert sshd is not None
    # Its empty folder for unprivileged children is made by the package's unit, which does not run everywhere.
    inside = f"mkdir -p /run/sshd && exec {sshd} -D -e -f {config}"
    with (folder / f"sshd-{name}.log").open("wb") as log:
        return subprocess.Popen(
            joined.inside(name, "sh", "-c", inside), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def _write_client(joined: Network, names: Sequence[str], folder: Path) -> None:
    aliases = "".join(f"Host {name}\nHostName {joined.address(name)}\n" for name in names)
    (folder / "config").write_text(aliases + SSH.format(folder=folder))
    key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"{joined.address(name)} {key}" for name in names))
    (folder / "bin").mkdir()
    ssh = folder / "bin/ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    ssh.chmod(0o755)


def _wait_until_listening(joined: Network, name: str) -> None:
    probe = f"import socket; socket.create_connection(({joined.address(name)!r}, 22), 5)"
    deadline = time.monotonic() + READY_S
    while subprocess.run(
        joined.inside(LOGIN, sys.executable, "-c", probe), capture_output=True, timeout=READY_S
    ).returncode:
        assert time.monotonic() < deadline, f"no sshd listens on {name}"
        time.sleep(0.1)


def missing() -> str:
    """What this machine lacks for it; empty where it has all."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    return f"no {', '.join(lacking)}" if lacking else "" if os.geteuid() == 0 else "not root"


def _path() -> str:
    return os.pathsep.join((os.environ.get("PATH", ""), _SBIN))
