"""How many calls one party may have in progress: who has lost his head must not crowd out the others.

Calls that are answered once and streams have lanes of their own, so that whoever follows much can still cancel a
job. Of a host's control streams the newest counts, and of its bulk streams; other calls of hosts are few.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from holdfast._base.identity import Kind
from holdfast.errors import TooMany
from holdfast_controller.core.access.rules import Caller

CALLS_MOST = {Kind.USER: 128, Kind.HOST: 32, Kind.CONTROLLER: 8}
STREAMS_MOST = {Kind.USER: 512, Kind.HOST: 32, Kind.CONTROLLER: 8}


class Lanes:
    """Counts what is in progress, by party."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    @contextlib.contextmanager
    def place(self, caller: Caller | None, *, streams: bool) -> Iterator[None]:
        """A place for one call while the block runs. Raises ``TooMany``.

        Who has no certificate is not counted: only enrolment takes such calls, and has bounds of its own.
        """
        if caller is None:
            yield
            return
        lane, most = (self._streams, STREAMS_MOST) if streams else (self._calls, CALLS_MOST)
        who, allowed = caller.identity, most[caller.identity.kind]
        if lane[caller.party] >= allowed:
            what = "streams open" if streams else "calls in progress"
            raise TooMany(
                f"{who.name} has {allowed} {what}, which is the most for one {who.kind.value}.",
                fix="Close some first." if streams else "Wait until some have been answered.",
            )
        lane[caller.party] += 1
        try:
            yield
        finally:
            lane[caller.party] -= 1
            if not lane[caller.party]:
                del lane[caller.party]
