from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from executor.embedding.recipe import DenseLayer, EmbeddingRecipe, PoolingMode, find_recipe
from executor.errors import UnsupportedModelError
from executor.loading import Checkpoint

NEW_NAMES = "sentence_transformers.sentence_transformer.modules."


def write(folder: Path, files: dict[str, Any]) -> Checkpoint:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return Checkpoint(source=str(folder))


def modules(*kinds: str, first: str = "", prefix: str = "sentence_transformers.models.") -> Any:
    named = [("Transformer", first), *((kind, f"{i}_{kind}") for i, kind in enumerate(kinds, 1))]
    return [{"type": prefix + kind, "path": path} for kind, path in named]


@pytest.mark.parametrize(
    ("architecture", "embeds"),
    [
        ("BertModel", True),
        ("BertForMaskedLM", True),
        ("Qwen3Model", True),
        ("T5EncoderModel", True),
        ("LlamaForCausalLM", False),
        ("GPT2LMHeadModel", False),
        ("BertForSequenceClassification", False),
        ("Gemma3ForConditionalGeneration", False),
    ],
)
def test_the_architecture_tells_what_a_model_is_for(
    architecture: str, embeds: bool, tmp_path: Path
) -> None:
    found = find_recipe(write(tmp_path, {"config.json": {"architectures": [architecture]}}))
    assert found == (EmbeddingRecipe() if embeds else None)


@pytest.mark.parametrize("prefix", ["sentence_transformers.models.", NEW_NAMES])
def test_modules_are_read_in_their_order(prefix: str, tmp_path: Path) -> None:
    files = {
        "config.json": {"architectures": ["LlamaForCausalLM"], "matryoshka_dimensions": [64, 32]},
        "modules.json": modules("Pooling", "Dense", "Dropout", "Normalize", prefix=prefix),
        "1_Pooling/config.json": {"pooling_mode": ["cls", "mean"], "include_prompt": False},
        "2_Dense/config.json": {"activation_function": "torch.nn.modules.linear.Identity"},
        "sentence_bert_config.json": {"max_seq_length": 77, "do_lower_case": True},
        "config_sentence_transformers.json": {"prompts": {"query": "query: ", "document": ""}},
    }
    assert find_recipe(write(tmp_path, files)) == EmbeddingRecipe(
        max_tokens=77,
        lowercases=True,
        modes=(PoolingMode.CLS, PoolingMode.MEAN),
        pools_prompt=False,
        dense=(DenseLayer(path="2_Dense", activation="Identity"),),
        normalizes=True,
        prompts={"query": "query: "},
        matryoshka=(32, 64),
    )


def test_the_older_words_for_pooling_are_understood(tmp_path: Path) -> None:
    files = {
        "0_Transformer/config.json": {"is_matryoshka": True},
        "modules.json": modules("Pooling", first="0_Transformer"),
        "1_Pooling/config.json": {
            "pooling_mode_mean_tokens": False,
            "pooling_mode_lasttoken": True,
            "pooling_mode_cls_token": True,
        },
    }
    found = find_recipe(write(tmp_path, files))
    assert found is not None
    assert found.modes == (PoolingMode.CLS, PoolingMode.LAST)
    assert found.transformer_path == "0_Transformer"
    assert found.matryoshka == ()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"modules.json": modules("CNN")}, "begin with a Transformer and a Pooling"),
        ({"modules.json": modules("Pooling", "LSTM")}, "a module LSTM behind their pooling"),
        ({"modules.json": modules("Pooling", "Normalize", "Dense")}, "a module Dense behind"),
        ({"modules.json": "[{"}, "modules.json of .* is not JSON"),
        ({"modules.json": {"type": "x"}}, "cannot be understood"),
        (
            {
                "modules.json": modules("Pooling", "Dense"),
                "2_Dense/config.json": {"activation_function": "my.module.Function"},
            },
            "The linear layer in 2_Dense does more",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    files: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModelError, match=why):
        find_recipe(write(tmp_path, files))
