"""What lines leave out is as the model's generation config or the settings have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchjobs.errors import ModelError, UsageError
from batchjobs.models import Model
from batchjobs.settings import Settings
from batchjobs.worker.fingerprints import fingerprint
from batchjobs.worker.model_sampling import model_sampling
from executor.generation import own_sampling
from executor.loading import Checkpoint

OWN = {"temperature": 0.6, "top_k": 20}
MODEL = Model(name="m", source="here", revision="1")


def settings(**values: Any) -> Settings:
    return Settings(**values)


def test_an_override_goes_before_the_models_own_and_the_catalogue_before_both() -> None:
    assert model_sampling(settings(), OWN, {}) == OWN
    override = settings(override_generation_config={"top_k": 5, "min_p": 0.1})
    assert model_sampling(override, OWN, {"min_p": 0.2}) == {
        "temperature": 0.6,
        "top_k": 5,
        "min_p": 0.2,
    }


def test_the_models_own_can_be_left_out() -> None:
    assert model_sampling(settings(generation_config="vllm"), OWN, {}) == {}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"temperature": 3}, "decimal above maximum value"),
        ({"top_k": 1.5}, "expected an integer"),
        ({"seed": 1}, "Supported values are: 'temperature', 'top_p'"),
    ],
)
def test_an_override_that_no_line_could_have_is_refused(
    override: dict[str, float], message: str
) -> None:
    with pytest.raises(ModelError, match="BATCHJOBS_OVERRIDE_GENERATION_CONFIG") as wrong:
        model_sampling(settings(override_generation_config=override), {}, {})
    assert message in str(wrong.value)


def test_a_models_own_that_no_line_could_have_is_refused() -> None:
    with pytest.raises(ModelError, match="The model's generation config cannot be used"):
        model_sampling(settings(), {"top_p": 1.5}, {})


def test_the_override_comes_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHJOBS_OVERRIDE_GENERATION_CONFIG", '{"top_k": 5}')
    assert model_sampling(Settings.load(), {}, {}) == {"top_k": 5}
    monkeypatch.setenv("BATCHJOBS_OVERRIDE_GENERATION_CONFIG", '{"top_k": ')
    with pytest.raises(UsageError, match="BATCHJOBS_OVERRIDE_GENERATION_CONFIG is not usable"):
        Settings.load()


def test_answers_with_other_defaults_have_another_fingerprint() -> None:
    kinds = [
        settings(),
        settings(generation_config="vllm"),
        settings(override_generation_config={"top_k": 5}),
        settings(override_generation_config={"top_k": 6}),
    ]
    assert len({fingerprint(MODEL, kind, {}) for kind in kinds}) == len(kinds)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "do_sample": True, "eos_token_id": 2},
            {"temperature": 0.7, "top_p": 0.8, "top_k": 20},
        ),
        ({"repetition_penalty": 1.05, "max_new_tokens": 5}, {"repetition_penalty": 1.05}),
        ({"bos_token_id": 1}, {}),
    ],
)
def test_a_checkpoint_names_how_it_is_sampled(
    tmp_path: Path, content: dict[str, Any], expected: dict[str, float]
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(content))
    assert own_sampling(Checkpoint(source=str(tmp_path))) == expected


def test_a_checkpoint_without_a_generation_config_names_nothing(tmp_path: Path) -> None:
    assert own_sampling(Checkpoint(source=str(tmp_path))) == {}
