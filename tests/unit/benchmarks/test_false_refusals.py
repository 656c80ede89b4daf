"""Models that are right, and the check at load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from benchmarks.false_refusals import (
    SCALES,
    SIZES,
    STORED,
    Case,
    Outcome,
    cases,
    load_outcome,
    report,
    sized_config,
    write_case,
)
from tests.support.tiny_models import FAMILIES


def test_cases_come_by_every_family_size_scale_and_type() -> None:
    chosen = cases(60)
    assert len(set(chosen)) == 60
    assert {case.family for case in chosen} == set(FAMILIES)
    assert {case.size for case in chosen} == set(SIZES)
    assert {case.scale for case in chosen} == set(SCALES)
    assert {case.stored for case in chosen} == set(STORED)
    everything = cases(10_000)
    assert len(set(everything)) == len(FAMILIES) * len(SIZES) * len(SCALES) * len(STORED)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_every_size(family: str, size: str) -> None:
    config = sized_config(Case(family=family, size=size, scale=1, seed=0, stored="bfloat16"))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert config.num_hidden_layers == SIZES[size].get("num_hidden_layers", 3)
    assert parameters < (50e6 if family == "gpt_oss" else 25e6)
    assert size != "large" or parameters > 5e6


def test_a_case_is_stored_in_its_type_and_loaded_as_asked_for(tmp_path: Path) -> None:
    case = Case(family="llama", size="tiny", scale=1.0, seed=3, stored="float16")
    write_case(case, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    spread = float(tensors["model.layers.0.mlp.up_proj.weight"].float().std())
    assert spread == pytest.approx(1.1 / 32**0.5, rel=0.1)
    outcome = load_outcome(str(case), tmp_path, "float32")
    assert outcome.refusal is None
    assert outcome.ratio is not None
    assert 0 < outcome.ratio <= 1
    broken = load_outcome(str(case), tmp_path, "float12")
    assert broken.ratio is None
    assert broken.refusal is not None
    assert "float12" in broken.refusal


def test_the_report_counts_refusals_and_begins_with_the_worst() -> None:
    results = [
        Outcome("fine", None, 0.2, None),
        Outcome("near", None, 0.9, None),
        Outcome("bad", "bfloat16", 1.3, "cannot be packed"),
        Outcome("worse", "bfloat16", None, "no figure"),
    ]
    lines = "\n".join(report(results, worst=3)).splitlines()
    assert lines[2:5] == ["| nothing | 2 | 0 |", "| bfloat16 | 2 | 2 |", "| float16 | 0 | 0 |"]
    assert [line.split("|")[1].strip() for line in lines[-3:]] == ["worse", "bad", "near"]
