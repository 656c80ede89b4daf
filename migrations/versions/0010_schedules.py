"""Schedules and their slots; events and their deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# SQLite numbers rows only in a column of exactly INTEGER.
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_schedules()
    _create_slots()
    _create_events()


def _create_schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), server_default="default", nullable=False),
        sa.Column("cron", sa.String(length=255), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("suites", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("file_id", sa.String(length=64), nullable=True),
        sa.Column("endpoint", sa.String(length=64), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("deadline", sa.String(length=5), nullable=True),
        sa.Column("window", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("overlap", sa.String(length=16), nullable=False),
        sa.Column("catch_up_seconds", sa.Integer(), nullable=False),
        sa.Column("health", sa.String(length=16), nullable=True),
        sa.Column("seen_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_schedules_tenant_name")),
    )


def _create_slots() -> None:
    op.create_table(
        "schedule_slots",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("schedule_id", sa.String(length=64), nullable=False),
        sa.Column("slot_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("job_id", sa.String(length=64), nullable=True),
        sa.Column("runs", sa.JSON(), nullable=False),
        sa.Column("words", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_schedule_slots_schedule_id_schedules")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_slots")),
        sa.UniqueConstraint(
            "schedule_id", "slot_at", name=op.f("uq_schedule_slots_schedule_id_slot_at")
        ),
    )
    op.create_index(op.f("ix_schedule_slots_state"), "schedule_slots", ["state"])
    op.create_index(op.f("ix_schedule_slots_job_id"), "schedule_slots", ["job_id"])


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_routed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_is_routed_created_at"), "events", ["is_routed", "created_at"])
    op.create_table(
        "deliveries",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("given_up_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["event_id"], ["events.id"], name=op.f("fk_deliveries_event_id_events")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("event_id", "channel", name=op.f("uq_deliveries_event_id_channel")),
    )
    op.create_index(op.f("ix_deliveries_due_at"), "deliveries", ["due_at"])
