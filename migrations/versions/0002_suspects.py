"""Which lines of a shard are run apart because one of them may kill its worker."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("shards") as shards:
        shards.add_column(sa.Column("suspect_first", sa.Integer(), nullable=True))
        shards.add_column(sa.Column("suspect_last", sa.Integer(), nullable=True))
