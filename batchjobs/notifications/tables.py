"""The tables of events, and of their ways to those who are told."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from batchjobs.models import Base, RowId, UserText, UserWord, column_of


class Channel(StrEnum):
    WEBHOOK = "webhook"
    MAIL = "mail"
    COMMAND = "command"


class Event(Base):
    """Something that happened, written in the transaction in which it did."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "is_routed", "created_at"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    type: Mapped[str] = mapped_column(String(64))
    data: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Has at least the `id` of what it is about."""
    tenant: Mapped[str] = mapped_column(UserWord(64))
    created_at: Mapped[datetime]
    is_routed: Mapped[bool] = mapped_column(default=False)
    """Its deliveries are made, one for each channel that wants it."""


class Delivery(Base):
    """One event on one channel, until it is delivered or given up."""

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("event_id", "channel"),
        Index(None, "due_at"),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=True)
    event_id: Mapped[str] = mapped_column(ForeignKey("events.id"))
    channel: Mapped[Channel] = mapped_column(column_of(Channel))
    attempts: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[datetime | None]
    """When it is to be tried; of one that is under way, when another may take over. None once it
    is delivered or given up."""
    delivered_at: Mapped[datetime | None]
    given_up_at: Mapped[datetime | None]
    error: Mapped[str | None] = mapped_column(UserText)
    """How the last attempt failed."""
