"""Evidence of hangs, kept with the job."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "evidence",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("hang", sa.Integer, primary_key=True),
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
