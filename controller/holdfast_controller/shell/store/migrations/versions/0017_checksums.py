"""Checksums of what a start relies on beside the log: the store's own entries, answers, and ids of deleted jobs."""

import zlib

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
COLUMNS = {
    "meta": ("key", "value"),
    "answers": ("by", "request_id", "digest", "subject"),
    "deleted_jobs": ("job", "purged"),
}


def upgrade() -> None:
    for name, columns in COLUMNS.items():
        op.add_column(name, sa.Column("checksum", sa.Integer, nullable=False, server_default="0"))
        table = sa.table(name, sa.column("rowid"), sa.column("checksum"), *map(sa.column, columns))
        rows = op.get_bind().execute(sa.select(table.c.rowid, *(table.c[column] for column in columns))).all()
        for rowid, *values in rows:
            noted = zlib.crc32(repr(tuple(values)).encode())
            op.execute(sa.update(table).where(table.c.rowid == rowid).values(checksum=noted))
