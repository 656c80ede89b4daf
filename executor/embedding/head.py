"""From token vectors to one vector a text: pooling, linear layers, normalising."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from executor.embedding.batch import TextBatch
from executor.embedding.recipe import DenseLayer, EmbeddingRecipe, PoolingMode, find_file
from executor.errors import UnsupportedModelError
from executor.loading import Checkpoint
from executor.request import PoolingParams


def pool(hidden: Tensor, batch: TextBatch, modes: Sequence[PoolingMode]) -> Tensor:
    """Token vectors [T, D] of S texts to [S, D·M] in float32, of M modes side by side."""
    return torch.cat(
        [
            torch.cat([_POOLINGS[mode](group.split(hidden).float()) for mode in modes], dim=-1)
            for group in batch.groups
        ]
    )


def _weighted_mean(texts: Tensor) -> Tensor:
    weights = torch.arange(1, texts.shape[1] + 1, device=texts.device, dtype=texts.dtype)
    return (texts * weights[:, None]).sum(dim=1) / weights.sum()


_POOLINGS: dict[PoolingMode, Callable[[Tensor], Tensor]] = {
    PoolingMode.CLS: lambda texts: texts[:, 0],
    PoolingMode.MAX: lambda texts: texts.amax(dim=1),
    PoolingMode.MEAN: lambda texts: texts.mean(dim=1),
    PoolingMode.MEAN_SQRT_LEN: lambda texts: texts.sum(dim=1) / texts.shape[1] ** 0.5,
    PoolingMode.WEIGHTED_MEAN: _weighted_mean,
    PoolingMode.LAST: lambda texts: texts[:, -1],
}


class Dense(nn.Module):
    """A linear layer and a function behind it."""

    def __init__(self, linear: nn.Linear, activation: nn.Module) -> None:
        super().__init__()
        self.linear = linear
        self.activation = activation

    def forward(self, vectors: Tensor) -> Tensor:
        activated: Tensor = self.activation(self.linear(vectors))
        return activated


class EmbeddingHead:
    """What a recipe says behind the transformer, in float32."""

    def __init__(self, recipe: EmbeddingRecipe, layers: Sequence[Dense], hidden_size: int) -> None:
        """`layers` are those that the recipe names."""
        self._recipe = recipe
        self._layers = layers
        self.dimensions = hidden_size * len(recipe.modes)
        if layers:
            self.dimensions = layers[-1].linear.out_features

    def vectors(self, hidden: Tensor, batch: TextBatch, wanted: Sequence[PoolingParams]) -> Tensor:
        """Of token vectors [T, D], a row [S, D'] for each text; those that are to be shorter are
        filled up with zeros."""
        vectors = pool(hidden, batch, self._recipe.modes)
        for layer in self._layers:
            vectors = layer(vectors)
        for index, params in enumerate(wanted):
            if params.dimensions is not None:
                vectors[index, params.dimensions :] = 0
        normalizes = [self._normalizes(params) for params in wanted]
        if not any(normalizes):
            return vectors
        chosen = torch.tensor(normalizes, device=vectors.device)[:, None]
        return torch.where(chosen, functional.normalize(vectors, dim=1), vectors)

    def _normalizes(self, params: PoolingParams) -> bool:
        asked = params.use_activation
        return self._recipe.normalizes if asked is None else asked


def load_head(
    checkpoint: Checkpoint, recipe: EmbeddingRecipe, *, hidden_size: int, device: torch.device
) -> EmbeddingHead:
    """Raises UnsupportedModelError: a layer's weights are missing or do not fit."""
    layers = [_load_layer(checkpoint, layer).to(device) for layer in recipe.dense]
    return EmbeddingHead(recipe, layers, hidden_size)


def _load_layer(checkpoint: Checkpoint, layer: DenseLayer) -> Dense:
    name = f"{layer.path}/model.safetensors"
    weights = find_file(checkpoint, name)
    activation = getattr(nn, layer.activation, None)
    if weights is None:
        raise _unusable(checkpoint, f"there is no {name}")
    if not (isinstance(activation, type) and issubclass(activation, nn.Module)):
        raise _unusable(checkpoint, f"torch has no function {layer.activation}")
    tensors = load_file(weights)
    try:
        weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
    except KeyError as missing:
        raise _unusable(checkpoint, f"{name} has no {missing}") from missing
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight.data = weight.float()
    if bias is not None:
        linear.bias.data = bias.float()
    return Dense(linear, activation()).eval().requires_grad_(requires_grad=False)


def _unusable(checkpoint: Checkpoint, why: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"Model {checkpoint.source} cannot be loaded: {why}.")
