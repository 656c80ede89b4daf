from __future__ import annotations

from dataclasses import replace

from batchjobs.cli.figures import figure_rows
from tests.unit.worker.test_run_figures import FIGURES


def test_figures_of_answers_are_left_out_where_nothing_is_generated() -> None:
    embedded = replace(FIGURES, output_tokens=0, kv_peak_share=None, kv_peak_bytes=None)
    names = {row[0] for row in figure_rows([embedded])}
    of_answers = {"generated", "slots, busy on average", "first token p50 / p99", "preemptions"}
    assert not names & {*of_answers, "tokens computed again", "KV cache at most"}
    assert {"wall time", "prompt and generated", "steps"} <= names
    assert of_answers <= {row[0] for row in figure_rows([FIGURES, embedded])}


def test_the_cost_of_tokens_that_were_not_generated_is_unknown() -> None:
    [row] = [
        row
        for row in figure_rows([replace(FIGURES, output_tokens=0), FIGURES], price_per_hour=1.0)
        if row[0].startswith("cost")
    ]
    assert row[1] == "–"
    assert row[2] != "–"
