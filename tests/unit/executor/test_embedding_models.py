"""Vectors of packed steps against the model's own, one text at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from transformers import AutoModel

from executor.embedding.build import ReadyEmbedder, build_embedder
from executor.embedding.recipe import find_recipe
from executor.errors import EngineError, UnsupportedModelError
from executor.loading import Checkpoint
from executor.request import PoolingParams, Request
from executor.settings import EngineSettings
from tests.support.tiny_embedders import BY_LENGTH, FAMILIES, own_hidden, save_tiny_embedder

MEAN = {"pooling_mode_mean_tokens": True}
_LENGTHS = [1, 7, 7, 30, 2, 19, 7, 12, 40, 19]
TEXTS = [
    tuple(int(t) for t in np.random.default_rng(i).integers(3, 128, length))
    for i, length in enumerate(_LENGTHS)
]


def build(folder: Path, **settings: Any) -> ReadyEmbedder:
    checkpoint = Checkpoint(source=str(folder))
    recipe = find_recipe(checkpoint)
    assert recipe is not None
    return build_embedder(checkpoint, recipe, EngineSettings(**settings))


def embed(
    ready: ReadyEmbedder, texts: list[tuple[int, ...]], pooling: PoolingParams | None = None
) -> list[NDArray[np.float32]]:
    """The vectors in the order of the texts."""
    requests = [
        Request(id=str(i), prompt_token_ids=text, pooling=pooling or PoolingParams())
        for i, text in enumerate(texts)
    ]
    vectors = {done.request_id: done.embedding for done in ready.engine.run(requests)}
    return [np.frombuffer(vectors[str(i)] or b"", "<f4") for i in range(len(texts))]


def own(folder: Path, text: tuple[int, ...]) -> NDArray[np.float32]:
    """Token vectors [T, D]."""
    model = AutoModel.from_pretrained(folder)
    hidden: NDArray[np.float32] = own_hidden(model, text).numpy()
    return hidden


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_its_own_vectors_in_any_company(family: str, tmp_path: Path) -> None:
    save_tiny_embedder(tmp_path, family, pooling=MEAN, normalize=False)
    ready = build(tmp_path, max_num_batched_tokens=50)
    assert ready.is_packed == (family not in BY_LENGTH)
    model = AutoModel.from_pretrained(tmp_path)
    for text, vector in zip(TEXTS, embed(ready, TEXTS), strict=True):
        expected = own_hidden(model, text).mean(dim=0).numpy()
        np.testing.assert_allclose(vector, expected, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize(
    ("pooling", "pooled"),
    [
        ({"pooling_mode_cls_token": True}, lambda hidden: hidden[0]),
        ({"pooling_mode": "lasttoken"}, lambda hidden: hidden[-1]),
        ({"pooling_mode_max_tokens": True}, lambda hidden: hidden.max(axis=0)),
        (
            {"pooling_mode_mean_sqrt_len_tokens": True},
            lambda hidden: hidden.sum(axis=0) / len(hidden) ** 0.5,
        ),
        (
            {"pooling_mode_weightedmean_tokens": True},
            lambda hidden: np.average(hidden, axis=0, weights=range(1, len(hidden) + 1)),
        ),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            lambda hidden: np.concatenate([hidden[0], hidden.mean(axis=0)]),
        ),
    ],
)
def test_token_vectors_are_pooled_as_the_model_says(
    pooling: dict[str, Any], pooled: Any, tmp_path: Path
) -> None:
    save_tiny_embedder(tmp_path, pooling=pooling, normalize=False)
    ready = build(tmp_path)
    vectors = embed(ready, TEXTS)
    assert {len(vector) for vector in vectors} == {ready.dimensions}
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, pooled(own(tmp_path, text)), atol=2e-5, rtol=2e-4)


def test_a_linear_layer_behind_the_pooling_is_computed(tmp_path: Path) -> None:
    save_tiny_embedder(tmp_path, pooling=MEAN, dense=5)
    [vector] = embed(build(tmp_path), TEXTS[3:4])
    weights = load_file(tmp_path / "2_Dense" / "model.safetensors")
    mean = own(tmp_path, TEXTS[3]).mean(axis=0)
    made = np.tanh(weights["linear.weight"].numpy() @ mean + weights["linear.bias"].numpy())
    np.testing.assert_allclose(vector, made / np.linalg.norm(made), atol=1e-5)


def test_vectors_are_cut_before_they_are_normalised(tmp_path: Path) -> None:
    save_tiny_embedder(tmp_path, pooling=MEAN)
    [vector] = embed(build(tmp_path), TEXTS[3:4], PoolingParams(dimensions=4))
    mean = own(tmp_path, TEXTS[3]).mean(axis=0)[:4]
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_a_request_says_whether_its_vector_is_normalised(tmp_path: Path) -> None:
    save_tiny_embedder(tmp_path, pooling=MEAN)
    ready = build(tmp_path)
    plain, made = (
        embed(ready, TEXTS[3:4], PoolingParams(use_activation=asked))[0] for asked in (False, True)
    )
    np.testing.assert_allclose(plain, own(tmp_path, TEXTS[3]).mean(axis=0), atol=2e-5)
    assert np.linalg.norm(made) == pytest.approx(1)


def test_an_encoder_that_says_nothing_is_pooled_by_the_mean(tmp_path: Path) -> None:
    save_tiny_embedder(tmp_path)
    [vector] = embed(build(tmp_path), TEXTS[3:4])
    np.testing.assert_allclose(vector, own(tmp_path, TEXTS[3]).mean(axis=0), atol=2e-5)


@pytest.mark.parametrize(
    ("said", "longest"),
    [({"max_seq_length": 20}, 20), ({"max_seq_length": 1000}, 256), ({}, 256)],
)
def test_the_longest_text_is_what_model_and_settings_allow(
    said: dict[str, Any], longest: int, tmp_path: Path
) -> None:
    save_tiny_embedder(tmp_path, "roberta", pooling=MEAN, **said)
    assert build(tmp_path).engine.limits.max_model_len == longest
    assert build(tmp_path, max_model_len=9).engine.limits.max_model_len == 9
    full = [tuple([7] * longest)]
    assert len(embed(build(tmp_path), full)[0]) == 32


def test_positions_that_are_not_packed_end_where_the_model_ends(tmp_path: Path) -> None:
    save_tiny_embedder(tmp_path, "mpnet", pooling=MEAN)  # 256 positions, from the third on
    ready = build(tmp_path)
    assert ready.engine.limits.max_model_len == 254
    assert len(embed(ready, [(7,) * 254])[0]) == 32


def test_what_no_encoder_computes_right_is_refused(tmp_path: Path) -> None:
    save_tiny_embedder(tmp_path, pooling={"pooling_mode": "attention"})
    with pytest.raises(UnsupportedModelError, match="cannot be understood"):
        find_recipe(Checkpoint(source=str(tmp_path)))


def test_missing_weights_are_said(tmp_path: Path) -> None:
    save_tiny_embedder(tmp_path, pooling=MEAN, dense=5)
    (tmp_path / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(EngineError, match=r"there is no 2_Dense/model\.safetensors"):
        build(tmp_path)


def test_numbers_that_are_not_finite_are_an_error_of_their_text_only(tmp_path: Path) -> None:
    # So many tokens that the check at load, which takes some at random, does not meet it.
    save_tiny_embedder(tmp_path, pooling=MEAN, vocab_size=20_000)
    model = AutoModel.from_pretrained(tmp_path)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[5] = torch.nan
    model.save_pretrained(tmp_path)
    ready = build(tmp_path)
    requests = [
        Request(id=name, prompt_token_ids=tokens, pooling=PoolingParams())
        for name, tokens in (("good", (4, 4)), ("bad", (4, 5)))
    ]
    done = {completion.request_id: completion for completion in ready.engine.run(requests)}
    assert done["good"].embedding is not None
    assert done["bad"].error == "the model's vector for it is not finite"
