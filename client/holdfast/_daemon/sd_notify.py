"""Notifies the service manager that started a daemon: ready, alive, status.

The protocol is sd_notify(3): datagrams of ``NAME=VALUE`` lines to the socket in NOTIFY_SOCKET. Without a service
manager nothing is sent. The sign of life comes out of the daemon's own event loop, so a loop that is
stuck gives none, and is ended after WatchdogSec by SIGABRT, with a traceback of every thread on stderr.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, MutableMapping

STATUS_S = 10.0
"""Seconds between looks at the status if the manager has no watchdog."""


class Supervisor:
    """The service manager, if there is one. Takes its variables out of the environment: they mean us alone."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        path = environ.pop("NOTIFY_SOCKET", "")
        patience_us, meant = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self.beat_s = STATUS_S
        """Seconds between two signs of life: a third of what the service manager waits for one."""
        if self._address and patience_us.isdigit() and int(patience_us) and meant in ("", str(os.getpid())):
            self.beat_s = int(patience_us) / 3e6

    @property
    def present(self) -> bool:
        """Whether a service manager listens."""
        return bool(self._address)

    def tell(self, **said: str | int) -> None:
        """Such as ``READY=1, STATUS="2 workers"``. A service manager that doesn't take it is no fault of ours."""
        if not self._address:
            return
        lines = "\n".join(f"{name}={value}".replace("\n", " ") for name, value in said.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(lines.encode(), self._address)
        except OSError:
            pass

    async def keep_telling(self, status: Callable[[], str]) -> None:
        """Give signs of life, and the status when it has changed, until cancelled. Returns if no manager listens."""
        told = ""
        while self.present:
            now = status()
            self.tell(WATCHDOG=1, **({"STATUS": now} if now != told else {}))
            told = now
            await asyncio.sleep(self.beat_s)
