"""Packed, chunked, paged computation against the models' own eager one, family by family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from executor import hook
from executor.attention.base import AttentionBackend
from executor.build import BACKENDS, build_engine
from executor.errors import UnsupportedModelError
from executor.loading import Checkpoint, check_family, max_positions
from executor.model import PackedModel, PagedCache
from executor.probing import probe_layers
from executor.request import Request
from executor.scheduler import Scheduler
from executor.sequence import Group, Sequence
from executor.settings import EngineSettings, Limits
from tests.support.tiny_models import FAMILIES, LATENT, save_tiny, tiny_config, tiny_model

PROMPTS = [
    torch.randint(3, 128, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    for length in (1, 7, 30, 13)
]
NEW_TOKENS = 6


@pytest.fixture(autouse=True)
def _registered() -> None:
    hook.register()


def eager_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Of every position [T, V]."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def packed_answers(
    model: Any, backend: AttentionBackend, block_size: int
) -> list[tuple[torch.Tensor, list[int]]]:
    """Per prompt, the logits [NEW_TOKENS, V] of greedy choice and the tokens before the last."""
    limits = Limits(
        max_num_seqs=3,
        max_num_batched_tokens=11,
        max_model_len=40,
        num_blocks=104 // block_size,
        block_size=block_size,
    )
    layers = probe_layers(model, model.config)
    cache = PagedCache(layers, limits, dtype=torch.float32, device="cpu")
    packed = PackedModel(model, cache, backend)
    scheduler = Scheduler(limits)
    sequences = [
        Sequence(
            group=Group(Request(id=str(i), prompt_token_ids=tuple(prompt))),
            index=i,
            tokens=list(prompt),
            watcher=None,
        )
        for i, prompt in enumerate(PROMPTS)
    ]
    for sequence in sequences:
        scheduler.add(sequence)
    logits: list[list[torch.Tensor]] = [[] for _ in sequences]
    while scheduler.has_work:
        spans = scheduler.schedule()
        ready = [span.sequence for span in spans if span.catches_up]
        for sequence, row in zip(ready, packed.forward(spans), strict=True):
            logits[sequence.index].append(row)
            sequence.tokens.append(int(row.argmax()))
            if sequence.num_generated == NEW_TOKENS:
                scheduler.remove(sequence)
    return [(torch.stack(logits[s.index]), s.tokens[:-1]) for s in sequences]


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("block_size", [4, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_family_packed_equals_one_by_one(
    family: str, backend: AttentionBackend, block_size: int
) -> None:
    config = tiny_config(family)
    model = tiny_model(config, attention=hook.NAME)
    own = tiny_model(tiny_config(family), attention="eager")
    for logits, tokens in packed_answers(model, backend, block_size):
        expected = eager_logits(own, tokens)[-NEW_TOKENS:]
        torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("mamba", "layers of kind linear_attention"),
        ("rwkv", "^rwkv models cannot be packed: the state of its recurrent layers would mix"),
        ("xlstm", "^xlstm models cannot be packed: the state of its recurrent layers would mix"),
        ("bloom", "^bloom models cannot be packed: its attention does not go through"),
        ("mpt", "^mpt models cannot be packed: its attention does not go through"),
    ],
)
def test_family_without_the_attention_interface_is_refused(
    family: str, reason: str, tmp_path: Path
) -> None:
    save_tiny(tmp_path, tiny_config(family))
    with pytest.raises(UnsupportedModelError, match=reason):
        build_engine(Checkpoint(source=str(tmp_path)), EngineSettings())


@pytest.mark.parametrize("alibi", [True, False])
def test_falcon_is_refused_in_a_sentence(alibi: bool) -> None:
    with pytest.raises(UnsupportedModelError, match=r"^falcon models cannot be packed: its attent"):
        check_family(AutoConfig.for_model("falcon", alibi=alibi))


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        # Chosen from the whole context by an index, which packed attention does not do.
        ("deepseek_v32", "DeepseekV32Attention gives its attention indices, which"),
        ("doge", "DogeAttention attends without a mask of transformers' mask functions"),
        ("diffllama", "attention layer 0 runs twice in one pass"),
    ],
)
def test_family_that_attends_otherwise_is_refused_in_a_sentence(family: str, reason: str) -> None:
    model = tiny_model(tiny_config(family, **LATENT), attention=hook.NAME)
    with pytest.raises(UnsupportedModelError, match=rf"^\w+ cannot be packed: {reason}"):
        probe_layers(model, model.config)


def test_family_whose_own_code_fails_is_refused_in_a_sentence(tmp_path: Path) -> None:
    save_tiny(tmp_path, tiny_config("gptj", rotary_dim=64))
    with pytest.raises(UnsupportedModelError, match=r"^GPTJForCausalLM cannot be packed: The size"):
        build_engine(Checkpoint(source=str(tmp_path)), EngineSettings())


def test_hybrid_family_is_refused_by_its_layer_types() -> None:
    config = tiny_config("qwen3_next", **FAMILIES["qwen3_moe"])
    with pytest.raises(UnsupportedModelError, match="layers of kind linear_attention would mix"):
        check_family(config)


def test_family_that_counts_packed_places_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="llama4_text models cannot be packed"):
        check_family(tiny_config("llama4_text"))


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ({"rope_type": "default", "rope_theta": 1e4}, 256),
        (
            {
                "rope_type": "dynamic",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            64,
        ),
        (
            {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "factor": 4.0,
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
                "original_max_position_embeddings": 32,
            },
            32,
        ),
    ],
    ids=["default", "dynamic", "longrope"],
)
def test_positions_end_where_neighbours_would_change_them(
    rope: dict[str, Any], expected: int
) -> None:
    assert max_positions(tiny_config("llama", rope_parameters=rope)) == expected
