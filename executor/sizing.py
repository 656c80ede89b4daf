"""Limits of the engine from what the machine has free."""

from __future__ import annotations

import psutil
import torch
from torch import nn

from executor.errors import EngineError
from executor.loading import LoadedModel
from executor.model import LayerShape
from executor.number_types import NumberTypes
from executor.number_types import name as describe
from executor.settings import EngineSettings, Limits

CPU_BLOCK_SIZE = 64
CUDA_BLOCK_SIZE = 16

CPU_MEMORY_SHARE = 0.4
CUDA_MEMORY_SHARE = 0.9
"""Of the memory free once the weights are loaded; activations take the rest."""

CPU_MAX_NUM_SEQS = 128
CUDA_MAX_NUM_SEQS = 256
CUDA_MAX_NUM_BATCHED_TOKENS = 8192

STEP_SECONDS = 2.0
"""Of one CPU step, so that a stop is heard in time."""
CPU_STEP_FLOPS = 2e11
"""What takes so long on two cores at worst; once steps have been timed they may be larger."""
CPU_TILES_FACTOR = 3
"""How much more of it that is with bfloat16 products on AMX tiles: they made 2.6 to 3.4 times the
FLOP/s of float32 from 64 rows on."""
CPU_MIN_BATCHED_TOKENS, CPU_MAX_BATCHED_TOKENS = 64, 512


def plan_limits(
    loaded: LoadedModel,
    layers: dict[int, LayerShape],
    settings: EngineSettings,
    *,
    taken: int = 0,
) -> Limits:
    """Decide everything `settings` leaves open, where the cache has `taken` bytes already.

    Raises:
        EngineError: not even one sequence of max_model_len tokens fits the memory.
    """
    device = loaded.device.device
    cuda = device.type == "cuda"
    block_size = settings.block_size or (CUDA_BLOCK_SIZE if cuda else CPU_BLOCK_SIZE)
    itemsize = loaded.device.types.cache.itemsize
    block_bytes = block_size * itemsize * sum(shape.numbers for shape in layers.values())
    memory = settings.kv_cache_memory or _free_bytes(device, taken)
    affordable = memory // block_bytes
    max_model_len = min(settings.max_model_len or loaded.max_positions, loaded.max_positions)
    if settings.max_model_len is None:
        max_model_len = min(max_model_len, max(1, affordable) * block_size)
    blocks_per_sequence = -(-max_model_len // block_size)
    if affordable < blocks_per_sequence:
        raise EngineError(
            f"One sequence of max_model_len={max_model_len} tokens needs "
            f"{blocks_per_sequence * block_bytes:,} bytes of KV cache, and {memory:,} are to be "
            "had: lower max_model_len or raise kv_cache_memory."
        )
    max_num_seqs = settings.max_num_seqs or (CUDA_MAX_NUM_SEQS if cuda else CPU_MAX_NUM_SEQS)
    budget = settings.max_num_batched_tokens or (
        CUDA_MAX_NUM_BATCHED_TOKENS if cuda else _cpu_budget(loaded, max_num_seqs)
    )
    return Limits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        num_blocks=min(affordable, max_num_seqs * blocks_per_sequence),
        block_size=block_size,
    )


def check_weights_fit(module: nn.Module, types: NumberTypes, *, name: str) -> None:
    """Whether the weights fit the memory of this machine once they are packed (CPU).

    Linear layers' are kept in `types.weights`, everything else is float32.

    Raises:
        EngineError: they do not, with the numbers and what helps.
    """
    linear = sum(m.weight.numel() for m in module.modules() if type(m) is nn.Linear)
    others = max(0, sum(p.numel() for p in module.parameters()) - linear)
    needed = linear * types.weights.itemsize + others * types.activations.itemsize
    free = psutil.virtual_memory().available
    if needed > free:
        shorter = (
            ""
            if types.weights.itemsize < types.activations.itemsize
            else (" Half as much will do with dtype bfloat16.")
        )
        raise EngineError(
            f"The weights of {name} take {needed / 1e9:.1f} GB of memory ({linear:,} numbers of "
            f"linear layers in {describe(types.weights)}, {others:,} others in "
            f"{describe(types.activations)}), and {free / 1e9:.1f} GB are free.{shorter}"
        )


def _free_bytes(device: torch.device, taken: int) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * CUDA_MEMORY_SHARE)
    return int((psutil.virtual_memory().available + taken) * CPU_MEMORY_SHARE)


def _cpu_budget(loaded: LoadedModel, max_num_seqs: int) -> int:
    factor = 1 if loaded.device.types.products == torch.float32 else CPU_TILES_FACTOR
    tokens = int(factor * CPU_STEP_FLOPS / (2 * loaded.num_parameters))
    bounded = max(CPU_MIN_BATCHED_TOKENS, min(CPU_MAX_BATCHED_TOKENS, tokens))
    return max(max_num_seqs, bounded)
