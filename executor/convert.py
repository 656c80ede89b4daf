"""GGUF file → transformers folder: float32 safetensors, tokenizer, chat template, configuration.

transformers reads the file but leaves the pre-tokenizer it names behind; without that, numbers
would come out in tokens that the model has never seen.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence

from executor.errors import UnsupportedModelError

WEIGHTS = "model.safetensors"

_PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "smollm": Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
}
"""By the GGUF file's `tokenizer.ggml.pre`; a file that names another one is refused."""


def is_model_folder(folder: Path) -> bool:
    """Whether a finished conversion lies there; an unfinished one never has the name."""
    return (folder / WEIGHTS).is_file() and (folder / "config.json").is_file()


def convert_gguf(source: Path, target: Path) -> None:
    """Make the folder `target` from the GGUF file `source`.

    The folder appears whole or not at all; one that is there already is left as it is. One at a
    time for a target: that is the caller's to see to.

    Raises:
        UnsupportedModelError: not a GGUF file, or an architecture or tokenizer not known here.
    """
    if is_model_folder(target):
        return
    pre_tokenizer = _pre_tokenizer(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write_model(source, partial)
        _write_tokenizer(source, partial, pre_tokenizer)
        _publish(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _pre_tokenizer(source: Path) -> PreTokenizer:
    from gguf import GGUFReader

    try:
        field = GGUFReader(source).get_field("tokenizer.ggml.pre")
    except (ValueError, IndexError) as wrong:
        raise UnsupportedModelError(
            f"{source.name} is not a readable GGUF file: {wrong}"
        ) from wrong
    name = None if field is None else field.contents()
    if name not in _PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"{source.name} cannot be converted: its tokenizer.ggml.pre is {name!r}, and only "
            f"{', '.join(_PRE_TOKENIZERS)} is known here."
        )
    return _PRE_TOKENIZERS[name]


def _write_model(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, info = _from_gguf(
        AutoModelForCausalLM, source, dtype=torch.float32, output_loading_info=True
    )
    if lacking := sorted({*info["missing_keys"], *info["unexpected_keys"]}):
        raise UnsupportedModelError(
            f"{source.name} cannot be converted: its tensors are not those of "
            f"{type(model).__name__} ({lacking[0]}, {len(lacking)} in all)."
        )
    # It is dense now, and would be taken for a quantized one.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(folder)


def _write_tokenizer(source: Path, folder: Path, pre_tokenizer: PreTokenizer) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = _from_gguf(AutoTokenizer, source)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.save_pretrained(folder)


def _from_gguf(loader: Any, source: Path, **options: Any) -> Any:
    try:
        return loader.from_pretrained(source.parent, gguf_file=source.name, **options)
    except Exception as wrong:
        reason = " ".join(str(wrong).split())
        raise UnsupportedModelError(f"{source.name} cannot be converted: {reason[:400]}") from wrong


def _publish(partial: Path, target: Path) -> None:
    for file in partial.iterdir():
        file.chmod(0o644)
        with file.open("rb") as written:
            os.fsync(written.fileno())
    partial.chmod(0o755)
    partial.rename(target)
