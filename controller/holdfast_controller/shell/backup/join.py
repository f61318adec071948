"""``holdfast-controller join BACKUP``: makes this machine a further controller of a cluster on PostgreSQL.

A backup of one that is there already has what the two have to share: settings, CA, keys of secrets, packaged code. The
log is in the database; the audit log stays with the machine that wrote it.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import tomllib
from collections.abc import Sequence
from pathlib import Path

from holdfast._base.systemd import start_line
from holdfast.errors import ConfigError, WrongState
from holdfast_controller.shell.backup import manifest as mf
from holdfast_controller.shell.backup.unpacking import Unpacked, certify, put_in_place, unpacked
from holdfast_controller.shell.base.commands import command


@command
def main(argv: Sequence[str]) -> int:
    """0 when the controller may be started, 1 with a sentence on stderr when not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller join",
        description="Make this machine a further controller of a cluster whose log is in PostgreSQL.",
    )
    parser.add_argument(
        "file",
        metavar="BACKUP",
        help="that holdfast-controller backup has made, with the keys, of another",
    )
    parser.add_argument(
        "--advertise", metavar="HOST", required=True, help="the name under which others reach this machine"
    )
    parser.add_argument("--to", type=Path, metavar="DIR", help="for everything [default: where it is there]")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="instead of asking for it")
    options = parser.parse_args(argv)
    done, targets, other = join(options.file, options.advertise, options.to, options.passphrase_file)
    port = str(tomllib.loads(targets.settings.read_text()).get("listen", "")).rpartition(":")[2]
    both = f"{other or 'OTHER'}:{port},{options.advertise}:{port}"
    print(  # noqa: T201
        _NEXT.format(
            cluster=done.cluster,
            settings=targets.settings,
            start=start_line("holdfast-controller", targets.settings),
            both=both,
        )
    )
    return 0


def join(
    file: Path | str, advertise: str, to: Path | None = None, passphrase_file: Path | None = None
) -> tuple[mf.Manifest, mf.Layout, str]:
    """Put everything in its place. Returns of what it was made, where it is, and the name of the other controller's
    machine, if that is known. Raises ``HoldfastError``."""
    with unpacked(file, to, passphrase_file, advertise, bundles_may_be_there=True) as parts:
        other = _check(parts, advertise)
        settings = parts.settings()
        (parts.staging / mf.STORE).unlink()
        shutil.rmtree(parts.staging / mf.AUDIT, ignore_errors=True)
        certify(parts, settings, None)
        put_in_place(parts, settings)
    return parts.done, parts.targets, other


def _check(parts: Unpacked, advertise: str) -> str:
    """Name of the other one's machine, if two can be made of it. Raises ``ConfigError``, ``WrongState``."""
    try:
        table = tomllib.loads((parts.staging / mf.SETTINGS).read_text())
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The controller.toml of the backup can't be read: {error}.") from error
    if not table.get("database_url"):
        raise WrongState(
            "That controller has its log in a file of its own, which two can't share.",
            fix="Move it to PostgreSQL first, there: holdfast-controller move-store --to URL",
        )
    if not parts.done.keys:
        fix = "Make another one there, under a passphrase: holdfast-controller backup FILE"
        raise ConfigError("The backup is without keys, which all controllers have to share.", fix=fix)
    other = str(table.get("advertise") or "")
    if advertise == other:
        raise ConfigError(
            f"--advertise {advertise} is the other controller's name.", fix="Write the name of this machine."
        )
    named = {f"[web] {key}": value for key, value in table.get("web", {}).items()} | table
    for key in ("listen", "enrolment_listen", "[web] listen"):
        host, _, port = str(named.get(key) or "").rpartition(":")
        if host and not _is_here(host.strip("[]")):
            raise ConfigError(
                f'{key} = "{host}:{port}" of the other controller is an address of its machine alone.',
                fix=f'Write {key} = "0.0.0.0:{port}" there, and make another backup.',
            )
    return other


def _is_here(host: str) -> bool:
    """Whether a server of this machine can listen at an address."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for what can be no name
        return False
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as probe:
                probe.bind(address)
        except OSError:
            continue
        return True
    return False


_NEXT = """This machine is a controller of the cluster {cluster}.

1. See that it reaches the database:   holdfast-controller --check --config {settings}
2. Start it; it stands by:             {start}
3. Give hosts and users all addresses, in agent.toml and client.toml:
   controller = "{both}"
4. See both:                           holdfast status"""
