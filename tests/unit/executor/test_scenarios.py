"""Small packed runs against the model's own, family by family, and with parts broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from executor import hook
from executor.attention.base import AttentionBackend, PackedBatch
from executor.attention.cascade import SharedPrefix, shared_prefixes
from executor.build import BACKENDS, FastPaths, _optimize, build_engine
from executor.errors import UnsupportedModelError
from executor.loading import Checkpoint
from executor.model import PagedCache
from executor.number_types import cpu_types
from executor.probing import probe_layers
from executor.request import Request, SamplingParams
from executor.scenarios import LIMITS, Scenario, own_logits, scenarios
from executor.settings import EngineSettings
from tests.support.tiny_models import FAMILIES, LATENT, save_tiny, tiny_config, tiny_model

STRETCHED = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "llama_4_scaling_beta": 2.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
}
SMALL = {"hidden_size": 32, "head_dim": 8}
"""For families with a number of heads a key that no other has, whose kernel takes long to make."""
MORE: dict[str, dict[str, Any]] = {
    "ministral3": STRETCHED,
    "phimoe": {"sliding_window": 50},
    "smollm3": {"no_rope_layers": [1, 0, 1]},
    "exaone4": {"sliding_window": 7},
    "cohere2": {"sliding_window": 7},
    "olmo3": {"sliding_window": 7},
    "mixtral": {"sliding_window": 7},
    "starcoder2": {"sliding_window": 7},
    "granitemoe": {"attention_multiplier": 0.2},
    "deepseek_v2": SMALL | LATENT,
    "deepseek_v3": SMALL | LATENT | {"q_lora_rank": None},
    "minicpm3": SMALL | LATENT,
    "codegen": SMALL | {"rotary_dim": 4},
    "gptj": SMALL | {"rotary_dim": 4},
    "gemma4_text": {"vocab_size_per_layer_input": 128},
}
MORE |= dict.fromkeys(("gpt2", "gpt_bigcode", "gpt_neox", "opt", "persimmon"), SMALL)
ALSO = (
    "apertus", "arcee", "bitnet", "cohere", "ernie4_5", "gemma", "glm", "glm4", "glm4_moe",
    "helium", "hunyuan_v1_dense", "lfm2", "ministral", "nemotron", "olmo", "olmoe", "phi",
    "seed_oss", "stablelm",
)  # fmt: skip
SIZES = {"hidden_size": 128, "head_dim": 32, "intermediate_size": 64}
"""Heads of which the cascade has products."""


def loaded(family: str, **overrides: Any) -> tuple[Any, PagedCache]:
    """A probed tiny model, and an empty cache for its runs."""
    hook.register()
    model = tiny_model(tiny_config(family, **{**SIZES, **overrides}), attention=hook.NAME)
    model.requires_grad_(requires_grad=False)
    shapes = probe_layers(model, model.config)
    return model, PagedCache(shapes, LIMITS, dtype=torch.float32, device="cpu")


def run(model: Any, cache: PagedCache, backend: AttentionBackend) -> list[Scenario]:
    return scenarios(model, cache, backend, 128)


def errors(model: Any, runs: list[Scenario]) -> dict[str, float]:
    """The largest difference of each from the model's own logits, in their spread."""
    pairs = zip(runs, own_logits(model, runs), strict=True)
    return {r.name: float((r.logits - own).abs().max() / own.std()) for r, own in pairs}


def make_fast(model: Any, **but: bool) -> None:
    device = SimpleNamespace(types=cpu_types(None, torch.float32))
    _optimize(SimpleNamespace(module=model, device=device), FastPaths(**but))  # type: ignore[arg-type]


@pytest.mark.parametrize("family", [*FAMILIES, *MORE, *ALSO])
def test_family_made_fast_is_itself_in_all_scenarios(family: str) -> None:
    model, cache = loaded(family, **MORE.get(family, {}))
    make_fast(model)
    found = errors(model, run(model, cache, BACKENDS["cpu"]))
    assert len(found) >= 10
    assert all(error < 1e-4 for error in found.values()), found


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "phimoe", "ministral3"])
def test_other_backends_are_right_too(family: str, backend: str) -> None:
    model, cache = loaded(family, **MORE.get(family, {}))
    found = errors(model, run(model, cache, BACKENDS[backend]))
    assert all(error < 1e-4 for error in found.values()), found


def test_rope_is_seen_at_its_original_length_and_at_its_end() -> None:
    model, cache = loaded("ministral3", **STRETCHED)
    names = [r.name for r in run(model, cache, BACKENDS["cpu"])]
    assert names[:3] == ["positions from 0", "positions from 58", "positions from 244"]
    first = next(r for r in run(model, cache, BACKENDS["cpu"]) if r.first == 58)
    assert list(first.positions) == list(range(58, 70))


def test_model_of_few_positions_has_fewer_scenarios() -> None:
    model, cache = loaded("llama", max_position_embeddings=16)
    assert [r.name for r in run(model, cache, BACKENDS["cpu"])] == [
        "positions from 0",
        "positions from 4",
    ]


def test_scenarios_cost_few_tokens() -> None:
    model, cache = loaded("llama")
    assert sum(len(r.tokens) for r in run(model, cache, BACKENDS["cpu"])) < 600


def wrong(names: dict[str, float]) -> set[str]:
    """What is not itself, by the first words of its name."""
    return {
        name.split(",")[0].split(" from")[0] for name, error in names.items() if not error < 1e-2
    }


