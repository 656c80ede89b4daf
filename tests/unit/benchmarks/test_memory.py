"""What a worker's peak memory is made of."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.memory import MB, MemoryUse, checkpoint_bytes, memory_options
from benchmarks.models import BenchModel
from benchmarks.process import WorkerProcess
from benchmarks.setup import Setup
from tests.support.tiny_models import save_tiny, tiny_config


def use(peak: int) -> MemoryUse:
    return MemoryUse(
        checkpoint=270 * MB,
        packed=650 * MB,
        cache=250 * MB,
        libraries=340 * MB,
        loaded=1100 * MB,
        peak=peak,
        anonymous=900 * MB,
        mapped=200 * MB,
    )


def test_the_rest_is_the_peak_without_weights_and_cache() -> None:
    within, over = use(1_400 * MB), use(1_412 * MB + MB // 2)
    assert within.rest == 500 * MB
    assert list(within.lines())[-1].endswith("500.0 MB  allowed: 500 MB")
    assert over.rest == 512 * MB + MB // 2
    assert list(over.lines())[-1].endswith("512.5 MB  allowed: 500 MB, 12.5 MB too much")


def setup_of(folder: Path, scratch: Path) -> Setup:
    return Setup(
        model=BenchModel(name="tiny", folder=folder, settings={"dtype": "float32"}),
        gguf=None,
        folder=scratch,
        raw=scratch / "raw.jsonl",
        threads=1,
        repeats=1,
        lock=None,
    )


def test_the_cache_is_small_unless_the_model_asks_for_more(tmp_path: Path) -> None:
    options = memory_options(setup_of(tmp_path, tmp_path))
    assert options["settings"] == {"kv_cache_memory": 256 << 20, "dtype": "float32"}


def test_a_worker_tells_what_its_process_has(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    save_tiny(model, tiny_config("llama"))
    setup = setup_of(model, tmp_path)
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps({"prompts": [[3, 4, 5]], "max_tokens": [4]}))
    options = memory_options(setup)
    with (
        (tmp_path / "log").open("w") as log,
        WorkerProcess(Path(sys.executable), "memory.py", options, log) as worker,
    ):
        reply = worker.answer(workload)
    measured = MemoryUse(checkpoint=checkpoint_bytes(setup), **reply["memory"])
    assert len(reply["answers"][0]) == 4
    assert 0 < measured.packed < 2 * measured.checkpoint
    assert measured.cache == 128 * 256 * 384  # sequences of 256 tokens, of 384 bytes each
    assert measured.libraries < measured.loaded <= measured.peak
    assert measured.libraries + measured.cache < measured.peak
    assert measured.anonymous > measured.cache
    assert measured.peak <= reply["peak_rss_mib"] * (1 << 20)
