"""Rows kept beside the log in tables of their own: evidence of hangs, watches, answers to requests, and sealed secrets.

Each function runs within a transaction of its caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import sqlalchemy as sa

from holdfast._daemon import log
from holdfast_controller.core.model.cluster import Answer
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.step.actions import (
    ForgetJob,
    KeepAnswer,
    KeepEvidence,
    KeepProgress,
    KeepSecret,
    KeepWatch,
    Kept,
)
from holdfast_controller.core.step.idempotency import KEPT_ANSWERS
from holdfast_controller.shell.store import codec, ledger_rows, sweep
from holdfast_controller.shell.store.faults import NotAsWritten
from holdfast_controller.shell.store.records import as_written, checksum, with_checksum
from holdfast_controller.shell.store.schema import answers, dumps, evidence, samples, secrets, watches
from holdfast_controller.shell.store.statements import Twice, put, remove

EVIDENCE_HANGS = 20
"""Of so many of a job's hangs the evidence is kept, the newest ones."""
EVIDENCE_BYTES = 64 << 20
"""Of one job's evidence; what is too much goes, that of the oldest hangs first. A rank's takes a few KiB."""


SAMPLES_HANGS, SAMPLES_BYTES = 5, 16 << 20
"""The same of samples, and of dumps of flight recorders: a rank's take some tens of KiB each."""


def write(database: sa.Connection, kept: Sequence[Kept], sequence: int) -> None:
    """Keep what the commit that reaches ``sequence`` of the log is to keep beside it."""
    for piece in kept:
        match piece:
            case KeepEvidence():
                write_evidence(database, piece)
            case KeepWatch():
                write_watch(database, piece)
            case KeepProgress():
                ledger_rows.write_progress(database, piece)
            case KeepSecret():
                write_secret(database, piece)
            case ForgetJob():
                sweep.note(database, piece, sequence)
            case KeepAnswer():
                pass  # all at once
            case _:
                assert_never(piece)
    if new := [piece for piece in kept if isinstance(piece, KeepAnswer)]:
        write_answers(database, new)


def write_evidence(database: sa.Connection, piece: KeepEvidence) -> None:
    """Keep one worker's, and of the job's as much as there is room for."""
    _write_content(database, evidence, piece, piece.content)
    _drop_oldest(database, evidence, piece, EVIDENCE_HANGS, EVIDENCE_BYTES)
    if piece.samples:
        _write_content(database, samples, piece, piece.samples, Twice.LEAVE)
        _drop_oldest(database, samples, piece, SAMPLES_HANGS, SAMPLES_BYTES)
    if piece.dumps:
        _write_content(database, dumps, piece, piece.dumps)
        _drop_oldest(database, dumps, piece, SAMPLES_HANGS, SAMPLES_BYTES)


def _write_content(
    database: sa.Connection, table: sa.Table, piece: KeepEvidence, content: bytes, twice: Twice = Twice.REPLACE
) -> None:
    row = {"job": piece.job_id, "hang": piece.hang, "worker": piece.worker, "content": content}
    put(database, table, [with_checksum(table, row)], twice)


def read_evidence(database: sa.Connection, job: str, hang: int) -> list[tuple[str, bytes]]:
    """(worker, content) of what was kept of a job's hang, by worker. What is damaged is left out, and noted."""
    return _of_hang(database, evidence, job, hang)


