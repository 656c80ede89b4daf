"""Whose files and jobs are, and the API keys that say so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("files", "jobs"):
        # The default stays: to take it away, SQLite would have to copy the table.
        op.add_column(
            table,
            sa.Column("tenant", sa.String(length=64), server_default="default", nullable=False),
        )
        op.create_index(
            op.f(f"ix_{table}_tenant_created_at_id"), table, ["tenant", "created_at", "id"]
        )
    op.drop_index(op.f("ix_jobs_request_key"), table_name="jobs")
    op.create_index(
        op.f("ix_jobs_tenant_request_key"), "jobs", ["tenant", "request_key"], unique=True
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("hint", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
