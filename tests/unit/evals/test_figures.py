from __future__ import annotations

import math
from pathlib import Path

from sqlalchemy import literal, select

from batchjobs.db import Database
from batchjobs.evals.figures import Figures


def test_every_number_comes_back_as_it_was(tmp_path: Path, database_url: str | None) -> None:
    kept = {
        "interval": {"low": -math.inf, "high": math.inf},
        "scores": [0.5, math.inf, None],
        "word": "inf",
        "number": 3,
        "empty": {},
    }
    database = Database.open(database_url or f"sqlite:///{tmp_path / 'figures.sqlite3'}")
    with database.read() as session:
        assert session.scalar(select(literal(kept, Figures))) == kept
        nothing = session.scalar(select(literal({"mean": math.nan}, Figures)))
    database.close()
    assert nothing is not None
    assert math.isnan(nothing["mean"])
