"""Per-caller limits on concurrent calls, so that one misbehaving client cannot starve the others.

Unary calls and streams have separate limits, so that a caller who follows much can still cancel a
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


class ConcurrencyLimits:
    """Counts calls in progress by party."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    @contextlib.contextmanager
    def permit(self, caller: Caller | None, *, streams: bool) -> Iterator[None]:
        """Hold a permit for one call while the block runs. Raises ``TooMany``.

        Callers without a certificate are not counted: only enrolment takes their calls, and it has its own bounds.
        """
        if caller is None:
            yield
            return
        held, most = (self._streams, STREAMS_MOST) if streams else (self._calls, CALLS_MOST)
        who, allowed = caller.identity, most[caller.identity.kind]
        if held[caller.party] >= allowed:
            what = "streams open" if streams else "calls in progress"
            raise TooMany(
                f"{who.name} has {allowed} {what}, which is the most for one {who.kind.value}.",
                fix="Close some first." if streams else "Wait until some have been answered.",
            )
        held[caller.party] += 1
        try:
            yield
        finally:
            held[caller.party] -= 1
            if not held[caller.party]:
                del held[caller.party]
