"""Which engines are measured, and what their workers are told."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from batchjobs.settings import Settings
from benchmarks.models import BenchModel
from benchmarks.peers import PEERS, PeerKind, is_ours, unknown_settings
from benchmarks.setup import Setup
from benchmarks.standing import worker_options
from executor.settings import Scheduling

VARIANTS = [name for name in PEERS if is_ours(name)]


def setup_of(folder: Path, **more: Any) -> Setup:
    model = BenchModel(name="m", folder=folder, settings={"num_speculative_tokens": 0})
    return Setup(
        model=model, gguf=None, folder=folder, raw=folder, threads=2, repeats=1, lock=None, **more
    )


def test_what_a_variant_asks_for_is_a_setting() -> None:
    made_up = PeerKind(worker="ours.py", options={"settings": {"dtype": "float32", "magic": 1}})
    assert unknown_settings(made_up) == ["magic"]
    assert unknown_settings(PEERS["vllm-cpu"]) == []


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_every_variant_of_ours_has_settings_that_exist(name: str) -> None:
    options = PEERS[name].options
    assert unknown_settings(PEERS[name]) == []
    Settings.load(**options["settings"])
    assert set(options["scheduling"]) <= {field.name for field in fields(Scheduling)}


def test_a_variant_has_the_models_settings_and_its_own(tmp_path: Path) -> None:
    options = worker_options("ours-float32", setup_of(tmp_path))
    assert options["settings"] == {"num_speculative_tokens": 0, "dtype": "float32"}
    assert options["scheduling"] == {}
    plain = worker_options("ours-no-dedup", setup_of(tmp_path))
    assert plain["scheduling"] == {"deduplicate": False}


@pytest.mark.parametrize(
    ("name", "dtype", "slots"),
    [
        ("vllm-cpu", "float32", 64),
        ("vllm-cpu-own-type", "auto", 64),
        ("vllm-cpu-own-limits", "float32", None),
        ("vllm-cpu-defaults", "auto", None),
    ],
)
def test_vllm_is_measured_in_four_ways(
    tmp_path: Path, name: str, dtype: str, slots: int | None
) -> None:
    options = worker_options(name, setup_of(tmp_path))
    assert (options["dtype"], options["slots"], options["max_model_len"]) == (dtype, slots, 1024)
    assert "settings" not in options


def test_natural_answers_may_be_longer_than_any_workloads(tmp_path: Path) -> None:
    options = worker_options("vllm-cpu", setup_of(tmp_path, natural=True))
    assert options["max_model_len"] == 2048
