"""Fused modules against those they replace, family by family and by themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.glm.modeling_glm import GlmMLP
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, apply_rotary_pos_emb
from transformers.models.phi3.modeling_phi3 import Phi3MLP

from executor import hook
from executor.compiled import team
from executor.fusing import GatedMlp, fuse_modules
from executor.linear import GatedLinear
from executor.norm import FusedRmsNorm
from executor.probing import LayerProbe, probe_layers, run_probe
from executor.rotary import can_rotate, rotate
from tests.support.tiny_models import FAMILIES, tiny_config, tiny_model

pytestmark = pytest.mark.skipif(team.openmp() is None, reason="no OpenMP in this torch")


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def logits(model: Any, attention: str) -> Tensor:
    tokens = torch.randint(128, (1, 23), generator=torch.Generator().manual_seed(0))
    model.set_attn_implementation(attention)
    with torch.inference_mode():
        result: Tensor = model(input_ids=tokens, use_cache=False).logits
    return result


def fused(family: str) -> tuple[Any, Tensor]:
    """A model with fused modules, and its logits before."""
    hook.register()
    model = tiny_model(tiny_config(family, intermediate_size=64), attention="eager")
    before = logits(model, "eager")
    model.set_attn_implementation(hook.NAME)
    probe_layers(model, model.config)
    fuse_modules(model, lambda: run_probe(model, LayerProbe()))
    return model, before


def count(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(type(module) is kind for module in model.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_stay_with_fused_modules(family: str) -> None:
    model, before = fused(family)
    torch.testing.assert_close(logits(model, "eager"), before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "norms", "mlps", "rotaries"),
    [("llama", 7, 3, 3), ("qwen3", 13, 3, 3), ("gemma2", 13, 0, 3), ("phi3", 7, 3, 3)],
)
def test_what_is_known_is_fused(family: str, norms: int, mlps: int, rotaries: int) -> None:
    model, _ = fused(family)
    turned = [module for module in model.modules() if "forward" in vars(module)]
    assert (count(model, FusedRmsNorm), count(model, GatedMlp), len(turned)) == (
        norms,
        mlps,
        rotaries,
    )


def test_original_rotary_function_stays_everybody_elses() -> None:
    other = tiny_model(tiny_config("llama"), attention="eager")
    before = logits(other, "eager")
    fused("llama")
    assert torch.equal(logits(other, "eager"), before)
    assert not any("forward" in vars(module) for module in other.modules())


@pytest.mark.parametrize("size", [8, 64, 576])
@pytest.mark.parametrize("kind", [LlamaRMSNorm, Gemma2RMSNorm])
def test_norm_equals_the_model_s_own(kind: type[Any], size: int) -> None:
    own = kind(size, eps=1e-5)
    own.weight.data = numbers(size)
    weight = own.weight + 1 if kind is Gemma2RMSNorm else own.weight
    made = FusedRmsNorm(weight, 1e-5)
    for rows in (numbers(1, 1, size), numbers(1, 33, size), numbers(2, size, 3).transpose(1, 2)):
        torch.testing.assert_close(made(rows), own(rows), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("biased", [True, False])
def test_gated_linear_equals_its_formula(biased: bool) -> None:
    gate, up = (nn.Linear(24, 64, bias=biased) for _ in range(2))
    rows = 8 * numbers(1, 31, 24)
    with torch.inference_mode():
        expected = nn.functional.silu(gate(rows)) * up(rows)
        torch.testing.assert_close(GatedLinear(gate, up)(rows), expected, atol=1e-5, rtol=1e-5)


def small(kind: type[Any], **overrides: Any) -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "hidden_act": "silu"}
    own = kind(SimpleNamespace(**sizes | overrides))
    for index, parameter in enumerate(own.parameters()):
        parameter.data = numbers(*parameter.shape) / (index + 3)
    return own


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("kind", [LlamaMLP, Phi3MLP, GlmMLP])
def test_gated_mlp_equals_the_model_s_own(kind: type[Any], biased: bool) -> None:
    own = small(kind, mlp_bias=biased)
    if biased and kind is not LlamaMLP:
        own.gate_up_proj.bias = nn.Parameter(numbers(128))
    holder, rows = nn.Sequential(own), numbers(1, 9, 32)
    with torch.inference_mode():
        expected = own(rows)
        fuse_modules(holder, lambda: holder(rows))
        assert type(holder[0]) is GatedMlp
        torch.testing.assert_close(holder(rows), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [LlamaMLP, Phi3MLP])
def test_mlp_gated_by_another_function_is_left_alone(kind: type[Any]) -> None:
    holder = nn.Sequential(small(kind, mlp_bias=False, hidden_act="gelu"))
    fuse_modules(holder, lambda: holder(numbers(2, 32)))
    assert type(holder[0]) is kind


class SwappedMlp(Phi3MLP):
    """Has its ups before its gates."""

    def forward(self, rows: Tensor) -> Tensor:
        up, gate = self.gate_up_proj(rows).chunk(2, dim=-1)
        answer: Tensor = self.down_proj(up * self.activation_fn(gate))
        return answer


def test_merged_matrix_in_another_order_is_left_alone() -> None:
    holder = nn.Sequential(small(SwappedMlp))
    fuse_modules(holder, lambda: holder(numbers(2, 32)))
    assert type(holder[0]) is SwappedMlp


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_rotary_equals_the_model_s_own(rows: int) -> None:
    merged = numbers(1, rows, 6 * 16)
    query = merged[..., :64].view(1, rows, 4, 16).transpose(1, 2)
    key = merged[..., 64:].view(1, rows, 2, 16).transpose(1, 2)
    cos, sin = numbers(2, rows, 16).split(1)
    assert can_rotate(query, key, cos, sin)
    for ours, own in zip(
        rotate(query, key, cos, sin), apply_rotary_pos_emb(query, key, cos, sin), strict=True
    ):
        torch.testing.assert_close(ours, own)


@pytest.mark.parametrize("change", ["partial", "half", "batch"])
def test_rotary_of_other_shapes_is_left_to_the_model(change: str) -> None:
    query, key, cos, sin = numbers(1, 4, 5, 16), numbers(1, 2, 5, 16), *numbers(2, 1, 5, 16)
    if change == "partial":
        cos, sin = cos[..., :8].contiguous(), sin[..., :8].contiguous()
    if change == "half":
        query = query.bfloat16()
    if change == "batch":
        query = query.expand(2, -1, -1, -1)
    assert not can_rotate(query, key, cos, sin)


class OtherRMSNorm(nn.Module):
    """Looks like one, and centres its rows as well."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(numbers(32))
        self.variance_epsilon = 1e-5

    def forward(self, rows: Tensor) -> Tensor:
        centred = rows - rows.mean(-1, keepdim=True)
        return nn.functional.rms_norm(centred, (32,), self.weight, self.variance_epsilon)


def test_what_only_looks_alike_is_left_alone() -> None:
    holder = nn.Sequential(OtherRMSNorm())
    fuse_modules(holder, lambda: holder(numbers(2, 32)))
    assert type(holder[0]) is OtherRMSNorm


class Curious(nn.Module):
    """Looks at the weight of its norm in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = LlamaRMSNorm(32)

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.norm(rows) * self.norm.weight
        return answer


def test_module_that_looks_into_its_norm_is_left_alone() -> None:
    module = Curious()
    fuse_modules(module, lambda: module(numbers(2, 32)))
    assert type(module.norm) is LlamaRMSNorm


def test_nothing_is_fused_without_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "openmp", lambda: None)
    model, _ = fused("llama")
    assert count(model, FusedRmsNorm) == count(model, GatedMlp) == 0
