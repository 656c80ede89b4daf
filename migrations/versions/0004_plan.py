"""Lines that run in another order than the file's, and which job and shard goes first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ANY_LINE = 2**31 - 1
"""What is known of the last line of a shard that an older version cut."""


def upgrade() -> None:
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("plan_key", sa.String(length=255), nullable=True))
        jobs.add_column(sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
        jobs.add_column(sa.Column("due_hour", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("shards") as shards:
        shards.add_column(
            sa.Column("last_line", sa.Integer(), nullable=False, server_default=str(ANY_LINE))
        )
        shards.add_column(
            sa.Column("is_planned", sa.Boolean(), nullable=False, server_default=sa.false())
        )
        shards.add_column(
            sa.Column("leads", sa.Boolean(), nullable=False, server_default=sa.false())
        )
    _fill_due_hours()


def _fill_due_hours() -> None:
    seconds = (
        "CAST(strftime('%s', expires_at) AS INTEGER)"
        if op.get_bind().dialect.name == "sqlite"
        else "CAST(extract(epoch FROM expires_at) AS BIGINT)"
    )
    op.execute(f"UPDATE jobs SET due_hour = {seconds} / 3600")  # noqa: S608 - no one's words
