"""``holdfast-controller admin NAME``: settings and a certificate for an admin who has none, or lost them.

A user who can read the CA's key can make any certificate; this makes one that is of use, for an admin by settings.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path

from holdfast._base import config
from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast._security.enrolment import files
from holdfast.errors import ConfigError, WrongState
from holdfast_controller.shell.base.commands import add_settings, command
from holdfast_controller.shell.base.config import ControllerConfig


@command
def main(argv: Sequence[str]) -> int:
    """0 when the folder is made, 1 with a sentence on stderr when not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller admin",
        description="Make settings and a certificate for one of the admins in controller.toml.",
    )
    parser.add_argument("name", metavar="NAME", help="one of admins in controller.toml")
    add_settings(parser)
    parser.add_argument("--dir", type=Path, metavar="DIR", help="a new folder [default: NAME beside the settings]")
    options = parser.parse_args(argv)
    settings = config.load(ControllerConfig, options.config)
    folder = (options.dir or options.config.parent / options.name).absolute()
    _make(settings, options.config, options.name, folder)
    print(f"To be {options.name} here: export HOLDFAST_CONFIG={shlex.quote(str(folder / 'client.toml'))}")  # noqa: T201
    print(f"Elsewhere: copy {folder} there, as ~/.config/holdfast")  # noqa: T201
    return 0


def _make(settings: ControllerConfig, file: Path, name: str, folder: Path) -> None:
    if name not in settings.admins:
        fix = f"Write admins = {[*settings.admins, name]} there, and: systemctl reload holdfast-controller"
        raise ConfigError(f"{name!r} is none of the admins in {file}.", fix=fix.replace("'", '"'))
    if settings.ca_directory is None:
        raise ConfigError(f"ca_directory is not set in {file}: the CA is elsewhere.", fix="Make it there.")
    if folder.exists():
        raise WrongState(f"There is a {folder} already.", fix="Name another folder: --dir DIR.")
    pki.check_ca(settings.ca_directory)
    host = settings.advertise or "127.0.0.1"
    write(
        settings.ca_directory,
        Identity(settings.cluster, Kind.USER, name),
        folder,
        controller=f"{host}:{_port(settings.listen)}",
        enrolment=f"{host}:{_port(settings.enrolment_listen)}" if settings.enrolment_listen else "",
        lifetime_s=settings.certificates.user,
    )


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def write(ca: Path, who: Identity, folder: Path, *, controller: str, enrolment: str, lifetime_s: float) -> None:
    """A folder that is all its user needs: CA, certificate, key, client.toml. Raises ``ConfigError``."""
    files.folder(folder, 0o700)
    try:
        pki.issue(ca, who, folder, "user", lifetime=datetime.timedelta(seconds=lifetime_s))
    except OSError as error:
        raise ConfigError(f"Cannot write {error.filename}: {error.strerror}.") from error
    files.write(folder / "ca.pem", (ca / "ca.pem").read_bytes(), 0o644)
    client = {"controller": controller, "ca": "ca.pem", "cert": "user.pem", "key": "user.key"}
    if enrolment:
        client["enrolment"] = enrolment
    files.write(folder / "client.toml", files.toml("Made by `holdfast-controller`.", client), 0o600)
