"""Runs of eval suites, their answers and scores, and which runs are the baseline."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "eval_runs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("suite", sa.String(length=64), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("night", sa.String(length=64), nullable=False),
        sa.Column("metric", sa.String(length=160), nullable=False),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("suite_path", sa.Text(), nullable=False),
        sa.Column("suite_key", sa.String(length=255), nullable=False),
        sa.Column("dataset_sha256", sa.String(length=64), nullable=False),
        sa.Column("conditions", sa.JSON(), nullable=False),
        sa.Column("jobs", sa.JSON(), nullable=False),
        sa.Column("plan_key", sa.String(length=255), nullable=True),
        sa.Column("answers_key", sa.String(length=255), nullable=True),
        sa.Column("items", sa.Integer(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("scores", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("confirms", sa.String(length=64), nullable=True),
        sa.Column("verdict", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("word", sa.String(length=16), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["confirms"], ["eval_runs.id"], name=op.f("fk_eval_runs_confirms_eval_runs")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_eval_runs")),
    )
    op.create_index(
        op.f("ix_eval_runs_suite_created_at_id"), "eval_runs", ["suite", "created_at", "id"]
    )
    op.create_index(op.f("ix_eval_runs_created_at_id"), "eval_runs", ["created_at", "id"])
    op.create_index(op.f("ix_eval_runs_confirms"), "eval_runs", ["confirms"])
    op.create_index(op.f("ix_eval_runs_night"), "eval_runs", ["night"])
    op.create_table(
        "eval_answers",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sample", sa.Integer(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("finish_reason", sa.String(length=32), nullable=True),
        sa.Column("item_digest", sa.String(length=64), nullable=False),
        sa.Column("prompt_digest", sa.String(length=64), nullable=False),
        sa.Column("byte_start", sa.BigInteger(), nullable=False),
        sa.Column("byte_end", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["eval_runs.id"], name=op.f("fk_eval_answers_run_id_eval_runs")
        ),
        sa.PrimaryKeyConstraint("run_id", "number", "sample", name=op.f("pk_eval_answers")),
    )
    op.create_table(
        "eval_scores",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("metric", sa.String(length=160), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sample", sa.Integer(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("missing", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["eval_runs.id"], name=op.f("fk_eval_scores_run_id_eval_runs")
        ),
        sa.PrimaryKeyConstraint(
            "run_id", "metric", "number", "sample", name=op.f("pk_eval_scores")
        ),
    )
    op.create_table(
        "eval_pins",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("suite", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("pinned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("unpinned_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["eval_runs.id"], name=op.f("fk_eval_pins_run_id_eval_runs")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_eval_pins")),
    )
    op.create_index(op.f("ix_eval_pins_suite_unpinned_at"), "eval_pins", ["suite", "unpinned_at"])
