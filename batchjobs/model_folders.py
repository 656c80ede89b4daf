"""Files that a model folder must have, checked before the folder is pinned.

Only names, sizes and small JSON files are read. Whether transformers knows the model is found when
it is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from batchjobs.errors import ModelError

CONFIG = "config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER = "adapter_config.json"

_SETTINGS = (CONFIG, "generation_config.json", "tokenizer_config.json")
_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""
_LENGTH_BYTES = 8
_LFS = b"version https://git-lfs"
_VOCABULARIES = ("tokenizer.*", "*.model", "vocab*", "*.tiktoken", "tekken.json")
"""Files that hold tokens; `tokenizer_config.json` alone does not."""
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def check_model_folder(folder: Path) -> None:
    """Raise ModelError with what is missing or damaged and what to do about it."""
    if not (folder / CONFIG).is_file():
        raise _no_config(folder)
    for name in _SETTINGS:
        if (folder / name).is_file():
            read_object(folder / name)
    if not isinstance(read_object(folder / CONFIG).get("model_type"), str):
        raise ModelError(
            f"{folder / CONFIG} names no model_type, without which the architecture is not known:"
            " take the config.json of the model's own repository."
        )
    for file in _weight_files(folder):
        _check_safetensors(file)
    if not any(any(folder.glob(pattern)) for pattern in _VOCABULARIES):
        raise ModelError(
            f"{folder} has no tokenizer (tokenizer.json): add the files that its repository has"
            " beside the weights."
        )


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object out of a small file. Raises ModelError: unreadable or something else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise ModelError(
            f"{file} cannot be read as JSON ({wrong}): download the file again."
        ) from wrong
    if not isinstance(content, dict):
        raise ModelError(f"{file} is not a JSON object: download the file again.")
    return content


def adapter_error(words: str) -> ModelError:
    """The refusal of an adapter without its base model; `words` are a folder or hub id."""
    return ModelError(
        f"{words} is an adapter (LoRA or another of peft's), which is not served by itself: merge"
        " it into its base model (peft's merge_and_unload) and add the folder that this is saved"
        " to."
    )


def _no_config(folder: Path) -> ModelError:
    if (folder / ADAPTER).is_file():
        return adapter_error(str(folder))
    said = f"{folder} is not a transformers model folder: it has no {CONFIG}"
    if gguf := sorted(folder.glob("*.gguf")):
        return ModelError(f"{said}. Add the GGUF file itself: {gguf[0]}")
    inner = [found.parent for found in sorted(folder.glob(f"*/{CONFIG}"))]
    if inner:
        return ModelError(f"{said}, but {inner[0]} has one: add that folder.")
    return ModelError(f"{said}. Add the folder of the whole repository of the model.")


def _weight_files(folder: Path) -> list[Path]:
    """The files that transformers reads weights from."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return _shards(folder)
    if (folder / WEIGHTS).is_symlink():
        raise ModelError(
            f"{folder / WEIGHTS} is a link to a file that is not there: download it again."
        )
    if others := sorted(folder.glob("*.safetensors")):
        raise ModelError(
            f"{folder} has {others[0].name}, but neither {WEIGHTS} nor {INDEX}, by which weights"
            " are found: download the whole repository of the model."
        )
    message = f"{folder} has no .safetensors weights; other formats can run code and are not read."
    if any(file.suffix in _PICKLES for file in folder.iterdir()):
        message += (
            " Convert them where you trust them: transformers'"
            " AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER) writes"
            " safetensors."
        )
    raise ModelError(message)


def _shards(folder: Path) -> list[Path]:
    weight_map = read_object(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{folder / INDEX} has no weight_map: download the file again.")
    names = sorted({str(name) for name in weight_map.values()})
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"{folder} lacks {missing[0]}, one of {len(missing)} missing of the {len(names)} files"
            f" that {INDEX} names: download the model again, to its end."
        )
    return [folder / name for name in names]


def _check_safetensors(file: Path) -> None:
    """Compare the file's size with what its header says of it."""
    size = file.stat().st_size
    with file.open("rb") as content:
        head = content.read(len(_LFS))
        if head == _LFS:
            raise ModelError(
                f"{file} is a Git LFS pointer and not the weights: run git lfs pull in the"
                " repository."
            )
        length = int.from_bytes(head[:_LENGTH_BYTES], "little")
        content.seek(_LENGTH_BYTES)
        header = content.read(min(length, _MAX_HEADER_BYTES))
    if size < _LENGTH_BYTES or length > _MAX_HEADER_BYTES or len(header) < length:
        raise ModelError(
            f"{file} ({size:,} bytes) is cut off or is no safetensors file: download it again."
        )
    expected = _LENGTH_BYTES + length + _data_bytes(file, header)
    if size != expected:
        raise ModelError(
            f"{file} has {size:,} bytes, and its header says {expected:,}: it is cut off or"
            " damaged; download it again."
        )


def _data_bytes(file: Path, header: bytes) -> int:
    try:
        tensors = json.loads(header)
        ends = [
            int(tensor["data_offsets"][1])
            for name, tensor in tensors.items()
            if name != "__metadata__"
        ]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as wrong:
        raise ModelError(
            f"{file} has a damaged header and cannot be read as safetensors: download it again."
        ) from wrong
    return max(ends, default=0)
