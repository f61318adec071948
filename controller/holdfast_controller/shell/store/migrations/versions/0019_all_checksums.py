"""Checksums of evidence, notifications, certificates and browser sessions; a deleted job's is over ``swept`` too."""

import zlib

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
HANG = ("job", "hang", "worker", "content")
COLUMNS = {
    "evidence": HANG,
    "samples": HANG,
    "dumps": HANG,
    "letters": ("sequence", "sink", "job", "kind", "body"),
    "certificates": ("party", "issued_at", "issuer", "trusts"),
    "web_sessions": ("digest", "id", "user", "began_at", "used_at", "address", "agent"),
    "deleted_jobs": ("job", "purged", "swept"),
}


def upgrade() -> None:
    for name, columns in COLUMNS.items():
        if name != "deleted_jobs":
            op.add_column(name, sa.Column("checksum", sa.Integer, nullable=False, server_default="0"))
        read = [sa.column(column, sa.Boolean if column == "swept" else None) for column in columns]
        table = sa.table(name, sa.column("rowid"), sa.column("checksum"), *read)
        for rowid in op.get_bind().execute(sa.select(table.c.rowid)).scalars().all():
            row = op.get_bind().execute(sa.select(*read).where(table.c.rowid == rowid)).one()
            noted = tuple(zlib.crc32(value) if isinstance(value, bytes) else value for value in row)
            checksum = zlib.crc32(repr(noted).encode())
            op.execute(sa.update(table).where(table.c.rowid == rowid).values(checksum=checksum))
