"""A GGUF file's header: how its tensors are stored, and whether transformers keeps all it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from executor.errors import UnsupportedModelError

if TYPE_CHECKING:
    from gguf import GGUFReader

MAGIC = b"GGUF"
_VALUES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""GGML types that hold values; all others hold quantized blocks."""
_LOST_TENSORS = ("rope_freqs", "rope_factors")
_KEPT = {
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logit_scale",
}
"""Fields of an architecture that change its answers → the configuration's name for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """A file whose header was read. `types` are its tensors' GGML type names, `elements` how many
    numbers they hold in all; `lost_tensors` would be left out by transformers' reader."""

    name: str
    architecture: str
    fields: dict[str, Any]
    types: frozenset[str]
    elements: int
    lost_tensors: tuple[str, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The narrowest type that holds every value as it is stored: that of quantized blocks is
        float32, of 16-bit values beside float32 ones (as norms are) the 16-bit type."""
        if not self.types <= set(_VALUES) or {"F16", "BF16"} <= self.types:
            return torch.float32
        return next((_VALUES[name] for name in self.types - {"F32"}), torch.float32)

    @property
    def quantized(self) -> str | None:
        """Its quantized types, as in "Q4_0, Q6_K"; None for a file that has none."""
        return ", ".join(sorted(self.types - set(_VALUES))) or None

    def own(self, name: str) -> Any:
        """A field of the architecture, None if the file does not have it."""
        return self.fields.get(f"{self.architecture}.{name}")


def read_gguf(source: Path) -> GgufFile:
    """Read the header and the table of tensors.

    Raises:
        UnsupportedModelError: no GGUF file, cut off, damaged, or one part of several.
    """
    from gguf import GGUFReader

    try:
        with source.open("rb") as content:
            head = content.read(len(MAGIC))
        if head != MAGIC:
            raise UnsupportedModelError(
                f"{source.name} is not a GGUF file: it begins with {head!r} and not {MAGIC!r}."
            )
        file = _header(source, GGUFReader(source))
    except UnsupportedModelError:
        raise
    except Exception as wrong:  # the reader trusts every number of a damaged file
        raise UnsupportedModelError(
            f"{source.name} is not a readable GGUF file ({wrong}): it is cut off or damaged;"
            " download it again."
        ) from wrong
    if (parts := file.fields.get("split.count") or 0) > 1:
        raise UnsupportedModelError(
            f"{source.name} is one of {parts} parts: merge them with llama.cpp's"
            " llama-gguf-split --merge, and add the result."
        )
    return file


def check_kept(file: GgufFile, config: Any) -> None:
    """Refuse a file of which transformers' `config` lost what changes the answers.

    Raises:
        UnsupportedModelError: with the first field or tensor that is lost.
    """
    if file.lost_tensors:
        raise _lost(file, f"its tensor {file.lost_tensors[0]} (scaled rotary positions)")
    scaling = file.own("rope.scaling.type")
    rope = getattr(config, "rope_parameters", None) or {}
    if scaling not in {None, "none"} and rope.get("rope_type") != scaling:
        raise _lost(file, f"its {file.architecture}.rope.scaling.type = {scaling!r}")
    for name, attribute in _KEPT.items():
        said = file.own(name)
        if said is not None and not _agree(said, getattr(config, attribute, None)):
            raise _lost(file, f"its {file.architecture}.{name} = {said}")


def _agree(said: Any, kept: Any) -> bool:
    if not isinstance(said, (int, float)) or not isinstance(kept, (int, float)):
        return bool(said == kept) or (said == 0 and kept is None)
    return abs(said - kept) <= 1e-5 * max(1.0, abs(said))


def _lost(file: GgufFile, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{file.name} cannot be converted: transformers' GGUF reader does not keep {what}, and"
        " answers would be others; add the model's safetensors folder instead."
    )


def _header(source: Path, reader: GGUFReader) -> GgufFile:
    names = [tensor.name for tensor in reader.tensors]
    wanted = (name for name in reader.fields if name not in _LONG)
    fields = {name: reader.fields[name].contents() for name in wanted}
    return GgufFile(
        name=source.name,
        architecture=str(fields["general.architecture"]),
        fields=fields,
        types=frozenset(tensor.tensor_type.name for tensor in reader.tensors),
        elements=sum(int(tensor.n_elements) for tensor in reader.tensors),
        lost_tensors=tuple(name for name in names if name.startswith(_LOST_TENSORS)),
    )


_LONG = frozenset(f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "scores", "token_type"))
"""Fields of a vocabulary's length, which take seconds to read and are not needed here."""
