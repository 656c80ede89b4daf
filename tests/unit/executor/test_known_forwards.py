"""Fast forms only for forwards whose source is known, whatever a proof on a few inputs says."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.llama import modeling_llama
from transformers.models.phi3.modeling_phi3 import Phi3DecoderLayer

from executor import hook, known_forwards
from executor.compiled import team
from executor.direct import direct_layers
from executor.fusing import GatedMlp, fuse_modules
from executor.known_forwards import ATTENTIONS, CENTRED_NORMS, GATED_MLPS, LAYERS, NORMS, ROTARIES
from executor.merging import optimize_linears
from executor.norm import FusedRmsNorm
from executor.probing import LayerProbe, probe_layers, run_probe
from executor.source_digest import class_digest, digest, function_digest
from tests.support.tiny_models import tiny_config, tiny_model

needs_team = pytest.mark.skipif(team.openmp() is None, reason="no GNU OpenMP in this torch")

MODULES = {
    "DeepseekV3": "deepseek_v3", "Ernie4_5": "ernie4_5", "GptOss": "gpt_oss", "Glm4Moe": "glm4_moe",
    "GraniteMoe": "granitemoe", "HunYuanDenseV1": "hunyuan_v1_dense", "Qwen2Moe": "qwen2_moe",
    "Qwen3Moe": "qwen3_moe", "SeedOss": "seed_oss", "BitNet": "bitnet", "MiniCPM3": "minicpm3",
    "VaultGemma": "vaultgemma", "StableLm": "stablelm",
}  # fmt: skip
"""Of classes whose family is not their name in lower case."""


def find(name: str, suffix: str) -> Any:
    stem = name.removesuffix(suffix)
    family = MODULES.get(stem, stem.lower())
    return getattr(importlib.import_module(f"transformers.models.{family}.modeling_{family}"), name)


ENTRIES = [
    (name, suffix, value)
    for table, suffix in (
        (NORMS, "RMSNorm"), (CENTRED_NORMS, "RMSNorm"), (GATED_MLPS, "MLP"),
        (ATTENTIONS, "Attention"), (LAYERS, "DecoderLayer"),
    )
    for value, names in table.items()
    for name in names
]  # fmt: skip


@pytest.mark.parametrize(("name", "suffix", "expected"), ENTRIES, ids=[e[0] for e in ENTRIES])
def test_class_of_the_installed_transformers_is_the_one_that_was_read(
    name: str, suffix: str, expected: str
) -> None:
    assert class_digest(find(name, suffix)) == expected


@pytest.mark.parametrize(
    ("family", "expected"), [(name, value) for value, names in ROTARIES.items() for name in names]
)
def test_rotary_of_the_installed_transformers_is_the_one_that_was_read(
    family: str, expected: str
) -> None:
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    assert function_digest(module.apply_rotary_pos_emb) == expected


@pytest.fixture
def edited(tmp_path: Path) -> Iterator[Any]:
    """Makes the module of Llama with parts of its source replaced."""
    names: list[str] = []

    def edit(**changes: str) -> ModuleType:
        source = inspect.getsource(modeling_llama).replace("from ...", "from transformers.")
        source = source.replace(
            "from .configuration", "from transformers.models.llama.configuration"
        )
        for name, change in changes.items():
            old, new = change.split(" => ")
            assert old in source, name
            source = source.replace(old, new)
        name = f"edited_llama_{len(names)}"
        file = tmp_path / f"{name}.py"
        file.write_text(source)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield edit
    for name in names:
        del sys.modules[name]


def fast_parts(module: ModuleType) -> tuple[int, int, int]:
    """How many layers go direct, and norms and MLPs are fused, of a tiny model of the module."""
    hook.register()
    config = tiny_config("llama", intermediate_size=64)
    torch.manual_seed(0)
    model = module.LlamaForCausalLM._from_config(config, attn_implementation=hook.NAME).eval()
    model.requires_grad_(requires_grad=False)
    probe_layers(model, config)

    def run() -> None:
        run_probe(model, LayerProbe())

    fuse_modules(model, run)
    optimize_linears(model, run)
    direct = direct_layers(model, lambda context: run_probe(model, context))
    kinds = [type(part) for part in model.modules()]
    return direct, kinds.count(FusedRmsNorm), kinds.count(GatedMlp)


@needs_team
def test_source_with_other_comments_and_annotations_is_known(edited: Any) -> None:
    module = edited(
        comment="        cos, sin = position_embeddings\n => "
        "        # A remark.\n        cos, sin = position_embeddings\n",
        annotation="down_proj = self.down_proj( => down_proj: torch.Tensor = self.down_proj(",
        docstring="    def forward(self, x):\n => "
        '    def forward(self, x: torch.Tensor):\n        """What it does."""\n',
    )
    assert fast_parts(module) == (3, 7, 3)


@needs_team
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # Each is the identity for small inputs, or near position 0.
        (
            "        cos, sin = position_embeddings\n => "
            "        cos, sin = position_embeddings\n"
            "        query_states = query_states.clamp(max=1e6)\n",
            (0, 7, 3),
        ),
        (
            "        residual = hidden_states\n => "
            "        residual = hidden_states.clamp(max=1e6)\n",
            (0, 7, 3),
        ),
        ("self.act_fn(self.gate_proj(x)) => self.act_fn(self.gate_proj(x).clamp(max=1e6))",
         (0, 7, 0)),
        ("hidden_states.pow(2) => hidden_states.clamp(max=1e6).pow(2)", (0, 0, 3)),
        ("torch.cat((-x2, x1), dim=-1) => torch.cat((-x2, x1.clamp(max=1e6)), dim=-1)", (0, 7, 3)),
    ],
    ids=["attention", "layer", "mlp", "norm", "rotary"],
)  # fmt: skip
def test_edited_source_is_left_alone(
    edited: Any, change: str, expected: tuple[int, int, int]
) -> None:
    assert fast_parts(edited(change=change)) == expected


def test_known_name_with_another_source_is_warned_of(
    edited: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = edited(change="hidden_states.pow(2) => hidden_states.clamp(max=1e6).pow(2)")
    known_forwards._warn.cache_clear()
    norms = [module.LlamaRMSNorm(8), module.LlamaRMSNorm(8)]
    with caplog.at_level(logging.WARNING):
        assert not any(known_forwards.is_known(norm, NORMS) for norm in norms)
    [message] = caplog.messages
    assert message.startswith("LlamaRMSNorm of transformers ")


def test_forward_that_was_put_into_a_module_is_not_its_class_s() -> None:
    norm = modeling_llama.LlamaRMSNorm(8)
    assert digest(norm) in NORMS
    norm.forward = lambda rows: rows
    assert digest(norm) is None


def test_forward_in_a_wrapper_of_anybody_s_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Phi3DecoderLayer.forward

    @functools.wraps(own)
    def wrapper(*given: Any, **by_name: Any) -> Any:
        return 2 * own(*given, **by_name)

    assert function_digest(own, Phi3DecoderLayer) in LAYERS
    assert function_digest(wrapper, Phi3DecoderLayer) is None


class Listened(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = modeling_llama.LlamaRMSNorm(32)

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.norm(rows)
        return answer


def test_module_with_a_hook_is_left_alone() -> None:
    module = Listened()
    assert known_forwards.is_known(module.norm, NORMS)
    module.norm.register_forward_hook(lambda *_: None)
    assert not known_forwards.is_known(module.norm, NORMS)


@needs_team
@pytest.mark.parametrize(
    ("family", "overrides", "direct"),
    [
        ("llama", {}, 3), ("mistral", {}, 3), ("ministral", {}, 3), ("qwen2", {}, 3),
        ("qwen3", {}, 3), ("seed_oss", {}, 3), ("cwm", {}, 3),
        ("phi3", {}, 3), ("smollm3", {"no_rope_layers": [1, 0, 1]}, 2),
        ("ministral3", {}, 0), ("granite", {"residual_multiplier": 0.2}, 0), ("olmo2", {}, 0),
    ],
)  # fmt: skip
def test_families_of_the_usual_shape_go_direct(
    family: str, overrides: dict[str, Any], direct: int
) -> None:
    hook.register()
    config = tiny_config(family, intermediate_size=64, **overrides)
    model = tiny_model(config, attention=hook.NAME)
    probe_layers(model, config)

    def run() -> None:
        run_probe(model, LayerProbe())

    fuse_modules(model, run)
    optimize_linears(model, run)
    assert direct_layers(model, lambda context: run_probe(model, context)) == direct
