"""What else a create request says of a job: when its files expire, and under which key it came."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("output_expires_seconds", sa.Integer(), nullable=True))
    op.add_column("jobs", sa.Column("request_key", sa.String(length=64), nullable=True))
    op.add_column("jobs", sa.Column("request_digest", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_jobs_request_key"), "jobs", ["request_key"], unique=True)
