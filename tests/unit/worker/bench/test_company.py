from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from batchjobs.cli.bench import _company_lines
from batchjobs.worker.bench.company import Company
from batchjobs.worker.bench.ways import WayResult
from batchjobs.worker.run_figures import RunFigures


def test_what_others_compute_is_seen() -> None:
    company = Company()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            while company.share() < 0.05:
                assert other.poll() is None  # its own deadline is the test run's
        finally:
            other.kill()


def test_only_company_that_matters_is_told() -> None:
    figures = RunFigures(
        requests=1,
        prompt_tokens=1,
        output_tokens=1,
        wall_seconds=1.0,
        slots=1,
        occupancy=1.0,
        computed_positions=1,
        useful_share=1.0,
        first_token_p50=0.0,
        first_token_p99=0.0,
        steps=1,
        step_p50=1.0,
        step_p99=1.0,
    )
    ours = WayResult(
        name="ours", title="", figures=figures, course=(), answers={}, lengths={}, others_share=0.05
    )
    static = replace(ours, name="static", others_share=0.42)
    assert list(_company_lines([ours])) == []
    [note] = _company_lines([ours, static])
    assert "(5% during ours, 42% during static)" in note
