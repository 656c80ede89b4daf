"""lm-evaluation-harness's side, run in an environment of its own as
`python harness.py FOLDER MODEL TASK`; writes `harness-TASK.jsonl`.

It imports nothing of ours. Tasks are those the harness ships, but for where their data lie.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MAX_TOKENS = 96

ARC = {
    "task": "parity_arc",
    "output_type": "multiple_choice",
    "doc_to_text": "Question: {{question}}\nAnswer:",
    "doc_to_target": "gold",
    "doc_to_choice": "{{choices}}",
    "metric_list": [
        {"metric": name, "aggregation": "mean", "higher_is_better": True}
        for name in ("acc", "acc_norm", "acc_bytes")
    ],
}
GSM8K = {
    "task": "parity_gsm8k",
    "output_type": "generate_until",
    "doc_to_text": "Question: {{question}}\nAnswer:",
    "doc_to_target": "{{answer}}",
    "num_fewshot": 2,
    "generation_kwargs": {
        "until": ["Question:", "</s>", "<|im_end|>"],
        "do_sample": False,
        "temperature": 0.0,
        "max_gen_toks": MAX_TOKENS,
    },
    "metric_list": [
        {
            "metric": "exact_match",
            "aggregation": "mean",
            "higher_is_better": True,
            "ignore_case": True,
            "ignore_punctuation": False,
            "regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"],
        }
    ],
    "filter_list": [
        {
            "name": "strict",
            "filter": [
                {"function": "regex", "regex_pattern": "#### (\\-?[0-9\\.\\,]+)"},
                {"function": "take_first"},
            ],
        },
        {
            "name": "flexible",
            "filter": [
                {
                    "function": "regex",
                    "group_select": -1,
                    "regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)",
                },
                {"function": "take_first"},
            ],
        },
    ],
}


def main(folder: Path, model: str, task: str) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    found = simple_evaluate(
        model="hf",
        model_args={"pretrained": model, "dtype": "float32", "device": "cpu"},
        tasks=[_task(folder, task)],
        batch_size=16,
        log_samples=True,
        task_manager=TaskManager(),
        bootstrap_iters=0,
    )
    samples = found["samples"][f"parity_{task}"]
    with (folder / f"harness-{task}.jsonl").open("w") as stream:
        for sample in samples:
            stream.write(json.dumps(_row(sample, task)) + "\n")


def _task(folder: Path, task: str) -> dict[str, Any]:
    dataset = {"dataset_path": "json", "test_split": "test"}
    if task == "arc":
        return {
            **ARC,
            **dataset,
            "dataset_kwargs": {"data_files": {"test": str(folder / "arc.jsonl")}},
        }
    with (folder / "gsm8k-examples.jsonl").open() as stream:
        examples = [json.loads(line) for line in stream]
    return {
        **GSM8K,
        **dataset,
        "dataset_kwargs": {"data_files": {"test": str(folder / "gsm8k.jsonl")}},
        "fewshot_config": {"sampler": "first_n", "samples": examples},
    }


def _row(sample: dict[str, Any], task: str) -> dict[str, Any]:
    shared = {"id": sample["doc"]["id"], "prompt": sample["arguments"]}
    if task == "arc":
        likelihoods = [float(response[0][0]) for response in sample["resps"]]
        marks = {name: sample[name] for name in ("acc", "acc_norm", "acc_bytes")}
        return {**shared, "likelihoods": likelihoods, "marks": marks}
    return {
        **shared,
        "text": sample["resps"][0][0],
        "filter": sample["filter"],
        "extracted": sample["filtered_resps"][0],
        "exact_match": sample["exact_match"],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
