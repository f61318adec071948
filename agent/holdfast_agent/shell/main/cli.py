"""Commands for an admin on a host: ``holdfast-agent doctor``, ``status`` and ``upgrade``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast._base import config as settings_file
from holdfast._base.printable import json_text, spaced_line
from holdfast.doctor import page
from holdfast.doctor.findings import exit_status, view
from holdfast.errors import ConfigError, HoldfastError
from holdfast_agent.shell import config
from holdfast_agent.shell.doctor import status_client
from holdfast_agent.shell.main import upgrade as handover

USUAL = Path("/etc/holdfast/agent.toml")
WAITS_S = {"before": 120.0, "after": 60.0}


def main(words: Sequence[str]) -> int:
    """Run one of them. 0 when all is well, 1 when something is wrong, 2 for a wrong command line or settings."""
    options = _parser().parse_args(words)
    try:
        if options.command == "doctor":
            return _doctor(options)
        settings = config.load(options.config.absolute())
        if options.command == "status":
            return _status(settings, options.output)
        step = handover.before if options.step == "before" else handover.after
        return step(settings, WAITS_S[options.step] if options.max_wait is None else options.max_wait)
    except HoldfastError as error:
        print(f"holdfast-agent: {error}", file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, ConfigError) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast-agent")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor",
        description="Report what is wrong with this host and how to fix it. Changes nothing.",
        epilog="Exit status: 0 when nothing must be fixed, 1 when something must, 2 for a wrong command line.",
    )
    doctor.add_argument(
        "--patience",
        type=_seconds,
        default=10.0,
        metavar="TIME",
        help="how long drivers, disks and the controller may take to answer [default: 10s]",
    )
    status = commands.add_parser("status", description="Show the status of this host's agent. For root.")
    upgrade = commands.add_parser(
        "upgrade",
        description="Around a restart of the agent: wait for operations in flight, and prove that no worker noticed.",
    )
    upgrade.add_argument("step", choices=sorted(WAITS_S, reverse=True))
    upgrade.add_argument(
        "--max-wait", type=_seconds, metavar="TIME", help="how long to wait [default: before 2m, after 1m]"
    )
    for each in (doctor, status, upgrade):
        each.add_argument("--config", type=Path, metavar="FILE", default=USUAL, help=f"[default: {USUAL}]")
    for each in (doctor, status):
        each.add_argument("-o", "--output", choices=("table", "json"), default="table", help="[default: table]")
    return parser


def _doctor(options: argparse.Namespace) -> int:
    # Its own words about a failed handshake would stand beside ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from holdfast_agent.shell.doctor import rounds

    subject, findings = rounds.make(options.config.absolute(), options.patience)
    if options.output == "json":
        print(json_text(view(subject, __version__, findings), indent=2))  # noqa: T201
    else:
        terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if terminal else page.WIDTH
        sys.stdout.write(page.page(subject, findings, width=width, colour=page.coloured(terminal, os.environ)))
    sys.stdout.flush()
    # A look that hangs in the kernel is left behind; the interpreter would wait for what it can't end.
    os._exit(exit_status(findings))


def _status(settings: config.Config, output: str) -> int:
    found = status_client.ask(settings.state_dir)
    if output == "json":
        print(json_text(found, indent=2))  # noqa: T201
        return 0
    sys.stdout.write("".join(f"{spaced_line(line)}\n" for line in _status_lines(found)))
    return 0


def _status_lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['host']}: {found['status']} ({found['controller']})",
        f"  agent {found['version']}, pid {found['pid']}",
    ]
    if found["unacknowledged"]:
        lines.append(f"  {found['unacknowledged']} exits are not yet acknowledged")
    for worker in found["workers"]:
        pids = ", ".join(f"rank {each['rank']} {each['pid']}" for each in worker["ranks"])
        shim = f", shim {worker['shimPid']}" if worker["shimPid"] else ""
        state = f"{worker['state'].lower()}, generation {worker['generation']}{shim}"
        lines.append(f"  {worker['worker']}: {state}{pids and ', ' + pids}")
    lines += [f"  in flight: {each['worker']}: {each['doing']}" for each in found["busy"]]
    return lines


def _seconds(text: str) -> float:
    try:
        return settings_file.duration_s(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
