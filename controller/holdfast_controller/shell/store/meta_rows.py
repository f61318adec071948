"""Rows of the table ``meta``, where the store notes its own state, each with a checksum.

Each function runs within a transaction of its caller's.
"""

from __future__ import annotations

import sqlalchemy as sa

from holdfast_controller.shell.store.faults import NotAsWritten
from holdfast_controller.shell.store.records import checksum
from holdfast_controller.shell.store.schema import meta
from holdfast_controller.shell.store.statements import put

SERVER, SETTINGS = "server", "settings"
"""Keys of the rows that name the server of PostgreSQL on which a controller has written last, and its settings."""


def read(database: sa.Connection, key: str) -> str | None:
    """The value of a key; None where there is none. Raises ``NotAsWritten``."""
    row = database.execute(sa.select(meta).where(meta.c.key == key)).one_or_none()
    if row is None:
        return None
    if row.checksum != checksum(row.key, row.value):
        raise NotAsWritten(f"the entry {key}")
    return str(row.value)


def write(database: sa.Connection, key: str, value: str) -> None:
    """Set the value of a key."""
    put(database, meta, [{"key": key, "value": value, "checksum": checksum(key, value)}])
