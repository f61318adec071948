"""A dev cluster's files: where each one is, and how those that a first start needs are made.

``dev.toml`` holds what the cluster consists of. Each other file is made where it is missing and left alone
where it exists, so daemons' settings may be edited, and a start that was cut short is completed by the next.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast._base import config
from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Identity, Kind
from holdfast._security import pki, server_names
from holdfast._security.tls import TlsFiles
from holdfast.dev.plan import CONTROLLER, Cluster, Host
from holdfast.errors import ConfigError, WrongState

CLUSTER_NAME = "dev"
ADMIN = "admin"
"""The one user that there is at first."""
RENEW_BEFORE = datetime.timedelta(days=30)
"""A certificate with less time than this left is renewed at the next start."""


_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
BEFORE_RECORD = frozenset({"dev.lock", "dev.new"})
"""Files that may be there before dev.toml is."""


@dataclass(frozen=True, slots=True)
class _Record:
    """Keys of dev.toml. Lists are in the order of the hosts: host-0, host-1, …"""

    port: int
    port_ranges: tuple[str, ...]
    gpus: tuple[int, ...]
    http_port: int = 0
    metrics_port: int = 0
    web_port: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of a dev cluster in ``directory``, which is absolute."""

    directory: Path

    @property
    def record(self) -> Path:
        return self.directory / "dev.toml"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def client_config(self) -> Path:
        return self.directory / "client.toml"

    def user(self) -> TlsFiles:
        return TlsFiles(self.pki / "ca.pem", self.pki / "user.pem", self.pki / "user.key")

    def home(self, name: str) -> Path:
        """Folder of the daemon ``name``: ``controller``, or a host's."""
        return self.directory if name == CONTROLLER else self.directory / "hosts" / name

    def config(self, name: str) -> Path:
        return self.home(name) / f"{_kind(name)}.toml"

    def log(self, name: str) -> Path:
        return self.home(name) / f"{_kind(name)}.log"

    def pid_file(self, name: str) -> Path:
        return self.home(name) / f"{_kind(name)}.pid"

    def command(self, name: str) -> tuple[str, ...]:
        """Arguments to Python that run the daemon; no other process of the machine has the same."""
        return ("-m", f"holdfast_{_kind(name)}", "--config", str(self.config(name)))


def _kind(name: str) -> str:
    return "controller" if name == CONTROLLER else "agent"


def check_own(layout: Layout) -> None:
    """Return if no other user has put anything into the directory. Raises ``ConfigError``.

    Others could put there what leads root to any file and process, and a CA and settings of theirs.
    """
    status = layout.directory.stat()
    if status.st_uid != os.geteuid():
        fix = "Name another --dir, or run it as that user."
        raise ConfigError(f"{layout.directory} belongs to another user, of uid {status.st_uid}.", fix=fix)
    if status.st_mode & _BY_OTHERS and any(layout.directory.iterdir()):
        fix = f"Name another --dir; or, if all in it is yours: chmod go-w {layout.directory}"
        raise ConfigError(f"{layout.directory} is not empty, and others may write to it.", fix=fix)


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Keeps other starts and stops out of the directory. Raises ``WrongState`` when one is at work there."""
    with (layout.directory / "dev.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WrongState(
                f"Another `holdfast dev start` or `stop` is at work in {layout.directory}.",
                fix="Try again when it is done.",
            ) from error
        yield


def load(layout: Layout) -> Cluster | None:
    """The cluster that was written down, or ``None`` where there is none. Raises ``ConfigError``."""
    if not layout.record.exists():
        return None
    record = config.load(_Record, layout.record)
    if not record.gpus or len(record.gpus) != len(record.port_ranges):
        raise ConfigError(f"{layout.record}: port_ranges and gpus must have one entry for each host.")
    hosts = []
    for i, (ports, gpus) in enumerate(zip(record.port_ranges, record.gpus, strict=True)):
        first, _, last = ports.partition("-")
        if not (first.isdecimal() and last.isdecimal()):
            raise ConfigError(f'{layout.record}: port_ranges[{i}] must be "FIRST-LAST", not {ports!r}.')
        hosts.append(Host(f"host-{i}", range(int(first), int(last) + 1), gpus))
    return Cluster(record.port, tuple(hosts), record.http_port, record.metrics_port, record.web_port)


def save(layout: Layout, cluster: Cluster) -> None:
    """Write the cluster down, atomically."""
    values = {
        "port": cluster.port,
        "port_ranges": [_ports(host) for host in cluster.hosts],
        "gpus": [host.gpus for host in cluster.hosts],
        "http_port": cluster.http_port,
        "metrics_port": cluster.metrics_port,
        "web_port": cluster.web_port,
    }
    temporary = layout.record.with_suffix(".new")
    temporary.write_text(_toml("What this dev cluster consists of; kept by `holdfast dev start`.", values))
    temporary.replace(layout.record)


def check_labels(layout: Layout, cluster: Cluster, labels: Mapping[str, Mapping[str, str]]) -> None:
    """Raises ``ConfigError`` for labels of a host that isn't there, or whose settings were written before."""
    for name in labels:
        if name not in cluster.daemons or name == CONTROLLER:
            known = ", ".join(host.name for host in cluster.hosts)
            raise ConfigError(f"--label {name}: there is no such host.", fix=f"Hosts: {known}. See --hosts.")
        path = layout.config(name)
        if path.exists():
            fix = f"Write them into [labels] of {path}, kill that agent, and start the cluster again."
            raise ConfigError(f"--label {name}: labels count for hosts that are new, and this one is not.", fix=fix)


