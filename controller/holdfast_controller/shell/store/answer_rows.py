"""The table of answers to requests, for callers that repeat them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import sqlalchemy as sa

from holdfast_controller.core.model.request_cache import Answer
from holdfast_controller.core.step.actions import KeepAnswer
from holdfast_controller.core.step.idempotency import KEPT_ANSWERS
from holdfast_controller.shell.store.schema import answers


def write(driver: sqlite3.Connection, new: Sequence[KeepAnswer]) -> None:
    """Within a transaction: keep these, and of all the newest ``KEPT_ANSWERS``."""
    rows = [(piece.by, piece.request_id, piece.answer.digest, piece.answer.subject) for piece in new]
    driver.executemany(_INSERT, rows)
    driver.execute(_DROP, (KEPT_ANSWERS,))


def read(database: sa.Connection) -> dict[tuple[str, str], Answer]:
    """Within a transaction: every answer by (who asked, request id), oldest first."""
    rows = database.execute(sa.select(answers).order_by(answers.c.number))
    return {(row.by, row.request_id): Answer(row.digest, row.subject) for row in rows}


_INSERT = "INSERT INTO answers (by, request_id, digest, subject) VALUES (?, ?, ?, ?)"
_DROP = "DELETE FROM answers WHERE number <= (SELECT max(number) FROM answers) - ?"
