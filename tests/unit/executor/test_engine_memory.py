"""What an engine keeps of a long run."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from executor.engine import Engine
from executor.fake import VOCABULARY, ByteTokenizer
from executor.request import Request, SamplingParams
from executor.settings import Scheduling, Speculation
from executor.span import Span
from tests.support.engine_runs import limits


class ConstantModel:
    """Says the same at once, so that thousands of requests take seconds."""

    def __init__(self) -> None:
        self._row = torch.zeros(VOCABULARY)
        self._row[65] = 1.0

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """There is nothing to copy."""

    def forward(self, spans: list[Span]) -> Tensor:
        return self._row.expand(sum(span.rows for span in spans), -1)


def requests(count: int) -> Iterator[Request]:
    """Half of them in pairs that are equal, all with a common beginning."""
    for number in range(count):
        prompt = (*b"common beginning ", *str(number // 2 * 2).encode())
        sampling = SamplingParams(
            temperature=0, max_tokens=3, ignore_eos=True, logprobs=5, stop=("zz",)
        )
        yield Request(id=str(number), prompt_token_ids=prompt, sampling=sampling)


def test_nothing_is_kept_of_requests_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.duplicates.REMEMBERED_TOKENS", 2_000)
    speculation = Speculation(num_speculative_tokens=2, prompt_lookup_min=1)
    engine = Engine(
        ConstantModel(),  # type: ignore[arg-type]
        ByteTokenizer(),
        limits(seqs=32, tokens=512, blocks=512),
        Scheduling(speculation=speculation),
    )
    held = {}
    tracemalloc.start()
    try:
        for number, _ in enumerate(engine.run(requests(4_000))):
            if number in {1_000, 3_900}:
                gc.collect()
                held[number] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert engine.metrics.num_deduplicated_requests_total > 0
    assert held[3_900] - held[1_000] < 100_000
