"""The wait for a database that is away: how long, and that it is waited for once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from holdfast._daemon import log
from holdfast_controller.shell.store.databases.postgresql.address import first_line

FOR_S, BESIDE_ANOTHER_S = 30.0, 4.0
"""A database that is away for longer ends the controller; sooner where another stands by, which may reach it."""
UNHEARD_S = 1.8
"""Beside another, a database that says nothing for so long, not even no, ends it: unlike a restart it is out of this
machine's reach alone, as far as can be known, and the other one leads by now."""
BACK_S = 15.0
"""Within that another controller, whose place was taken, is there again: its service manager starts it."""
AT_ONCE_S, EVERY_S = 1.0, 0.25
"""What fails within that was refused, by the server or its machine; the wait between two tries."""
R = TypeVar("R")


class Patience:
    """Tries again what a broken connection has prevented, until the database was away for too long.

    Then nothing is tried any more: every call fails at once, and the controller ends.
    """

    def __init__(self, name: str) -> None:
        """``name`` is the database's."""
        self._name = name
        self._since = 0.0
        """When the connection was found broken; 0 while it is whole."""
        self._heard = 0.0
        """When an answer last came, or a refusal; 0 before the first."""
        self._ended: sa.exc.DBAPIError | None = None
        self.has_standby = False
        """Whether this controller leads, and another one may reach the database."""
        self._other_returns = 0.0
        """Until when one is expected, whether it is seen yet or not."""

    def other_returns(self) -> None:
        """This controller leads, in the place of another one."""
        self._other_returns = time.monotonic() + BACK_S

    def broke(self, error: sa.exc.DBAPIError) -> None:
        """The connection is broken: the wait begins, if it hasn't yet, and is over where it has lasted long enough."""
        now = time.monotonic()
        self._since = self._since or now
        has_other = self.has_standby or now < self._other_returns
        longest_s = BESIDE_ANOTHER_S if has_other else FOR_S
        if now - self._since >= longest_s or (has_other and now - self._heard >= UNHEARD_S):
            self._ended = error

    def wait(self, attempt: Callable[[], R], drop: Callable[[sa.exc.DBAPIError], bool]) -> R:
        """Call ``attempt`` until it works. ``drop`` tells ``broke`` of an error that has broken the connection.

        It says whether the error has.
        """
        while self._ended is None:
            began = time.monotonic()
            try:
                done = attempt()
            except sa.exc.DBAPIError as error:  # a transaction that stood still too long ends with an InternalError
                if (now := time.monotonic()) - began < AT_ONCE_S:
                    self._heard = now
                if not drop(error):
                    raise
                log.warning("store.unreachable", database=self._name, error=first_line(error))
                if self._ended is None:
                    time.sleep(EVERY_S)
            else:
                self._since, self._heard = 0.0, time.monotonic()
                return done
        raise self._ended
