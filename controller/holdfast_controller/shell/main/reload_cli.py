"""``holdfast-controller reload``: has the running controller read its settings again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from holdfast._base import config
from holdfast.errors import ConfigError, WrongState
from holdfast_controller.shell.backup.admin_socket import ask
from holdfast_controller.shell.base.commands import add_settings, command
from holdfast_controller.shell.base.config import ControllerConfig


@command
def main(argv: Sequence[str]) -> int:
    """0 when the settings count, 2 when the file is wrong and nothing was changed, 1 when no controller answers."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller reload",
        description="Have the controller read its settings again. Says what changed, and what needs a restart.",
    )
    add_settings(parser)
    options = parser.parse_args(argv)
    try:
        settings = config.load(ControllerConfig, options.config)
        found = ask(settings.state_dir, {"do": "reload"})
        if found is None:
            raise WrongState(
                f"No controller runs on {settings.state_dir}.", fix="It reads its settings as it starts."
            )
        if "refused" in found:
            raise ConfigError(found["refused"])
    except ConfigError as error:
        print(f"holdfast-controller: {error} Nothing was changed.", file=sys.stderr)  # noqa: T201
        return error.exit_status
    if found["changed"]:
        print(f"Changed: {', '.join(found['changed'])}.")  # noqa: T201
    if found["restart"]:
        print(f"Needs a restart: {', '.join(found['restart'])}.")  # noqa: T201
    if not found["changed"] and not found["restart"]:
        print("Nothing in it has changed.")  # noqa: T201
    return 0
