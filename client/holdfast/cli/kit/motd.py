"""The message of the day: shown once after it has changed, and whenever it is asked for."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast._base.printable import one_line
from holdfast.cli.kit.durations import age

if TYPE_CHECKING:
    from holdfast.cli.kit.console import Console
    from holdfast.client import Client
    from holdfast.v1.access_pb2 import Motd


MOST_LINES = 24
"""As many as a controller of ours keeps."""


def once(client: Client, console: Console) -> Callable[[Motd], None]:
    """A function that shows a message on stderr, unless this user has seen it."""
    return lambda motd: show_once(motd, client.settings.controller, console)


def show_once(motd: Motd, controller: str, console: Console) -> None:
    """Show the message of the cluster at ``controller`` on stderr, unless this user has seen it.

    One that can't be noted as seen is shown each time.
    """
    path, stamp = _noted_in(controller), motd.time.ToJsonString()
    try:
        if path.read_text() == stamp:
            return
    except (OSError, UnicodeDecodeError):
        pass
    for line in lines(motd, time.time()):
        console.note(line)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(stamp)
    except OSError:
        pass


def lines(motd: Motd, now: float) -> Iterator[str]:
    """The message below a head that says whose it is, and how old."""
    yield f"message of the day, from {one_line(motd.by)}, {age(now - motd.time.seconds)} ago:"
    for line in motd.text.splitlines()[:MOST_LINES]:
        yield f"  {line}"


def _noted_in(controller: str) -> Path:
    """The file that says which message of this cluster was shown last."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.environ.get("HOME", "~"), ".local/state")
    name = hashlib.sha256(controller.encode()).hexdigest()[:16]
    return Path(os.path.expanduser(home)) / "holdfast" / f"motd-{name}"
