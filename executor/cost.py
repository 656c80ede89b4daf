"""A loaded model's shapes → what its steps cost (`roofline`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from executor.model import LayerShape
from executor.roofline import ModelCost


def model_cost(
    module: Any, layers: dict[int, LayerShape], *, weight_bytes: int, cache: torch.dtype
) -> ModelCost:
    """Of a transformers causal model whose attention layers have these shapes.

    A weight has so many bytes, and a key's or value's number the type `cache`.

    Weights are counted on an empty twin of the module, as they may have been packed in place. Of
    experts, each position multiplies the ones it is routed to, and a step may read them all.
    """
    with torch.device("meta"):
        twin = type(module)(module.config)
    config = module.config.get_text_config()
    head = twin.get_output_embeddings().weight.numel()
    embedding = {id(layer.weight) for layer in _tables(twin)}
    weights = [(n, p) for n, p in twin.named_parameters() if id(p) not in embedding]
    everything = sum(p.numel() for _, p in weights)
    idle = (1 - _routed_share(config)) * sum(p.numel() for n, p in weights if ".experts." in n)
    heads = config.num_attention_heads
    return ModelCost(
        body=everything - round(idle),
        head=head,
        attention=sum(2 * heads * (s.key_size + s.value_size) for s in layers.values()),
        weight_bytes=(everything + head) * weight_bytes,
        kv_bytes=sum(shape.numbers for shape in layers.values()) * cache.itemsize,
    )


def _tables(twin: Any) -> list[nn.Module]:
    """Embeddings, of which a position takes a row, and the head, which is counted by rows."""
    return [twin.get_input_embeddings(), twin.get_output_embeddings()]


def _routed_share(config: Any) -> float:
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    routed = getattr(config, "num_experts_per_tok", None)
    return routed / experts if experts and routed else 1.0
