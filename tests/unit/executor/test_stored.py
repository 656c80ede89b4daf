"""Types of weights by the headers of safetensors files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from executor.stored import StoredTypes, stored_types

BF16, F32 = torch.bfloat16, torch.float32
MATRIX, NORM = torch.ones(2, 3), torch.ones(3)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([{"a": MATRIX.to(BF16), "n": NORM.to(BF16)}], StoredTypes(BF16, BF16)),
        ([{"a": MATRIX.to(BF16)}, {"n": NORM}], StoredTypes(None, BF16)),
        ([{"a": MATRIX.to(BF16)}, {"b": MATRIX}], StoredTypes(None, None)),
        ([{"a": MATRIX.half(), "n": NORM.half()}], StoredTypes(torch.float16, torch.float16)),
        ([{"a": MATRIX.to(torch.float8_e4m3fn)}], StoredTypes(F32, F32)),
        ([], StoredTypes(F32, F32)),
    ],
    ids=["all alike", "norms in float32", "mixed", "float16", "8 bits", "no files"],
)
def test_types_are_read_from_the_headers(
    files: list[dict[str, torch.Tensor]], expected: StoredTypes, tmp_path: Path
) -> None:
    for index, tensors in enumerate(files):
        save_file(tensors, tmp_path / f"model-{index}.safetensors")
    assert stored_types(str(tmp_path), "", F32) == expected


def test_file_that_is_cut_off_is_told(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff\x00\x00\x00\x00\x00\x00\x00{")
    with pytest.raises(ValueError):  # noqa: PT011 - the text is json's own
        stored_types(str(tmp_path), "", F32)
