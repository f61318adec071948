"""Per-caller limits on calls: how many at once and how many a second, so that one client cannot starve the others.

Unary calls and streams have separate limits, so that a caller who follows much can still cancel a
job. Of a host's control streams the newest counts, and of its bulk streams; other calls of hosts are few.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from holdfast._base.identity import Credential, Kind
from holdfast.errors import TooMany
from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.shell.calls import slices

CALLS_MOST = {Kind.USER: 128, Kind.HOST: 32, Kind.CONTROLLER: 8}
STREAMS_MOST = {Kind.USER: 512, Kind.HOST: 32, Kind.CONTROLLER: 8}
SENDING_MOST = {Kind.USER: 8, Kind.HOST: 32, Kind.CONTROLLER: 8}
"""Calls that send a stream of messages: of each, two may be in memory at a time."""

CALLS_BURST = 1_000
CALLS_PER_S = 500
"""Calls that one user may begin, refused ones included: each costs the controller a third of a millisecond."""
REFUSED_COSTS = 10
"""A refused call counts as so many: a program that is refused and tries again gains nothing by haste."""
STREAM_COSTS = 10
"""So many calls is the begin of a stream: it is set up, and what it shows first is sent."""
DELAYED_MOST = 1_000
"""Of one user; further calls are refused at once."""


class CallRates:
    """Slows down users who call faster than ``CALLS_PER_S``. Hosts' messages have rates of their own."""

    def __init__(self) -> None:
        self._calls = Buckets(CALLS_BURST, CALLS_PER_S, most=10_000)
        self._delayed: Counter[str] = Counter()

    def refused(self, caller: Credential | None) -> None:
        """Take note that a call of this caller was refused."""
        if caller is not None and caller.identity.kind is Kind.USER:
            self._calls.charge(caller.party, REFUSED_COSTS - 1, time.monotonic())

    async def take_turn(self, caller: Credential | None, *, streams: bool = False) -> None:
        """Return when the caller's next call may be handled. Raises ``TooMany`` where too many wait already."""
        if caller is None or caller.identity.kind is not Kind.USER:
            return
        party, now = caller.party, time.monotonic()
        if self._delayed[party] >= DELAYED_MOST:
            problem = f"{caller.identity.name} calls more than {CALLS_PER_S} times a second."
            raise TooMany(problem, fix="Wait until some calls have been answered.")
        self._calls.charge(party, STREAM_COSTS if streams else 1, now)
        owed_s = self._calls.owed_s(party, now)
        if not owed_s:
            return
        self._delayed[party] += 1
        try:
            await asyncio.sleep(owed_s)
        finally:
            self._delayed[party] -= 1
            if not self._delayed[party]:
                del self._delayed[party]


class ConcurrencyLimits:
    """Counts calls in progress by party."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._sending: Counter[str] = Counter()

    @contextlib.contextmanager
    def permit(self, caller: Credential | None, *, streams: bool, sends: bool = False) -> Iterator[None]:
        """Hold a permit for one call while the block runs, and have its work count as its caller's. Raises ``TooMany``.

        ``streams``: it lasts; ``sends``: it does, and its caller sends messages all the time, such as an upload.
        Callers without a certificate are not counted: only enrolment takes their calls, and it has its own bounds.
        """
        if caller is None:
            yield
            return
        if sends:
            held, most, what = self._sending, SENDING_MOST, "uploads in progress"
            fix = "Wait until some are complete."
        elif streams:
            held, most, what, fix = self._streams, STREAMS_MOST, "streams open", "Close some first."
        else:
            held, most, what = self._calls, CALLS_MOST, "calls in progress"
            fix = "Wait until some have been answered."
        who, allowed = caller.identity, most[caller.identity.kind]
        if held[caller.party] >= allowed:
            problem = f"{who.name} has {allowed} {what}, which is the most for one {who.kind.value}."
            raise TooMany(problem, fix=fix)
        held[caller.party] += 1
        slices.ASKED_BY.set(caller.party)
        try:
            yield
        finally:
            held[caller.party] -= 1
            if not held[caller.party]:
                del held[caller.party]
