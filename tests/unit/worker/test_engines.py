from __future__ import annotations

from datetime import UTC, datetime

import pytest

from batchjobs.model_defaults import ModelDefaults
from batchjobs.models import Model
from batchjobs.settings import Settings
from batchjobs.worker.engines import (
    KeptEngines,
    LoadedModel,
    engine_settings,
    reproducible_decision,
)
from batchjobs.worker.fingerprints import fingerprint
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


@pytest.mark.parametrize(
    "defaults",
    [
        ModelDefaults(max_model_len=64),
        ModelDefaults(chat_template="{{ messages }}"),
        ModelDefaults(sampling={"temperature": 0}),
    ],
)
def test_another_configuration_is_loaded_and_has_its_own_fingerprint(
    defaults: ModelDefaults,
) -> None:
    engines = FakeEngines()
    kept = KeptEngines(engines)
    plain, configured = model("a"), model("a")
    defaults.enter(configured)
    for wanted in (plain, configured, configured):
        kept.load(wanted)
    assert engines.loaded == ["a", "a"]
    assert fingerprint(plain, Settings(), {}) != fingerprint(configured, Settings(), {})


def test_quantized_weights_are_named_in_the_fingerprint_and_in_reports() -> None:
    full = fingerprint(model("a"), Settings(), {})
    assert fingerprint(model("a"), Settings(), {}, quantization="int8") == f"{full}_int8"
    loaded = FakeEngines().load(model("a"))
    assert loaded.called("a") == "a"
    quantized = LoadedModel(
        engine=loaded.engine, tokenizer=loaded.tokenizer, fingerprint="fp", quantization="int8"
    )
    assert quantized.called("a") == "a (int8)"


def test_the_reproducible_mode_reaches_the_engine_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not engine_settings(Settings()).reproducible
    assert list(reproducible_decision(Settings())) == []
    monkeypatch.setenv("BATCHJOBS_REPRODUCIBLE", "1")
    settings = Settings.load()
    assert engine_settings(settings).reproducible
    assert [name for name, _ in reproducible_decision(settings)] == ["reproducible"]
