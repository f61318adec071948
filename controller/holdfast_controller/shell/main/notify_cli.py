"""``holdfast-controller notify CHANNEL``: sends a test message, so that an admin sees whether a channel works."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from holdfast._base import config
from holdfast.errors import ConfigError
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.shell.base.commands import add_settings, command
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.notify.channels import CLUSTER_SINK, Channels, Target
from holdfast_controller.shell.notify.render import test_message
from holdfast_controller.shell.notify.sender import NotDelivered, Sender


@command
def main(argv: Sequence[str]) -> int:
    """0 once the receiver has taken the message, 1 with a sentence on stderr if it has not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller notify", description="Send a test message to a channel of controller.toml."
    )
    parser.add_argument("channel", metavar="CHANNEL", help="the name of one of [[notifications]]")
    add_settings(parser)
    options = parser.parse_args(argv)
    try:
        settings = config.load(ControllerConfig, options.config)
        target = Channels.of(settings).target(f"{CLUSTER_SINK}:{options.channel}", None)
        if target is None:
            known = ", ".join(channel.name for channel in settings.notifications) or "none"
            raise ConfigError(
                f"{options.config} has no channel {options.channel!r}.", fix=f"Its channels: {known}."
            )
        asyncio.run(_send(target, test_message(options.channel, settings.cluster, time.time())))
    except NotDelivered as error:
        print(f"holdfast-controller: {options.channel} did not take the message: {error}.", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{options.channel} has taken the message.")  # noqa: T201
    return 0


async def _send(target: Target, entry: OutboxEntry) -> None:
    sender = Sender()
    try:
        await sender.send(target, entry)
    finally:
        await sender.close()
