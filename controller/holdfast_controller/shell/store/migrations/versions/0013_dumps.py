"""A table of flight recorders' dumps, beside the evidence of a hang."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "dumps",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("hang", sa.Integer, primary_key=True),
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