def test_late_positions_show_a_scale_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = loaded("ministral3", **STRETCHED)
    with monkeypatch.context() as broken:
        broken.setattr(
            "transformers.models.ministral3.modeling_ministral3.get_llama_4_attn_scale",
            lambda positions, *_: torch.ones(1),
        )
        runs = run(model, cache, BACKENDS["cpu"])
    found = errors(model, runs)
    assert found["positions from 0"] < 1e-4
    assert min(found["positions from 58"], found["positions from 244"]) > 1e-2


def without_window(query: Any, layer: Any, batch: Any, options: Any) -> Tensor:
    blind = type(options)(scale=options.scale, softcap=options.softcap, sinks=options.sinks)
    return BACKENDS["reference"](query, layer, batch, blind)


def window_less_one(query: Any, layer: Any, batch: Any, options: Any) -> Tensor:
    narrow = type(options)(scale=options.scale, window=options.window - 1)
    return BACKENDS["reference"](query, layer, batch, narrow)


@pytest.mark.parametrize("backend", [without_window, window_less_one])
def test_window_that_is_not_the_model_s_shows(backend: AttentionBackend) -> None:
    model, cache = loaded("phimoe", sliding_window=50)
    assert "edge of the window of 50" in wrong(errors(model, run(model, cache, backend)))


def test_prefix_that_is_taken_for_longer_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = loaded("llama")
    groups: list[SharedPrefix] = []

    def longer(batch: PackedBatch, block_size: int) -> list[SharedPrefix]:
        found = shared_prefixes(batch, block_size)
        groups.extend(found)
        return [replace(group, blocks=(*group.blocks, group.blocks[-1])) for group in found]

    monkeypatch.setattr("executor.attention.cpu.shared_prefixes", longer)
    assert wrong(errors(model, run(model, cache, BACKENDS["cpu"]))) == {"shared prefix"}
    assert {len(group.sequences) for group in groups} == {4}


def test_block_that_is_not_copied_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = loaded("llama")
    monkeypatch.setattr(PagedCache, "copy_blocks", lambda self, copies: None)
    found = errors(model, run(model, cache, BACKENDS["cpu"]))
    assert {name for name, error in found.items() if not error < 1e-2} == {"copied block, copy"}


class Remembering:
    """Attends over the blocks that a sequence of this length had first."""

    def __init__(self) -> None:
        self._tables: dict[int, Tensor] = {}

    def __call__(self, query: Any, layer: Any, batch: Any, options: Any) -> Tensor:
        for s, context in enumerate(batch.context_lens):
            if batch.query_lens[s] == 1:
                table = self._tables.setdefault(context, batch.block_tables[s].clone())
                batch.block_tables[s, : len(table)] = table[: batch.block_tables.shape[1]]
        return BACKENDS["reference"](query, layer, batch, options)


def test_stale_blocks_show() -> None:
    model, cache = loaded("llama")
    found = errors(model, run(model, cache, Remembering()))
    assert any(not error < 1e-2 for error in found.values())


def draft_without_order(query: Any, layer: Any, batch: Any, options: Any) -> Tensor:
    """Lets every row of a short span see all of it."""
    output = BACKENDS["reference"](query, layer, batch, options)
    for start, count in zip(batch.query_starts, batch.query_lens, strict=True):
        if 1 < count <= 4:
            output[start : start + count] = output[start + count - 1].clone()
    return output


def test_draft_rows_that_see_what_follows_show() -> None:
    model, cache = loaded("llama")
    assert "positions" in wrong(errors(model, run(model, cache, draft_without_order)))


def test_error_of_the_model_s_own_run_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = loaded("llama")
    runs = run(model, cache, BACKENDS["cpu"])

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("The size of tensor a (32)\nmust match")

    monkeypatch.setattr("transformers.models.llama.modeling_llama.eager_attention_forward", broken)
    sentence = (
        r"^LlamaForCausalLM does not run by itself in this version of transformers: "
        r"The size of tensor a \(32\) must match$"
    )
    with pytest.raises(UnsupportedModelError, match=sentence):
        own_logits(model, runs)
    assert model.config._attn_implementation == hook.NAME


@pytest.mark.parametrize("family", ["ministral3", "phimoe", "stablelm", "nemotron"])
def test_long_prompt_is_answered_as_by_transformers(family: str, tmp_path: Path) -> None:
    config = tiny_config(family, **SIZES, **MORE.get(family, {}))
    save_tiny(tmp_path, config)
    own = tiny_model(config, attention="eager")
    prompt = torch.randint(3, 128, (120,), generator=torch.Generator().manual_seed(0)).tolist()
    settings = EngineSettings(device="cpu", dtype="float32", max_model_len=160)
    ready = build_engine(Checkpoint(source=str(tmp_path)), settings)
    sampling = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=0)
    request = Request(id="", prompt_token_ids=tuple(prompt), sampling=sampling)
    [completion] = ready.engine.run([request])
    choice = completion.choices[0]
    tokens = [*prompt, *choice.token_ids]
    with torch.inference_mode():
        logits = own(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, 119:-1]
    assert logits.argmax(dim=-1).tolist() == list(choice.token_ids)
    expected = logits.log_softmax(dim=-1).amax(dim=-1)
    ours = torch.tensor([token.logprob for token in choice.logprobs or ()])
    torch.testing.assert_close(ours, expected, atol=2e-4, rtol=2e-4)
