"""Folders that cannot be served, each refused in a sentence that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from batchjobs.errors import ModelError, NotFoundError, UsageError
from batchjobs.hub_cache import snapshot
from batchjobs.model_folders import check_model_folder
from batchjobs.own_templates import own_templates
from batchjobs.sources import pin_source
from tests.support.checkpoints import (
    COMMIT,
    INDEX,
    OTHER_TEMPLATE,
    TEMPLATE,
    WEIGHTS,
    edit_json,
    hub_cache,
    make_original,
    sharded,
    templates_in_a_folder,
    templates_in_a_list,
    with_other_files,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_original(tmp_path / "weights", "llama")


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return damage


def cut(name: str, size: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:size])

    return damage


def only_an_adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def only_pickles(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def only_gguf(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "tiny.Q8_0.gguf").write_bytes(b"GGUF")


def one_folder_deeper(folder: Path) -> None:
    (folder / "checkpoint-10").mkdir()
    (folder / "config.json").rename(folder / "checkpoint-10" / "config.json")


def another_name(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model.fp16.safetensors")


def dangling_link(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(folder / "blobs" / "gone")


def missing_shard(folder: Path) -> None:
    sharded(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()


def cut_shard(folder: Path) -> None:
    sharded(folder)
    cut("model-00003-of-00003.safetensors", 2000)(folder)


def empty_index(folder: Path) -> None:
    sharded(folder)
    (folder / INDEX).write_text("{}")


def typeless(folder: Path) -> None:
    edit_json(folder / "config.json", model_type=None)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove("config.json"), "it has no config.json. Add the folder of the whole repository"),
        (one_folder_deeper, "checkpoint-10 has one: add that folder"),
        (only_gguf, r"Add the GGUF file itself: .*tiny\.Q8_0\.gguf"),
        (only_an_adapter, "is an adapter .*merge_and_unload"),
        (typeless, "names no model_type"),
        (remove("tokenizer.json"), r"has no tokenizer \(tokenizer\.json\)"),
        (write("config.json", b"{"), r"config\.json cannot be read as JSON"),
        (write("config.json", b"[]"), r"config\.json is not a JSON object"),
        (write("generation_config.json", b"{,}"), r"ion_config\.json cannot be read as JSON"),
        (write("tokenizer_config.json", b"\xff"), r"tokenizer_config\.json cannot be read as JSON"),
        (remove(WEIGHTS), r"has no \.safetensors weights"),
        (only_pickles, r"has no \.safetensors weights.*save_pretrained\(NEW_FOLDER\)"),
        (another_name, r"has model\.fp16\.safetensors, but neither model\.safetensors nor"),
        (dangling_link, "is a link to a file that is not there"),
        (missing_shard, r"lacks model-00002-of-00003\.safetensors, one of 1 missing of the 3"),
        (cut_shard, r"model-00003-of-00003\.safetensors .* is cut off"),
        (empty_index, "has no weight_map"),
        (cut(WEIGHTS, 40_000), "has 40,000 bytes, and its header says .*: it is cut off"),
        (cut(WEIGHTS, 100), r"\(100 bytes\) is cut off or is no safetensors file"),
        (write(WEIGHTS, b""), r"\(0 bytes\) is cut off"),
        (write(WEIGHTS, (4).to_bytes(8, "little") + b"nope"), "has a damaged header"),
        (
            write(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:12\n"),
            "is a Git LFS pointer .*git lfs pull",
        ),
    ],
)  # fmt: skip
def test_what_is_no_whole_checkpoint_is_refused(
    folder: Path, damage: Callable[[Path], None], said: str
) -> None:
    check_model_folder(folder)
    damage(folder)
    with pytest.raises(ModelError, match=said) as refused:
        pin_source(str(folder))
    assert "\n" not in str(refused.value)


def test_what_lies_beside_a_model_is_no_part_of_it(folder: Path) -> None:
    before = pin_source(str(folder))
    with_other_files(folder)
    assert pin_source(str(folder)) == before


def test_another_named_template_is_another_revision(folder: Path) -> None:
    templates_in_a_folder(folder)
    before = pin_source(str(folder)).revision
    (folder / "additional_chat_templates" / "rag.jinja").write_text("other")
    assert pin_source(str(folder)).revision != before


def test_templates_are_found_where_transformers_finds_them(folder: Path) -> None:
    assert own_templates(folder) == {"default": TEMPLATE}
    templates_in_a_folder(folder)
    assert own_templates(folder) == {"default": TEMPLATE, "rag": OTHER_TEMPLATE}


def test_templates_of_a_list_are_found_by_name(folder: Path) -> None:
    templates_in_a_list(folder)
    assert own_templates(folder) == {"default": TEMPLATE, "rag": OTHER_TEMPLATE}
    edit_json(folder / "tokenizer_config.json", chat_template="one")
    assert own_templates(folder) == {"default": "one"}


def test_a_revision_of_a_cached_repository_is_its_snapshot(folder: Path, tmp_path: Path) -> None:
    pinned = hub_cache(folder, tmp_path / "hub")
    repository = pinned.parents[1]
    for revision in (None, "main", COMMIT):
        assert snapshot(repository, revision) == pinned
    assert pin_source(str(repository)).location == str(pinned)
    with pytest.raises(ModelError, match=rf"no snapshot of v2 \(it has: {COMMIT}\)"):
        pin_source(str(repository), revision="v2")


def test_several_snapshots_without_a_main_one_have_to_be_chosen_from(
    folder: Path, tmp_path: Path
) -> None:
    pinned = hub_cache(folder, tmp_path / "hub")
    repository = pinned.parents[1]
    (repository / "refs" / "main").unlink()
    assert snapshot(repository) == pinned
    (repository / "snapshots" / "0123").mkdir()
    with pytest.raises(ModelError, match="or add one of its snapshots' folders"):
        snapshot(repository)


def test_a_revision_of_a_plain_folder_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="--revision is of Hugging Face ids"):
        pin_source(str(folder), revision="main")


def test_a_file_of_a_model_is_not_the_model(folder: Path) -> None:
    with pytest.raises(UsageError, match="is a file: add the folder it lies in"):
        pin_source(str(folder / WEIGHTS))
    with pytest.raises(NotFoundError):
        pin_source(str(folder / "gone.safetensors"))


def test_the_index_may_be_of_files_in_one_place_only(folder: Path) -> None:
    sharded(folder)
    where = json.loads((folder / INDEX).read_text())["weight_map"]
    assert len(set(where.values())) == 3
    check_model_folder(folder)
