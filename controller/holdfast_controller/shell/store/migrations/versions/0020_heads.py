"""Heads of jobs that have ended. They are written at the next start, which finds snapshots of another layout."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Words = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "heads",
        sa.Column("entity", Words, primary_key=True),
        sa.Column("payload", Words, nullable=False),
        sa.Column("checksum", Number, nullable=False),
    )
