"""What a model is configured as in the catalogue: its length, chat template and sampling."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("max_model_len", sa.Integer(), nullable=True))
    op.add_column("models", sa.Column("chat_template", sa.Text(), nullable=True))
    op.add_column("models", sa.Column("sampling", sa.JSON(none_as_null=True), nullable=True))
