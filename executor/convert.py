"""GGUF file → transformers folder: safetensors, tokenizer, chat template, configuration.

transformers reads the file but may leave the pre-tokenizer it names behind; without that, numbers
would come out in tokens that the model has never seen.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from executor.errors import UnsupportedModelError
from executor.gguf_file import GgufFile, check_kept, read_gguf
from executor.gguf_tokenizers import Cutting, find_cutting

WEIGHTS = "model.safetensors"

_ONE_FILE = "1000TB"
_FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
_OTHER_FILES_BYTES = 32 << 20
"""Room for a large vocabulary beside the weights."""


def is_model_folder(folder: Path) -> bool:
    """Whether a finished conversion lies there; an unfinished one never has the name."""
    return (folder / WEIGHTS).is_file() and (folder / "config.json").is_file()


def partial_folders(target: Path) -> list[Path]:
    """What a conversion to `target` that was killed has left, for its caller to remove."""
    return list(target.parent.glob(f".{target.name}-*/"))


def convert_gguf(source: Path, target: Path) -> GgufFile | None:
    """Make the folder `target` from the GGUF file `source`, and return how that stores its
    weights; None if the folder is there already.

    A tensor is stored in the file's 16-bit type if that holds every value of it, and otherwise in
    float32, as quantized ones are. The folder appears whole or not at all, and is left as it
    is once it is there. One at a time for a target: that is the caller's to see to.

    Raises:
        UnsupportedModelError: not a GGUF file, damaged, an architecture or tokenizer not known
            here, or no room on the disk.
    """
    if is_model_folder(target):
        return None
    file = read_gguf(source)
    cutting = find_cutting(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    _check_room(file, target.parent)
    config = _read_config(file, source)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write_model(file, source, config, partial)
        _write_tokenizer(source, partial, cutting)
        _publish(partial, target)
    except Exception as failed:
        if (full := _disk_is_full(failed)) is not None:
            raise UnsupportedModelError(
                f"{source.name} cannot be converted: {target.parent} cannot take it ({full}); make"
                " room there, and add it again."
            ) from failed
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return file


def _check_room(file: GgufFile, folder: Path) -> None:
    needed = file.elements * file.dtype.itemsize + _OTHER_FILES_BYTES
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UnsupportedModelError(
            f"{file.name} cannot be converted: that takes {needed / 1e9:.1f} GB in {folder}, where"
            f" {free / 1e9:.1f} GB are free; make room there, and add it again."
        )


def _read_config(file: GgufFile, source: Path) -> Any:
    """The model's configuration; what could not be served is refused before weights are read."""
    from transformers import AutoConfig, __version__

    try:
        config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    except Exception as wrong:
        raise UnsupportedModelError(
            f"{source.name} cannot be converted: its architecture is {file.architecture!r}, which"
            f" transformers {__version__} does not read out of GGUF files ({_reason(wrong)}); add"
            " the model's safetensors folder instead."
        ) from wrong
    check_kept(file, config)
    return config


def _write_model(file: GgufFile, source: Path, config: Any, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, info = _from_gguf(
        AutoModelForCausalLM,
        source,
        config=config,
        dtype=torch.float32,
        output_loading_info=True,
    )
    if lacking := sorted({*info["missing_keys"], *info["unexpected_keys"]}):
        raise UnsupportedModelError(
            f"{source.name} cannot be converted: its tensors are not those of "
            f"{type(model).__name__} ({lacking[0]}, {len(lacking)} in all)."
        )
    # It is dense now, and would be taken for a quantized one.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.generation_config.eos_token_id = _ends(file)
    if file.dtype != torch.float32:
        _narrow(model, file.dtype)
    model.save_pretrained(folder, max_shard_size=_ONE_FILE)


def _ends(file: GgufFile) -> list[int] | int | None:
    """The end of a text, and that of a turn where the file names it as well."""
    named = [file.fields.get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot")]
    ends = sorted({int(end) for end in named if end is not None})
    return ends[0] if len(ends) == 1 else ends or None


def _narrow(model: Any, dtype: Any) -> None:
    """Store a parameter in `dtype` where that loses nothing of it."""
    for parameter in model.parameters():
        narrow = parameter.data.to(dtype)
        if narrow.to(parameter.dtype).equal(parameter.data):
            parameter.data = narrow


def _write_tokenizer(source: Path, folder: Path, cutting: Cutting | None) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = _from_gguf(AutoTokenizer, source)
    if cutting is not None:
        cutting.apply(tokenizer.backend_tokenizer)
    tokenizer.save_pretrained(folder)


def _from_gguf(loader: Any, source: Path, **options: Any) -> Any:
    try:
        return loader.from_pretrained(source.parent, gguf_file=source.name, **options)
    except Exception as wrong:
        raise UnsupportedModelError(
            f"{source.name} cannot be converted: {_reason(wrong)}"
        ) from wrong


def _reason(wrong: Exception) -> str:
    return " ".join(str(wrong).split())[:400]


def _disk_is_full(failed: Exception) -> str | None:
    """What the system says of it, also where safetensors has put that into words."""
    if isinstance(failed, OSError) and failed.errno in _FULL:
        return os.strerror(failed.errno)
    said = next((code for code in _FULL if f"(os error {code})" in str(failed)), None)
    return None if said is None else os.strerror(said)


def _publish(partial: Path, target: Path) -> None:
    for file in partial.iterdir():
        file.chmod(0o644)
        with file.open("rb") as written:
            os.fsync(written.fileno())
    partial.chmod(0o755)
    partial.rename(target)
