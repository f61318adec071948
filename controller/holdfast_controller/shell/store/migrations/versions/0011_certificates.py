"""The newest certificate of each host and user: by which CA, and which CAs its holder was given to trust."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "certificates",
        sa.Column("party", sa.Text, primary_key=True),
        sa.Column("issued_at", sa.Float, nullable=False),
        sa.Column("issuer", sa.Text, nullable=False),
        sa.Column("trusts", sa.Text, nullable=False),
    )
