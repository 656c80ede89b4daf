"""How many of an answer's tokens were its reasoning."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("reasoning_tokens", sa.BigInteger(), nullable=True))
    op.add_column(
        "parts",
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False, server_default="0"),
    )
