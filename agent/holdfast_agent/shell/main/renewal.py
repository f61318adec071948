"""Keeps the host's certificate fresh: after two thirds of its life a short process gets the next one.

In a process of its own, because what makes keys and requests would stay in the daemon's memory for ever. The open
session continues as it is; each new connection reads the files again.

A certificate says when it was issued, by the controller's clock. From then on that clock counts, carried on by the
time since boot: a wall clock that is a day off makes the first renewal early or late, and no other.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable

import anyio

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Credential
from holdfast._daemon import log
from holdfast._security import certificate
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import How, Program

TRY_S = 60.0
"""For one try."""
RETRY_LEAST_S = 1.0
RETRY_MOST_S = 60.0
RETRY_SHARE = 0.1
"""Of the time that is left."""
LOOK_AGAIN_S = 3600.0
"""The longest sleep: clocks are set now and then, and files replaced by hand."""


APART_S = 240.0
"""Past this a clock is said to be off."""


@dataclass(frozen=True)
class Clocks:
    """Source of time: seconds since the epoch, and since the boot."""

    wall: Callable[[], float] = time.time
    boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)


class Renewal:
    """Renews ``tls.cert`` from the enrolment service at ``address``; does nothing where that is empty.

    ``connected`` says whether a controller takes the present one.
    """

    def __init__(
        self, address: str, tls: TlsFiles, connected: Callable[[], bool], clocks: Clocks | None = None
    ) -> None:
        self._address = address
        self._tls = tls
        self._connected = connected
        self._clocks = clocks or Clocks()
        self._began: float | None = None
        """The controller's time at boot, once it is known."""
        self._not_before = float("-inf")
        """When a certificate that isn't valid yet may be replaced, seconds since the boot."""

    async def run(self) -> None:
        """Renew whenever it is time, until cancelled. A failure is noted and tried again."""
        while self._address:
            try:
                present = certificate.read(self._tls.cert)
            except ConfigError as error:
                log.warning("certificate.unreadable", error=str(error))
                await anyio.sleep(RETRY_MOST_S)
                continue
            now = self._now()
            if (now >= present.renew_at or self._is_early(present)) and await self._renew():
                self._learn()
                continue
            await anyio.sleep(pause_s(present.renew_at - now, present.ends_at - now))

    def _is_early(self, present: Credential) -> bool:
        """Whether the certificate is refused for it isn't valid yet: a controller has issued it whose clock was ahead.

        Or this host's clock is behind; so it is replaced once in a while only.
        """
        boot = self._clocks.boot()
        if self._connected() or self._clocks.wall() >= present.begins_at or boot < self._not_before:
            return False
        self._not_before = boot + LOOK_AGAIN_S
        return True

    def _now(self) -> float:
        return self._clocks.wall() if self._began is None else self._began + self._clocks.boot()

    def _learn(self) -> None:
        """Take the controller's time from the certificate that it has just issued, and warn if our clock is off."""
        with contextlib.suppress(ConfigError):
            issued_at = certificate.read(self._tls.cert).issued_at
            self._began = issued_at - self._clocks.boot()
            apart_s = self._clocks.wall() - issued_at
            if abs(apart_s) > APART_S:
                side = "ahead of" if apart_s > 0 else "behind"
                problem = f"the clock of this host is {abs(apart_s):.0f} s {side} the controller's"
                log.warning("clock.not_synchronized", error=problem, fix="timedatectl set-ntp true")

    async def _renew(self) -> bool:
        files = {"--ca": self._tls.ca, "--cert": self._tls.cert, "--key": self._tls.key}
        words = [text for name, path in files.items() for text in (name, str(path))]
        command = (sys.executable, "-P", "-m", "holdfast._security.enrolment", "renew", self._address, *words)
        program = Program(command, TRY_S, os.environ, cwd=os.getcwd(), umask=0o077)
        ran = await programs.run_async(program)
        if ran.code == 0:
            log.info("certificate.renewed", file=str(self._tls.cert))
            return True
        said = ran.errors[-2000:].decode(errors="replace").strip() if ran.how is How.ENDED else ran.problem
        log.warning("certificate.renewal_failed", error=said)
        return False


def pause_s(until_due_s: float, until_end_s: float) -> float:
    """How long to sleep: until it is due, or after a failure a share of the time that is left."""
    if until_due_s > 0:
        return min(until_due_s, LOOK_AGAIN_S)
    return max(RETRY_LEAST_S, min(RETRY_MOST_S, RETRY_SHARE * until_end_s))
