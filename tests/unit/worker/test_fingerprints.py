"""`system_fingerprint` changes with each part of what computes, and with nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
import torch

from batchjobs.models import Model
from batchjobs.settings import Settings
from batchjobs.worker import fingerprints
from batchjobs.worker.fingerprints import fingerprint
from executor import identity
from executor.device import DevicePlan
from executor.identity import engine_parts
from executor.number_types import cpu_types, cuda_types

PLAN = DevicePlan(
    device=torch.device("cpu"),
    device_reason="",
    types=cpu_types(None, torch.float32),
    num_threads=2,
    threads_reason="",
)
PARTS = engine_parts(PLAN, "cpu")
MODEL = Model(name="a", source="/a", revision="1", created_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_the_parts_of_an_engine_are_named() -> None:
    assert set(PARTS) == {
        "device", "attention", "activations", "weights", "products", "kv_cache", "vector_width",
        "torch", "reproducible",
    }  # fmt: skip
    assert PARTS["torch"] == torch.__version__


@pytest.mark.parametrize("part", PARTS)
def test_each_part_changes_the_fingerprint(part: str) -> None:
    changed = {**PARTS, part: f"another {part}"}
    assert fingerprint(MODEL, Settings(), changed) != fingerprint(MODEL, Settings(), PARTS)


def test_a_part_that_is_added_changes_it_and_the_order_of_parts_does_not() -> None:
    plain = fingerprint(MODEL, Settings(), PARTS)
    assert fingerprint(MODEL, Settings(), {**PARTS, "threads": "2"}) != plain
    assert fingerprint(MODEL, Settings(), dict(reversed(PARTS.items()))) == plain


def test_the_version_and_the_revision_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fingerprint(MODEL, Settings(), PARTS)
    other = Model(name="a", source="/a", revision="2", created_at=MODEL.created_at)
    assert fingerprint(other, Settings(), PARTS) != plain
    monkeypatch.setattr(fingerprints, "__version__", "99")
    assert fingerprint(MODEL, Settings(), PARTS) != plain


def test_what_the_engine_runs_on_is_in_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_parts(PLAN, "sdpa")["attention"] == "sdpa"
    assert engine_parts(PLAN, "cpu", weights="int8")["weights"] == "int8"
    assert engine_parts(PLAN, "cpu", reproducible=True) != PARTS
    half = engine_parts(replace(PLAN, types=cuda_types(None)), "cpu")
    kinds = ("activations", "weights", "products", "kv_cache")
    assert {half[kind] for kind in kinds} == {"bfloat16"}
    monkeypatch.setattr(identity, "vector_width", lambda: 8)
    narrow = engine_parts(PLAN, "cpu")
    monkeypatch.setattr(identity, "vector_width", lambda: 16)
    assert narrow != engine_parts(PLAN, "cpu")


def test_threads_do_not_change_it() -> None:
    assert engine_parts(replace(PLAN, num_threads=16), "cpu") == PARTS
