"""Rows kept beside the log in tables of their own: evidence of hangs, answers to requests, and sealed secrets.

Each function runs within a transaction of its caller's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import sqlalchemy as sa

from holdfast._daemon import log
from holdfast_controller.core.model.cluster import Answer
from holdfast_controller.core.step.actions import KeepAnswer, KeepEvidence, KeepSecret
from holdfast_controller.core.step.idempotency import KEPT_ANSWERS
from holdfast_controller.shell.store.schema import answers, evidence, secrets

EVIDENCE_HANGS = 20
"""Of so many of a job's hangs the evidence is kept, the newest ones."""
EVIDENCE_BYTES = 64 << 20
"""Of one job's evidence; what is too much goes, that of the oldest hangs first. A rank's takes a few KiB."""


def write_evidence(database: sa.Connection, piece: KeepEvidence) -> None:
    """Keep one worker's, and of the job's as much as there is room for."""
    row = {"job": piece.job_id, "hang": piece.hang, "worker": piece.worker, "content": piece.content}
    database.execute(sa.insert(evidence).prefix_with("OR REPLACE"), row)
    _drop_evidence(database, piece.job_id)


def read_evidence(database: sa.Connection, job: str, hang: int) -> list[tuple[str, bytes]]:
    """(worker, content) of what was kept of a job's hang, by worker."""
    query = (
        sa.select(evidence.c.worker, evidence.c.content)
        .where(evidence.c.job == job, evidence.c.hang == hang)
        .order_by(evidence.c.worker)
    )
    return [(row.worker, row.content) for row in database.execute(query)]


def _drop_evidence(database: sa.Connection, job: str) -> None:
    """Keep what there is room for: the newest hang's first, and of one hang what came first."""
    size = sa.func.length(evidence.c.content).label("size")
    query = sa.select(evidence.c.hang, evidence.c.worker, size).where(evidence.c.job == job)
    used, hangs = 0, set()
    for row in list(database.execute(query.order_by(evidence.c.hang.desc(), sa.literal_column("rowid")))):
        hangs.add(row.hang)
        used += row.size
        if len(hangs) > EVIDENCE_HANGS or used > EVIDENCE_BYTES:
            key = (evidence.c.job == job, evidence.c.hang == row.hang, evidence.c.worker == row.worker)
            database.execute(sa.delete(evidence).where(*key))
            log.info("evidence.evicted", worker=f"{job}/{row.worker}", hang=row.hang)


def write_answers(driver: sqlite3.Connection, new: Sequence[KeepAnswer]) -> None:
    """Keep these, and of all the newest ``KEPT_ANSWERS``."""
    rows = [(piece.by, piece.request_id, piece.answer.digest, piece.answer.subject) for piece in new]
    driver.executemany(_INSERT_ANSWER, rows)
    driver.execute(_DROP_ANSWERS, (KEPT_ANSWERS,))


def read_answers(database: sa.Connection) -> dict[tuple[str, str], Answer]:
    """Every answer by (who asked, request id), oldest first."""
    rows = database.execute(sa.select(answers).order_by(answers.c.number))
    return {(row.by, row.request_id): Answer(row.digest, row.subject) for row in rows}


_INSERT_ANSWER = "INSERT INTO answers (by, request_id, digest, subject) VALUES (?, ?, ?, ?)"
_DROP_ANSWERS = "DELETE FROM answers WHERE number <= (SELECT max(number) FROM answers) - ?"


def write_secret(database: sa.Connection, kept: KeepSecret) -> None:
    """Replace a value or forget it. What was there is overwritten with zeros."""
    database.exec_driver_sql("PRAGMA secure_delete = ON")
    database.execute(sa.delete(secrets).where(secrets.c.holder == kept.holder, secrets.c.name == kept.name))
    if kept.sealed is not None:
        row = {"holder": kept.holder, "name": kept.name, "sealed": kept.sealed}
        database.execute(sa.insert(secrets), row)
    database.exec_driver_sql("PRAGMA secure_delete = OFF")


def read_secrets(database: sa.Connection) -> dict[tuple[str, str], bytes]:
    """Every sealed value, by holder and name."""
    return {(row.holder, row.name): row.sealed for row in database.execute(sa.select(secrets))}
