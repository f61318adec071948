"""Reads that may hang in the kernel, as those of /proc of a process in trouble do: few at a time, with a deadline.

A read that hangs keeps its thread until the kernel lets go; with all threads gone every further read is late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

from holdfast._daemon.abandonable import Late, Threads

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Blocking:
    """``late_s`` is how long one read may take, the wait for a free thread included."""

    def __init__(self, threads: int = 4, late_s: float = 2.0) -> None:
        self.late_s = late_s
        self._threads = Threads(threads, threads)

    async def read(self, function: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T | None:
        """Result of ``function``; None if it is late."""
        try:
            return await self._threads.call(None, self.late_s, function, *arguments)
        except Late:
            return None
