"""Failures, repairs and time in service of hosts by day."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "host_facts",
        sa.Column("day", sa.Integer, primary_key=True),
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("since", sa.Integer, primary_key=True),
        sa.Column("what", sa.Text, primary_key=True),
        sa.Column("busy", sa.Boolean, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("ms", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
