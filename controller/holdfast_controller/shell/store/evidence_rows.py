"""The table of evidence: what was recorded of each worker before a hang was ended, bounded for each job."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast._daemon import log
from holdfast_controller.core.step.actions import KeepEvidence
from holdfast_controller.shell.store.schema import evidence

EVIDENCE_HANGS = 20
"""Of so many of a job's hangs the evidence is kept, the newest ones."""
EVIDENCE_BYTES = 64 << 20
"""Of one job's evidence; what is too much goes, that of the oldest hangs first. A rank's takes a few KiB."""


def write(database: sa.Connection, piece: KeepEvidence) -> None:
    """Within a transaction: keep one worker's, and of the job's as much as there is room for."""
    row = {"job": piece.job_id, "hang": piece.hang, "worker": piece.worker, "content": piece.content}
    database.execute(sa.insert(evidence).prefix_with("OR REPLACE"), row)
    _drop(database, piece.job_id)


def read(database: sa.Connection, job: str, hang: int) -> list[tuple[str, bytes]]:
    """Within a transaction: (worker, content) of what was kept of a job's hang, by worker."""
    query = (
        sa.select(evidence.c.worker, evidence.c.content)
        .where(evidence.c.job == job, evidence.c.hang == hang)
        .order_by(evidence.c.worker)
    )
    return [(row.worker, row.content) for row in database.execute(query)]


def _drop(database: sa.Connection, job: str) -> None:
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
