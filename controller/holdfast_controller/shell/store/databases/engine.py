"""The interface between a store and the database that holds it: a file of SQLite, or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import sqlalchemy as sa

from holdfast_controller.shell.store.faults import Away
from holdfast_controller.shell.store.records import Record

DEPOSED_FIX = "What it has not acknowledged is not kept; ask the controller that is at work there now."


class Deposed(Away):
    """Another controller has taken over this store; this one must end."""


class SetBack(Away):
    """The database lacks commits that it had acknowledged; this controller must end."""


class OutcomeUnknown(Away):
    """The connection broke before the database said whether a transaction was committed: ask ``Engine.landed``."""


class Standby(NamedTuple):
    """A controller that waits until it may lead."""

    machine: str
    sequence: int
    """Of the newest event that it has read; 0 before its first look."""
    differing: str
    """Keys of settings that it has otherwise than the one that leads, in short."""


class Engine(Protocol):
    """One connection to a database, for one controller. Used on the store's thread alone."""

    name: str
    """How sentences call it: a path, or a database and its server. Holds no password."""
    path: Path
    """Its file, or where that would be: how far the store had come is noted beside it."""
    copies_beside: bool
    """Whether ``copy_to`` may be called on another thread, beside commits."""
    shared: bool
    """Whether another controller may take over while this one runs."""

    settings: dict[str, str]
    """Digests of what all controllers should have alike. May be set on any thread."""

    @property
    def set_back(self) -> str:
        """Why the database may lack what was acknowledged, after ``take``; empty where it doesn't."""

    @property
    def other_server(self) -> bool:
        """Whether ``take`` has found another server than the one that a controller wrote on last."""

    @property
    def connection(self) -> sa.Connection:
        """The one connection, once there is one."""

    def connect(self) -> None:
        """Open it, check it, and bring its tables up to date. Raises ``StoreError``."""

    def wait(self, look: Callable[[], int]) -> None:
        """Wait until no other controller uses the store. Raises ``StoreError`` once it was given up.

        Whenever another one has written, ``look`` is called within a transaction that reads, and sees one state. It
        returns how far it has read the log.
        """

    def give_up(self) -> None:
        """End that wait; called on another thread."""

    def take(self) -> bool:
        """Within the transaction that begins an epoch: let no other controller commit until that has ended.

        False where another one has come first.
        """

    def begun(self, epoch: int) -> None:
        """Note, within a transaction, that it has begun this epoch."""

    def reading(self) -> AbstractContextManager[object]:
        """A transaction that reads."""

    def writing(self, epoch: int) -> AbstractContextManager[None]:
        """A transaction of the controller that has begun ``epoch``. Raises ``Deposed`` where that isn't the newest.

        Raises ``OutcomeUnknown`` where it can't be known whether it was committed.
        """

    def landed(self, epoch: int) -> bool:
        """Whether the transaction of unknown outcome was committed. Raises ``Deposed``, ``StoreError``."""

    def append(self, records: Sequence[Record]) -> None:
        """Write to the end of the log; without records, anything that only a database that can be written takes."""

    def shrink(self, *, emptied: bool) -> bool:
        """Give back what deleted rows took; whether there is more. ``emptied``: all that was deleted is committed."""

    def copy_to(self, path: Path) -> None:
        """Copy the whole store into a new file of SQLite, readable by its owner only."""

    def standbys(self) -> list[Standby]:
        """Controllers that wait for this one to end, within a transaction that reads."""

    def risk(self) -> str:
        """Name, in a sentence, what a failover may lose; empty where nothing that was acknowledged."""

    def close(self, epoch: int) -> None:
        """End the connection; no other controller has to wait any more where this one has begun ``epoch``.

        Again it does nothing.
        """
