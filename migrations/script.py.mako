"""${message}

Rules: expand first, contract in a later release, so that the previous program still runs on this
schema. A new column is nullable or has a server default. On SQLite change a table only through
`op.batch_alter_table`. Name every constraint. Import nothing from `batchjobs`. Set
`batchjobs.db.REVISION` to this revision. There is no way down: people restore a backup.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
