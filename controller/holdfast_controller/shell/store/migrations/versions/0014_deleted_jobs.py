"""A table of deleted jobs: their ids stay taken, and what the store still has of them is removed bit by bit."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "deleted_jobs",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("purged", sa.Integer, nullable=False),
        sa.Column("swept", sa.Boolean, nullable=False),
    )
