"""Our engine and variants of it in turn, on a tiny model: real workers, real answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import measure
from benchmarks.models import BenchModel
from benchmarks.setup import Setup
from benchmarks.table import table
from tests.support.tiny_models import save_tiny, tiny_config

COUNT = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> BenchModel:
    folder = tmp_path_factory.mktemp("model")
    save_tiny(folder, tiny_config("llama", max_position_embeddings=4096))
    settings = {"dtype": "float32", "kv_cache_memory": 1 << 23, "max_num_seqs": 4}
    return BenchModel(name="tiny", folder=folder, settings=settings)


def records(names: list[str], model: BenchModel, folder: Path, **more: Any) -> list[dict[str, Any]]:
    setup = Setup(
        model=model,
        gguf=None,
        folder=folder,
        raw=folder / "raw.jsonl",
        threads=1,
        repeats=1,
        lock=None,
        most_tokens=5,
        **more,
    )
    measured = measure(names, "mixed", COUNT, setup)
    assert [json.loads(line) for line in setup.raw.read_text().splitlines()] == measured
    return measured


@pytest.mark.slow
def test_variants_take_turns_and_their_settings_are_in_the_record(
    model: BenchModel, tmp_path: Path
) -> None:
    ours, other = records(["ours-no-guesses"], model, tmp_path)
    assert (ours["engine"], other["engine"]) == ("ours", "ours-no-guesses")
    assert other["settings"]["asked"]["num_speculative_tokens"] == 0
    assert other["settings"]["dtype"] == "float32"
    for record in (ours, other):
        assert (record["model"], record["natural"]) == ("tiny", False)
        assert record["generated_tokens"] == record["output_tokens"] == COUNT * 5
        assert (record["equal_answers"], record["equal_share"]) == (COUNT, 1)
    row = list(table([ours, other]))[-1]
    assert "| tiny | mixed, 3 | ours " in row
    assert "ours-no-guesses" in row
    assert "float32, 4 / " in row


def test_natural_answers_end_by_themselves_and_are_counted(
    model: BenchModel, tmp_path: Path
) -> None:
    every_token_ends = tmp_path / "ending"
    every_token_ends.mkdir()
    for file in model.folder.iterdir():
        (every_token_ends / file.name).write_bytes(file.read_bytes())
    generation = every_token_ends / "generation_config.json"
    settings = json.loads(generation.read_text())
    generation.write_text(json.dumps({**settings, "eos_token_id": list(range(128))}))
    ending = BenchModel(name="ending", folder=every_token_ends, settings=model.settings)
    [record] = records([], ending, tmp_path, natural=True, fresh=True)
    assert record["natural"]
    assert record["output_tokens"] == COUNT * 5
    assert (record["generated_tokens"], record["equal_share"]) == (0, 1)
