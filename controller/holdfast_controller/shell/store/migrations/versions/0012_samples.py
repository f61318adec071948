"""A table of samples from before a hang, beside the evidence of it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("hang", sa.Integer, primary_key=True),
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
