"""``python -m holdfast._security.enrolment join|renew``, which the agent runs as a process of its own."""

from __future__ import annotations

import argparse
import datetime
import os
import socket
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from holdfast._base.systemd import start_line
from holdfast._security.tls import TlsFiles
from holdfast.errors import HoldfastError


def main(argv: Sequence[str] | None = None) -> int:
    """0 when it is done, 1 with a sentence on stderr when not."""
    # gRPC's own words about a failed handshake would stand beside ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    parser = argparse.ArgumentParser(prog="holdfast-agent")
    commands = parser.add_subparsers(required=True)
    joining = commands.add_parser("join", help="make this machine a host of a cluster")
    joining.add_argument("controller", metavar="CONTROLLER:PORT", help="where the cluster issues certificates")
    joining.add_argument("--token", required=True, help="from: holdfast host token create")
    joining.add_argument("--ca-hash", required=True, help="of the cluster's CA, as sha256:HEX")
    joining.add_argument("--name", default=socket.gethostname(), help="of this host [default: the machine's own]")
    home = Path("/etc/holdfast")
    joining.add_argument("--dir", type=Path, default=home, help=f"for settings and certificates [default: {home}]")
    state, logs = Path("/var/lib/holdfast/agent"), Path("/var/log/holdfast")
    joining.add_argument("--state-dir", type=Path, default=state, help=f"for what it keeps [default: {state}]")
    joining.add_argument("--log-dir", type=Path, default=logs, help=f"for the output of jobs [default: {logs}]")
    joining.set_defaults(work=_join)
    renewing = commands.add_parser("renew", help="get the next certificate (the agent does so by itself)")
    renewing.add_argument("controller", metavar="CONTROLLER:PORT")
    for name in ("ca", "cert", "key"):
        renewing.add_argument(f"--{name}", type=Path, required=True)
    renewing.set_defaults(work=_renew)
    options = parser.parse_args(argv)
    try:
        options.work(options)
    except HoldfastError as error:
        print(f"holdfast-agent: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _join(options: argparse.Namespace) -> None:
    from holdfast._security.enrolment.enrol import Line, join

    line = Line(options.controller, options.token, options.ca_hash)
    done = join(
        line,
        options.name,
        options.dir.absolute(),
        state_dir=options.state_dir.absolute(),
        log_dir=options.log_dir.absolute(),
    )
    until = datetime.datetime.fromtimestamp(done.ends_at).astimezone()
    print(f"This machine is the host {done.name} of the cluster {done.cluster}.")  # noqa: T201
    print(f"Its certificate lasts until {until:%Y-%m-%d %H:%M} and is renewed by the agent.")  # noqa: T201
    if os.geteuid() == 0 and not says_who_works(done.settings):
        print(f'Say whom workers run as, in {done.settings}: worker_user = "NAME"')  # noqa: T201
    print(f"Start the agent: {start_line('holdfast-agent', done.settings)}")  # noqa: T201


def says_who_works(settings: Path) -> bool:
    """Whether an agent of root's would start workers with these settings: never as root unless that is allowed."""
    read = tomllib.loads(settings.read_text())
    return bool(read.get("worker_user") or read.get("allow_root_workers"))


def _renew(options: argparse.Namespace) -> None:
    from holdfast._security.enrolment.renew import renew

    renew(options.controller, TlsFiles(options.ca, options.cert, options.key))


if __name__ == "__main__":
    sys.exit(main())