def read_attachments(database: sa.Connection, job: str, hang: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The samples, and the dumps of flight recorders, that were kept with a job's hang, by worker."""
    return dict(_of_hang(database, samples, job, hang)), dict(_of_hang(database, dumps, job, hang))


def _of_hang(database: sa.Connection, table: sa.Table, job: str, hang: int) -> list[tuple[str, bytes]]:
    query = sa.select(table).where(table.c.job == job, table.c.hang == hang).order_by(table.c.worker)
    found = []
    for row in database.execute(query):
        if as_written(table, row):
            found.append((row.worker, row.content))
        else:
            log.warning("store.row_damaged", table=table.name, job=job, hang=hang)
    return found


def _drop_oldest(
    database: sa.Connection, table: sa.Table, new: KeepEvidence, most_hangs: int, most_bytes: int
) -> None:
    """Keep what there is room for: the newest hang's first, and of one hang what came before ``new``."""
    size = sa.func.length(table.c.content).label("size")
    query = sa.select(table.c.hang, table.c.worker, size).where(table.c.job == new.job_id)
    used, hangs = 0, set()
    order = (table.c.hang.desc(), table.c.worker == new.worker, table.c.worker)
    for row in list(database.execute(query.order_by(*order))):
        hangs.add(row.hang)
        used += row.size
        if len(hangs) > most_hangs or used > most_bytes:
            key = (table.c.job == new.job_id, table.c.hang == row.hang, table.c.worker == row.worker)
            database.execute(sa.delete(table).where(*key))
            log.info("evidence.evicted", worker=f"{new.job_id}/{row.worker}", hang=row.hang, kind=table.name)


def write_watch(database: sa.Connection, piece: KeepWatch) -> None:
    """Replace what was learned of a job's progress, or forget it."""
    if piece.kept is None:
        remove(database, watches, [piece.job_id])
        return
    payload = codec.dump_watch(piece.kept)
    put(database, watches, [with_checksum(watches, {"job": piece.job_id, "payload": payload})])


def read_watches(database: sa.Connection) -> dict[str, KeptWatch]:
    """States of the hang detector, by job. A record that can't be read is left out, and noted."""
    found: dict[str, KeptWatch] = {}
    for row in list(database.execute(sa.select(watches))):
        try:
            if row.checksum != checksum(row.job, row.payload):
                raise ValueError("it is not what was written")
            found[row.job] = codec.load_watch(row.payload)
        except ValueError as error:
            log.warning("hang_watch.unreadable", job=row.job, error=str(error))
    return found


def write_answers(database: sa.Connection, new: Sequence[KeepAnswer]) -> None:
    """Keep these, and of all the newest ``KEPT_ANSWERS``."""
    last = database.exec_driver_sql("SELECT max(number) FROM answers").scalar() or 0
    rows = []
    for number, piece in enumerate(new, last + 1):
        values = (piece.by, piece.request_id, piece.answer.digest, piece.answer.subject)
        rows.append(dict(zip(answers.columns.keys(), (number, *values, checksum(*values)), strict=True)))
    put(database, answers, rows)
    database.exec_driver_sql(f"DELETE FROM answers WHERE number <= {last + len(new) - KEPT_ANSWERS}")


def read_answers(database: sa.Connection) -> dict[tuple[str, str], Answer]:
    """Every answer by (who asked, request id), oldest first. Raises ``NotAsWritten``."""
    rows = database.execute(sa.select(answers).order_by(answers.c.number)).all()
    for row in rows:
        if row.checksum != checksum(row.by, row.request_id, row.digest, row.subject):
            raise NotAsWritten(f"answer {row.number}")
    return {(row.by, row.request_id): Answer(row.digest, row.subject) for row in rows}


def write_secret(database: sa.Connection, kept: KeepSecret) -> None:
    """Replace a value or forget it. In a file, what was there is overwritten with zeros: see ``databases.sqlite``."""
    database.execute(sa.delete(secrets).where(secrets.c.holder == kept.holder, secrets.c.name == kept.name))
    if kept.sealed is not None:
        row = {"holder": kept.holder, "name": kept.name, "sealed": kept.sealed}
        database.execute(sa.insert(secrets), row)


def read_secrets(database: sa.Connection) -> dict[tuple[str, str], bytes]:
    """Every sealed value, by holder and name."""
    return {(row.holder, row.name): row.sealed for row in database.execute(sa.select(secrets))}
