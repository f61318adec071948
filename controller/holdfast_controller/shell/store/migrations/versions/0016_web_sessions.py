"""Browsers that are signed in to the web page, by the hash of their cookie."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "web_sessions",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("began_at", sa.Float, nullable=False),
        sa.Column("used_at", sa.Float, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
    )
