"""Weights that do not fit the memory are refused with the numbers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from executor import sizing
from executor.errors import EngineError
from executor.number_types import cpu_types
from executor.sizing import check_weights_fit
from tests.support.tiny_models import tiny_config, tiny_model


def test_weights_that_do_not_fit_are_refused_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(tiny_config("llama"), attention="eager")
    linear = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    others = sum(p.numel() for p in model.parameters()) - linear
    full = cpu_types(None, torch.float32)
    needed = {full: 4 * (linear + others), cpu_types(torch.float16, None): 2 * linear + 4 * others}
    for types, size in needed.items():
        monkeypatch.setattr(
            sizing.psutil, "virtual_memory", lambda size=size: SimpleNamespace(available=size)
        )
        check_weights_fit(model, types, name="m")
        monkeypatch.setattr(
            sizing.psutil, "virtual_memory", lambda size=size: SimpleNamespace(available=size - 1)
        )
        with pytest.raises(EngineError) as refused:
            check_weights_fit(model, types, name="m")
        text = str(refused.value)
        assert text.startswith("The weights of m take 0.0 GB of memory (")
        assert f"{linear:,} numbers of linear layers in " in text
        assert ("Half as much will do with dtype bfloat16." in text) == (types == full)
