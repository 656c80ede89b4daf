"""The row of a run that begins."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Self

from batchjobs.evals.material import Material
from batchjobs.evals.submission import Digests
from batchjobs.evals.suite_file import SuiteFile
from batchjobs.evals.tables import EvalRun
from batchjobs.ids import new_run_id
from batchjobs.store.layout import eval_key


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNames:
    """A new run's id, and where its plan and its suite are kept."""

    id: str
    plan_key: str
    suite_key: str

    @classmethod
    def new(cls) -> Self:
        run_id = new_run_id()
        plan, suite = (eval_key(run_id, name, secrets.token_hex(4)) for name in ("plan", "suite"))
        return cls(id=run_id, plan_key=plan, suite_key=suite)


def run_row(
    names: RunNames, file: SuiteFile, material: Material, digests: Digests, **own: Any
) -> EvalRun:
    """What every run says of its suite; `own` are the columns in which runs differ."""
    return EvalRun(
        id=names.id,
        suite=file.suite.suite,
        metric=file.suite.deciding,
        metrics=list(file.suite.metrics),
        suite_path=str(file.path),
        suite_key=names.suite_key,
        dataset_sha256=material.sha256,
        plan_key=names.plan_key,
        items=digests.items,
        prompt_tokens=0,
        completion_tokens=0,
        **own,
    )
