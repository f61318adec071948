"""``holdfast-controller ca show|rotate``: asks the running controller to change its CA, or how far that is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from holdfast._base import config
from holdfast.errors import WrongState
from holdfast_controller.shell.backup.admin_socket import ask
from holdfast_controller.shell.base.commands import add_settings, command
from holdfast_controller.shell.base.config import ControllerConfig


@command
def main(argv: Sequence[str]) -> int:
    """0 when it is done, 1 with a sentence on stderr when not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller ca", description="Look at the cluster's CA, or change it while everything runs."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="which CA issues, which are trusted, and who is not ready")
    show.set_defaults(step="status", force=False)
    rotate = commands.add_parser("rotate", help="take the next step: make a new CA, then let it issue")
    rotate.add_argument("--finish", action="store_true", help="trust the old CA no more, and delete its key")
    rotate.add_argument("--force", action="store_true", help="shut out parties that are not ready")
    rotate.set_defaults(step="rotate")
    for each in (show, rotate):
        add_settings(each)
    options = parser.parse_args(argv)
    step = "finish" if getattr(options, "finish", False) else options.step
    settings = config.load(ControllerConfig, options.config)
    found = ask(settings.state_dir, {"do": "ca", "step": step, "force": options.force})
    if found is None:
        raise WrongState(f"No controller runs on {settings.state_dir}.", fix="Start it: it changes its CA itself.")
    print("\n".join(_words(found)))  # noqa: T201
    return 0


def _words(found: dict[str, Any]) -> list[str]:
    lines = [f"issues:   {found['issuer']}"]
    lines += [f"trusted:  {each}" for each in found["trusted"]]
    match found["stage"]:
        case "ANNOUNCED":
            lines.append("A new CA is trusted beside the old one. Hosts and users learn of it when they renew.")
            following = "holdfast-controller ca rotate"
        case "ISSUING":
            lines.append("The new CA issues. Hosts and users get certificates of it when they renew.")
            following = "holdfast-controller ca rotate --finish"
        case _:
            return [*lines, "No change is under way."]
    missing = found["missing"]
    if missing:
        lines.append(f"Not ready, {len(missing)}: {', '.join(missing[:20])}{' …' * (len(missing) > 20)}")
        lines.append(f"Once no party is left: {following}")
    else:
        lines.append(f"Everybody is ready. Next: {following}")
    return lines
