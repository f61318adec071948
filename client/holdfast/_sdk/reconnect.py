"""The link to a controller that may be away for a while: what counts as away, and how long to wait.

A stream that breaks is opened again from where it stood. The waits grow to a bound and are jittered, so that
a thousand watchers of a restarted controller don't all come back in the same moment.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import grpc

from holdfast._base.backoff import Backoff
from holdfast.errors import DeadlineExceeded, HoldfastError, Unavailable

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
CLOSED = "The client was closed before the controller had answered."

LinkCallback = Callable[[HoldfastError | None], None]
"""Called with the error when the controller has gone away, and with ``None`` when it is back."""

_BROKEN = ("RST_STREAM", "Stream removed", "GOAWAY", "Socket closed")
_REFUSED = "failed to connect to all addresses"
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)


def is_away(error: HoldfastError) -> bool:
    """Whether trying again later may help: the link broke, rather than the controller refused."""
    if isinstance(error, (Unavailable, DeadlineExceeded)):
        return True
    cause = error.__cause__
    if not isinstance(cause, grpc.aio.AioRpcError):
        return False
    # A server that dies in the middle of a stream shows itself in several ways.
    return cause.code() in _AWAY or any(sign in (cause.details() or "") for sign in _BROKEN)


def may_have_arrived(error: HoldfastError) -> bool:
    """Whether a call that has failed so may have been carried out: its answer is what is missing."""
    if isinstance(error, DeadlineExceeded):
        return True
    cause = error.__cause__
    return isinstance(cause, grpc.aio.AioRpcError) and any(sign in (cause.details() or "") for sign in _BROKEN)


def nobody_there(error: grpc.aio.AioRpcError) -> bool:
    """Whether no address took a connection, so that no controller has heard of the call."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and _REFUSED in (error.details() or "")


class Outage:
    """Keeps count of failures: announces an outage's start and end once each, and says how long to wait."""

    def __init__(self, on_link: LinkCallback | None = None, rng: random.Random | None = None) -> None:
        self._on_link = on_link
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S, rng or random.Random())
        self._announced = False

    def failed(self, error: HoldfastError) -> float:
        """One more try has failed; returns the seconds to wait before the next."""
        if not self._announced and self._on_link is not None:
            self._on_link(error)
        self._announced = True
        return self._backoff.failed()

    @property
    def ongoing(self) -> bool:
        """Whether the last try failed and nothing has been heard since."""
        return self._announced

    def answered(self) -> None:
        """The controller is there; whether the stream holds is yet to be seen."""
        if self._announced and self._on_link is not None:
            self._on_link(None)
        self._announced = False

    def settled(self) -> None:
        """The stream delivers: the next failure is a new one."""
        self.answered()
        self._backoff.reset()
