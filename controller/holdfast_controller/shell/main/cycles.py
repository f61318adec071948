"""The controller's looks for cycles of references that nothing else refers to: the only garbage that Python looks for.

A look stops everything for as long as it takes: with ten thousand live jobs one at all objects takes three quarters of
a second, while a relaunch takes a twentieth. So Python looks at what is new alone, in short looks, and all objects have
theirs by the clock.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

YOUNG = (2_000, 10)
"""Of so many new objects a look takes a millisecond or two, one at ten times as many about fifteen."""
NEVER = 1 << 30
LEAST_S = 60.0
SHARE = 2_000
"""A look at all objects waits for so many times as long as the last one took: with ten thousand live jobs 25 minutes.
Each stream of the page that ends leaves some fifty kilobytes until then."""


def look_at_what_is_new() -> None:
    """From now on. All that is there is left alone for good: it is what was loaded, and the store."""
    gc.freeze()
    gc.set_threshold(*YOUNG, NEVER)
    gc.enable()


class Cycles:
    """The looks of one controller, which begin once it has loaded all that it needs."""

    def __init__(
        self, look: Callable[[], object] = gc.collect, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._clock = look, clock
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin, in the running loop; or begin again, with more that is left alone."""
        look_at_what_is_new()
        if self._next is not None:
            self._next.cancel()
        self._look_in(LEAST_S)

    def _look_in(self, wait_s: float) -> None:
        self._next = asyncio.get_running_loop().call_later(wait_s, self._look_at_all)

    def _look_at_all(self) -> None:
        began = self._clock()
        self._look()
        self._look_in(max(SHARE * (self._clock() - began), LEAST_S))
