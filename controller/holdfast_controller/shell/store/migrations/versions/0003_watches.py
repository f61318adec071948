"""State of the hang detector by job, for the next start."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "watches",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("checksum", sa.Integer, nullable=False),
    )
