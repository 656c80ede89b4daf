from __future__ import annotations

from datetime import UTC, datetime

from batchjobs.models import Model
from batchjobs.worker.engines import KeptEngines, LoadedModel, fingerprint
from tests.support.engines import FakeEngines


def model(name: str, *, revision: str = "1") -> Model:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    return Model(name=name, source=f"/models/{name}", revision=revision, created_at=created)


def test_same_weights_are_loaded_once() -> None:
    engines = FakeEngines()
    kept = KeptEngines(engines)
    assert kept.load(model("a")) is kept.load(model("a"))
    assert engines.loaded == ["a"]


def test_other_weights_or_a_new_revision_are_loaded() -> None:
    engines = FakeEngines()
    kept = KeptEngines(engines)
    for wanted in (model("a"), model("b"), model("b", revision="2"), model("a")):
        kept.load(wanted)
    assert engines.loaded == ["a", "b", "b", "a"]


def test_quantized_weights_are_named_in_the_fingerprint_and_in_reports() -> None:
    full = fingerprint(model("a"), "float32")
    assert fingerprint(model("a"), "float32", "int8") == f"{full}_int8"
    loaded = FakeEngines().load(model("a"))
    assert loaded.called("a") == "a"
    quantized = LoadedModel(
        engine=loaded.engine, tokenizer=loaded.tokenizer, fingerprint="fp", quantization="int8"
    )
    assert quantized.called("a") == "a (int8)"
