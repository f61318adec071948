"""The wait for a database that is away: how long, and that it is waited for once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from holdfast._daemon import log
from holdfast_controller.shell.store.databases.postgresql_address import first_line

FOR_S, BESIDE_ANOTHER_S = 30.0, 4.0
"""A database that is away for longer ends the controller; sooner where another stands by, which may reach it."""
EVERY_S = 0.25
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
        self._ended: sa.exc.DBAPIError | None = None
        self.has_standby = False
        """Whether this controller leads, and another one may reach the database."""

    def broke(self) -> None:
        """The connection is broken: the wait begins, if it hasn't yet."""
        self._since = self._since or time.monotonic()

    def wait(self, attempt: Callable[[], R], drop: Callable[[sa.exc.DBAPIError], bool]) -> R:
        """Call ``attempt`` until it works. ``drop`` forgets a connection, and says whether the error has broken it."""
        while True:
            if self._ended is not None:
                raise self._ended
            try:
                done = attempt()
            except sa.exc.DBAPIError as error:  # a transaction that stood still too long ends with an InternalError
                if not drop(error):
                    raise
                self.broke()
                log.warning("store.unreachable", database=self._name, error=first_line(error))
                if time.monotonic() - self._since >= (BESIDE_ANOTHER_S if self.has_standby else FOR_S):
                    self._ended = error
                    raise
                time.sleep(EVERY_S)
            else:
                self._since = 0.0
                return done