def complete(layout: Layout, cluster: Cluster, *, as_root: bool, labels: Mapping[str, Mapping[str, str]]) -> None:
    """Make every file that is missing: certificates and settings. Raises ``OSError``, ``ConfigError``."""
    layout.pki.mkdir(exist_ok=True)
    if not (layout.pki / "ca.pem").exists():
        # Whatever an earlier CA has signed is worthless now.
        for stale in (*layout.pki.glob("*.pem"), *layout.directory.glob("hosts/*/agent.pem")):
            stale.unlink()
        pki.create_ca(CLUSTER_NAME, layout.pki)
    _certify(layout, Kind.CONTROLLER, "controller", layout.pki, "controller")
    _certify(layout, Kind.USER, ADMIN, layout.pki, "user")
    endpoint = f"127.0.0.1:{cluster.port}"
    trust = {"ca": "pki/ca.pem"}
    own = trust | {"cert": "pki/controller.pem", "key": "pki/controller.key"}
    serving: dict[str, object] = {"listen": endpoint, "state_dir": "controller", "cluster": CLUSTER_NAME}
    if cluster.http_port:
        serving["http_port"] = cluster.http_port
    if cluster.metrics_port:
        serving["metrics_listen"] = f"127.0.0.1:{cluster.metrics_port}"
    if cluster.web_port:
        serving["web.listen"] = f"127.0.0.1:{cluster.web_port}"
    serving["log_file"] = layout.log(CONTROLLER).name
    people = {
        "admins": [ADMIN],
        "injection_projects": ["*"],
        "ca_directory": "pki",
        "enrolment_listen": "127.0.0.1:0",
    }
    _settle(layout.config(CONTROLLER), serving | people | own)
    user = trust | {"cert": "pki/user.pem", "key": "pki/user.key"}
    _settle(layout.client_config, {"controller": endpoint} | user)
    (layout.directory / "controller").mkdir(exist_ok=True)
    for host in cluster.hosts:
        _complete_host(layout, host, endpoint, as_root, labels.get(host.name, {}))


def _complete_host(layout: Layout, host: Host, endpoint: str, as_root: bool, labels: Mapping[str, str]) -> None:
    home = layout.home(host.name)
    for folder in (home, home / "state", home / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    _certify(layout, Kind.HOST, host.name, home, "agent")
    values: dict[str, object] = {
        "controller": endpoint,
        "name": host.name,
        "state_dir": "state",
        "log_dir": "logs",
        "ca": "../../pki/ca.pem",
        "cert": "agent.pem",
        "key": "agent.key",
        "address": "127.0.0.1",
        "data_interface": "lo",
        "port_range": f"{host.worker_ports[0]}-{host.worker_ports[-1]}",
        "metrics_listen": f"127.0.0.1:{host.metrics_port}",
        "simulated_gpus": host.gpus,
        "self_check": 0,
        "allow_root_workers": as_root,
        "log_file": layout.log(host.name).name,
        **{f"labels.{json.dumps(key)}": value for key, value in labels.items()},
    }
    _settle(layout.config(host.name), values)


def _certify(layout: Layout, kind: Kind, name: str, directory: Path, stem: str) -> None:
    files = (directory / f"{stem}.pem", directory / f"{stem}.key")
    if all(path.exists() for path in files) and pki.remaining(files[0]) > RENEW_BEFORE:
        return
    identity = Identity(CLUSTER_NAME, kind, name)
    serving = kind is Kind.CONTROLLER
    pki.issue(
        layout.pki, identity, directory, stem, server=serving, names=server_names.served(()) if serving else ()
    )


def _settle(path: Path, values: Mapping[str, object]) -> None:
    if path.exists():
        return
    temporary = path.with_suffix(".new")
    temporary.write_text(_toml("Made by `holdfast dev start`, which leaves it alone from now on.", values))
    temporary.replace(path)


def _toml(comment: str, values: Mapping[str, object]) -> str:
    # What JSON writes for text, whole numbers, booleans and lists of them is valid TOML.
    return f"# {comment}\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _ports(host: Host) -> str:
    return f"{host.ports[0]}-{host.ports[-1]}"
