"""Notifications that wait to be delivered."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "letters",
        sa.Column("sequence", sa.Integer, primary_key=True),
        sa.Column("sink", sa.Text, primary_key=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
