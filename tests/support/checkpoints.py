"""Tiny checkpoints in the forms that people download them in.

A family is made once, in float32; every form is a copy of it with its safetensors and its small
files written anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.support.tiny_models import save_tiny, tiny_config

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = 3

Form = Callable[[Path], None]
"""Changes a checkpoint folder in place."""


def make_original(folder: Path, family: str, **overrides: Any) -> Path:
    """A float32 checkpoint of `family` in one file, with `overrides` of its configuration."""
    save_tiny(folder, tiny_config(family, **overrides))
    return folder


def make_form(original: Path, folder: Path, *forms: Form) -> Path:
    """A copy of `original` at `folder`, changed by each form in turn."""
    shutil.copytree(original, folder)
    for form in forms:
        form(folder)
    return folder


def edit_json(file: Path, **values: Any) -> None:
    """Set keys of a JSON object; None deletes one. A file that is not there begins empty."""
    content = json.loads(file.read_text()) if file.exists() else {}
    content.update(values)
    kept = {name: value for name, value in content.items() if value is not None}
    file.write_text(json.dumps(kept, indent=2))


# Numbers


def bfloat16(folder: Path) -> None:
    _store(folder, lambda name, tensor: torch.bfloat16)
    edit_json(folder / "config.json", dtype="bfloat16")


def float16_under_the_older_key(folder: Path) -> None:
    _store(folder, lambda name, tensor: torch.float16)
    edit_json(folder / "config.json", dtype=None, torch_dtype="float16")


def float32(folder: Path) -> None:
    _store(folder, lambda name, tensor: torch.float32)


def mixed(folder: Path) -> None:
    """Vectors (norms, biases) in float32 among bfloat16 matrices."""
    _store(folder, lambda name, tensor: torch.bfloat16 if tensor.dim() > 1 else torch.float32)
    edit_json(folder / "config.json", dtype="bfloat16")


def without_a_type(folder: Path) -> None:
    """bfloat16 weights of which the configuration says nothing."""
    _store(folder, lambda name, tensor: torch.bfloat16)
    edit_json(folder / "config.json", dtype=None, torch_dtype=None)


def _store(folder: Path, dtype_of: Callable[[str, torch.Tensor], torch.dtype]) -> None:
    weights = load_file(folder / WEIGHTS)
    stored = {name: tensor.to(dtype_of(name, tensor)) for name, tensor in weights.items()}
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})


# Files of weights


def sharded(folder: Path) -> None:
    """Several files and an index, as `save_pretrained(max_shard_size=…)` leaves them."""
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(weights)
    files = [f"model-{number:05}-of-{SHARDS:05}.safetensors" for number in range(1, SHARDS + 1)]
    for number, file in enumerate(files):
        part = {name: weights[name] for name in names[number::SHARDS]}
        save_file(part, folder / file, metadata={"format": "pt"})
    where = {name: files[place % SHARDS] for place, name in enumerate(names)}
    total = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    edit_json(folder / INDEX, metadata={"total_size": total}, weight_map=where)


def without_prefix(folder: Path) -> None:
    """Weights named as the model's body names them, without "model." before them."""
    _rename(folder, lambda name: name.removeprefix("model."))


def within_a_multimodal_model(folder: Path) -> None:
    """Names of a text model as a model of images and text has them."""
    _rename(folder, lambda name: f"language_model.{name}")


def with_a_stored_copy_of_the_tied_head(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _rename(folder: Path, renamed: Callable[[str], str]) -> None:
    weights = {renamed(name): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


# Tokenizer, templates, generation


def ends_in(where: str, ends: list[int]) -> Form:
    """End-of-sequence ids that the file `where` tells and no other."""

    def form(folder: Path) -> None:
        for name in ("config.json", "generation_config.json"):
            if name == where or (folder / name).exists():
                edit_json(folder / name, eos_token_id=ends if name == where else None)
        if where != "generation_config.json":
            (folder / "generation_config.json").unlink(missing_ok=True)

    return form


def without_pad_token(folder: Path) -> None:
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        if (folder / name).exists():
            edit_json(folder / name, pad_token=None, pad_token_id=None)


def sampled(folder: Path) -> None:
    """A generation configuration that samples, as most have it."""
    own = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20}
    edit_json(folder / "generation_config.json", **own)


TEMPLATE = "{% for m in messages %}<s>{{ m.content }}{% endfor %}</s>"
OTHER_TEMPLATE = "{% for m in messages %}[{{ m.content }}]{% endfor %}"


def template_in_the_configuration(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    edit_json(folder / "tokenizer_config.json", chat_template=TEMPLATE)


def templates_in_a_list(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    templates = {"default": TEMPLATE, "rag": OTHER_TEMPLATE}
    listed = [{"name": name, "template": text} for name, text in templates.items()]
    edit_json(folder / "tokenizer_config.json", chat_template=listed)


def templates_in_a_folder(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text(OTHER_TEMPLATE)


def templates_without_a_default(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    listed = [{"name": "rag", "template": OTHER_TEMPLATE}, {"name": "plain", "template": TEMPLATE}]
    edit_json(folder / "tokenizer_config.json", chat_template=listed)


def without_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


# What lies beside


def with_other_files(folder: Path) -> None:
    """What repositories have beside a model, none of which is to be read."""
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Tiny\n")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle")
    (folder / "consolidated.00.pth").write_bytes(b"not a pickle")
    for name in ("original/params.json", "onnx/config.json", "runs/notes.json"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("{}")
    (folder / "onnx" / "model.onnx").write_bytes(b"onnx")


def with_an_adapter(folder: Path) -> None:
    """A LoRA beside the whole model, as trainers leave it."""
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 2}
    edit_json(folder / "adapter_config.json", **adapter)
    save_file({"base_model.model.lora_A.weight": torch.ones(2, 2)},
              folder / "adapter_model.safetensors")  # fmt: skip


COMMIT = "5c1ee0a1f0b3d2c4e5f60718293a4b5c6d7e8f90"


def hub_cache(checkpoint: Path, cache: Path, *, name: str = "models--org--tiny") -> Path:
    """The checkpoint as the hub's client keeps it: the snapshot folder, whose files are links."""
    snapshot = cache / name / "snapshots" / COMMIT
    blobs = cache / name / "blobs"
    blobs.mkdir(parents=True)
    (cache / name / "refs").mkdir()
    (cache / name / "refs" / "main").write_text(COMMIT)
    for file in (file for file in checkpoint.rglob("*") if file.is_file()):
        inner = file.relative_to(checkpoint)
        blob = blobs / inner.as_posix().replace("/", "-")
        shutil.copy(file, blob)
        link = snapshot / inner
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(*[".."] * (len(inner.parts) + 1)) / "blobs" / blob.name)
    return snapshot
