"""Tables of the goodput ledger: statements of ended jobs, time by day, and progress of running generations."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "statements",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("ended", sa.Integer, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("checksum", sa.Integer, nullable=False),
    )
    for name, dimensions in (("host_days", ("host",)), ("owner_days", ("project", "owner"))):
        op.create_table(
            name,
            sa.Column("day", sa.Integer, primary_key=True),
            *(sa.Column(dimension, sa.Text, primary_key=True) for dimension in dimensions),
            sa.Column("model", sa.Text, primary_key=True),
            sa.Column("ranks", sa.Boolean, primary_key=True),
            sa.Column("category", sa.Text, primary_key=True),
            sa.Column("payer", sa.Text, primary_key=True),
            sa.Column("ms", sa.Integer, nullable=False),
            sqlite_with_rowid=False,
        )
    op.create_table(
        "progress",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("checksum", sa.Integer, nullable=False),
    )
