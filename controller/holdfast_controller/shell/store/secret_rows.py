"""The table of secrets: one sealed value for each holder and name."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast_controller.core.step.actions import KeepSecret
from holdfast_controller.shell.store.schema import secrets


def write(database: sa.Connection, kept: KeepSecret) -> None:
    """Within a transaction: replace a value or forget it. What was there is overwritten with zeros."""
    database.exec_driver_sql("PRAGMA secure_delete = ON")
    database.execute(sa.delete(secrets).where(secrets.c.holder == kept.holder, secrets.c.name == kept.name))
    if kept.sealed is not None:
        row = {"holder": kept.holder, "name": kept.name, "sealed": kept.sealed}
        database.execute(sa.insert(secrets), row)
    database.exec_driver_sql("PRAGMA secure_delete = OFF")


def read(database: sa.Connection) -> dict[tuple[str, str], bytes]:
    """Within a transaction: every sealed value, by holder and name."""
    return {(row.holder, row.name): row.sealed for row in database.execute(sa.select(secrets))}
