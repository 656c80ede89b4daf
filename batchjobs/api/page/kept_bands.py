"""Baselines' intervals, kept: they come of every answer of several runs, and never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from batchjobs.evals import trends
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.trends import Band

MAX_KEPT = 256


class KeptBands:
    """For many threads; the least recently asked for go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, ...], Band | None] = OrderedDict()

    def of(self, session: Session, run: EvalRun) -> Band | None:
        """Of the baseline that the run can be measured against."""
        baseline = trends.baseline_of(session, run)
        version = (run.metric, *(one.id for one in baseline))
        with self._lock:
            if version in self._known:
                self._known.move_to_end(version)
                return self._known[version]
        band = trends.band(session, baseline, run.metric)
        with self._lock:
            self._known[version] = band
            if len(self._known) > MAX_KEPT:
                self._known.popitem(last=False)
        return band


def _kept_bands(request: Request) -> KeptBands:
    kept: KeptBands = request.app.state.kept_bands
    return kept


Bands = Annotated[KeptBands, Depends(_kept_bands)]
