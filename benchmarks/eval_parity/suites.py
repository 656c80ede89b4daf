"""The same two tasks as suites of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from benchmarks.eval_parity.harness import MAX_TOKENS

MODEL = "parity"
PROMPT = "Question: {{ question }}\nAnswer:"
_IGNORED = [",", "\\$", "(?s).*#### ", "\\.$"]
_SHARED: dict[str, Any] = {
    "type": "regex",
    "target": "{{ answer }}",
    "ignore": _IGNORED,
    "ignore_case": True,
}


def write_suites(folder: Path) -> dict[str, Path]:
    """The suites' files by task, beside their datasets."""
    return {
        task: _write(folder / f"{task}.yaml", suite)
        for task, suite in (("arc", _arc()), ("gsm8k", _gsm8k()))
    }


def _arc() -> dict[str, Any]:
    return {
        "suite": "parity-arc",
        "dataset": {"source": "arc.jsonl"},
        "model": MODEL,
        "request": {"endpoint": "completions", "prompt": PROMPT, "choices": "choices"},
        "scorers": [{"type": "choice", "gold": "gold"}],
    }


def _gsm8k() -> dict[str, Any]:
    return {
        "suite": "parity-gsm8k",
        "dataset": {"source": "gsm8k.jsonl"},
        "model": MODEL,
        "request": {
            "endpoint": "completions",
            "prompt": PROMPT,
            "fewshot": {"source": "gsm8k-examples.jsonl", "answer": " {{ answer }}"},
            "sampling": {
                "temperature": 0,
                "max_tokens": MAX_TOKENS,
                "stop": ["Question:", "</s>", "<|im_end|>"],
            },
            "truncated": "score",
        },
        "scorers": [
            {**_SHARED, "name": "strict", "pattern": "#### (\\-?[0-9\\.\\,]+)"},
            {
                **_SHARED,
                "name": "flexible",
                "which": "last",
                "pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)",
            },
        ],
    }


def _write(path: Path, suite: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(suite, sort_keys=False))
    return path
