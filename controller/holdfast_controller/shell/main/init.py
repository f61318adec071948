"""``holdfast-controller init``: a cluster's CA, the controller's certificate and settings, and its first admin."""

from __future__ import annotations

import argparse
import datetime
import getpass
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from holdfast._base.identity import NAME_RULE, Identity, Kind, is_name
from holdfast._base.systemd import start_line
from holdfast._security import pki, server_names
from holdfast._security.enrolment import files
from holdfast.errors import ConfigError, WrongState
from holdfast_controller.shell.base.commands import command
from holdfast_controller.shell.base.config import CertificateConfig
from holdfast_controller.shell.enrolment.authority import ca_hash
from holdfast_controller.shell.main.admin import write as write_admin

_CLUSTER = re.compile(r"[A-Za-z0-9._-]{1,63}")


@command
def main(argv: Sequence[str]) -> int:
    """0 when the cluster is made, 1 with a sentence on stderr when not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller init", description="Make a cluster: certificates, settings and a first admin."
    )
    parser.add_argument("--cluster", default="main", metavar="NAME", help="[default: main]")
    parser.add_argument("--admin", default=getpass.getuser(), metavar="NAME", help="[default: you]")
    parser.add_argument(
        "--advertise",
        required=True,
        action="append",
        metavar="HOST",
        help="name or address under which others reach this machine; again for each further one",
    )
    parser.add_argument("--port", type=int, default=7443, help="[default: 7443]")
    parser.add_argument("--enrolment-port", type=int, default=7444, metavar="PORT", help="[default: 7444]")
    parser.add_argument(
        "--dir", type=Path, default=Path("/etc/holdfast"), help="for settings [default: /etc/holdfast]"
    )
    state = Path("/var/lib/holdfast/controller")
    parser.add_argument("--state-dir", type=Path, default=state, help=f"for what it keeps [default: {state}]")
    options = parser.parse_args(argv)
    _make(options)
    return 0


def _make(options: argparse.Namespace) -> None:
    directory, state = options.dir.absolute(), options.state_dir.absolute()
    settings, ca = directory / "controller.toml", state / "ca"
    _check(options, settings, ca)
    lifetimes = CertificateConfig()
    advertise, *more = options.advertise
    serves = server_names.served(options.advertise)
    files.folder(directory)
    files.folder(state, 0o700)
    files.folder(ca, 0o700)
    admin = directory / "admin"
    try:
        pki.create_ca(options.cluster, ca)
        serving = Identity(options.cluster, Kind.CONTROLLER, "controller")
        lifetime = datetime.timedelta(seconds=lifetimes.controller)
        own = pki.issue(ca, serving, state, "controller", lifetime=lifetime, server=True, names=serves)
    except OSError as error:
        raise ConfigError(f"Cannot write {error.filename}: {error.strerror}.") from error
    write_admin(
        ca,
        Identity(options.cluster, Kind.USER, options.admin),
        admin,
        controller=f"{advertise}:{options.port}",
        enrolment=f"{advertise}:{options.enrolment_port}",
        lifetime_s=lifetimes.user,
    )
    root = (ca / "ca.pem").read_bytes()
    controller = {
        "listen": f"0.0.0.0:{options.port}",
        "enrolment_listen": f"0.0.0.0:{options.enrolment_port}",
        "advertise": advertise,
        **({"names": more} if more else {}),
        "cluster": options.cluster,
        "admins": [options.admin],
        "state_dir": str(state),
        "ca": str(ca / "ca.pem"),
        "ca_directory": str(ca),
        "cert": str(own.cert),
        "key": str(own.key),
    }
    # Last: where it is, the rest is.
    files.write(settings, files.toml("Made by `holdfast-controller init`.", controller), 0o600)
    start = start_line("holdfast-controller", settings)
    client = shlex.quote(f"{admin}/client.toml")
    print(_NEXT.format(cluster=options.cluster, ca=ca, hash=ca_hash(root), start=start, client=client))  # noqa: T201


def _check(options: argparse.Namespace, settings: Path, ca: Path) -> None:
    for there in (settings, ca / "ca.key"):
        if there.exists():
            raise WrongState(f"There is a cluster already: {there}.", fix="Name other folders: --dir, --state-dir.")
    if not _CLUSTER.fullmatch(options.cluster):
        raise ConfigError(
            f"--cluster {options.cluster!r} is no name.", fix="Letters, digits and . _ -; at most 63."
        )
    if not is_name(options.admin):
        raise ConfigError(f"--admin {options.admin!r} is no name.", fix=f"Names: {NAME_RULE}.")
    for name in options.advertise:
        if ":" in name.strip("[]") and not name.startswith("["):
            fix = "Write a name or an address without a port; IPv6 in brackets."
            raise ConfigError(f"--advertise {name!r} is no host.", fix=fix)
        server_names.checked(name, "--advertise")
    ports = (options.port, options.enrolment_port)
    if not all(0 < port < 65536 for port in ports) or ports[0] == ports[1]:
        raise ConfigError("--port and --enrolment-port must be two different ports.", fix="1 to 65535.")


_NEXT = """The cluster {cluster} is made. Keep {ca}/ca.key secret, and a copy of it safe.
The hash of its CA: {hash}

1. Start the controller:   {start}
2. Be its first admin:     export HOLDFAST_CONFIG={client}
3. Have a host join:       holdfast host token create      and paste the line that it prints on the host
4. Have others use it:     holdfast user add NAME          then: holdfast user token NAME"""
