"""Logits of chosen rows afterwards are those the model itself gives there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from executor.errors import UnsupportedModelError
from executor.head import Head
from tests.support.tiny_models import FAMILIES, tiny_config, tiny_model

OTHERS = ("gpt2", "gpt_neox", "opt", "cohere", "mixtral")


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_rows_have_the_logits_that_the_model_gives_them(family: str) -> None:
    model = tiny_model(tiny_config(family), attention="eager")
    head = Head(model)
    tokens = torch.arange(3, 15)[None]
    with torch.inference_mode():
        own = model(input_ids=tokens, use_cache=False).logits[0]
        rows = head.logits(torch.tensor([2, 11, 5]))
        again = model(input_ids=tokens.flip(1), use_cache=False).logits[0]
        assert not torch.allclose(again, own)
        torch.testing.assert_close(head.logits(torch.tensor([0])), again[:1])
    torch.testing.assert_close(rows, own[[2, 11, 5]], rtol=1e-4, atol=1e-4)


def test_a_model_without_a_decoder_is_refused() -> None:
    bare = nn.Linear(2, 2)
    bare.get_input_embeddings = lambda: SimpleNamespace()  # type: ignore[assignment]
    with pytest.raises(UnsupportedModelError, match="Linear has no decoder"):
        Head(bare)
