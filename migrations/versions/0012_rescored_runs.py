"""Runs that score the answers of others again; on what terms a run's jobs are submitted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("eval_runs", sa.Column("terms", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("eval_runs", sa.Column("rescores", sa.String(length=64), nullable=True))
    op.add_column("eval_runs", sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(op.f("ix_eval_runs_rescores"), "eval_runs", ["rescores"])
