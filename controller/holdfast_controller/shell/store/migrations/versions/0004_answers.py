"""Answers to calls with a request id, so that each is acted on once."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "answers",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
    )
