"""transformers: `generate` in static batches (`mode` static or sorted), or its own continuous
batching (`mode` cb)."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from serve import Peer, Tokens, Workload, serve
from transformers import AutoModelForCausalLM, GenerationConfig

_BATCH_SIZE = 32


def load(options: dict[str, Any]) -> Peer:
    torch.set_num_threads(options["threads"])
    model: Any = AutoModelForCausalLM.from_pretrained(
        options["model"], dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    mode = options["mode"]

    def answer(workload: Workload) -> tuple[Tokens, dict[str, Any]]:
        if mode == "cb":
            return _continuous(model, workload), {}
        return _static(model, workload, by_length=mode == "sorted"), {}

    return Peer(
        version=transformers.__version__,
        settings={"mode": mode, "batch": None if mode == "cb" else _BATCH_SIZE},
        answer=answer,
    )


@torch.inference_mode()
def _static(model: Any, workload: Workload, *, by_length: bool) -> Tokens:
    prompts, lengths = workload.prompts, workload.max_tokens
    order = list(range(len(prompts)))
    if by_length:
        order.sort(key=lambda i: (lengths[i], len(prompts[i])))
    answers: Tokens = [[] for _ in order]
    for start in range(0, len(order), _BATCH_SIZE):
        batch = order[start : start + _BATCH_SIZE]
        width = max(len(prompts[i]) for i in batch)
        rows = [[0] * (width - len(prompts[i])) + prompts[i] for i in batch]
        mask = [[0] * (width - len(prompts[i])) + [1] * len(prompts[i]) for i in batch]
        config = GenerationConfig(
            max_new_tokens=max(lengths[i] for i in batch),
            do_sample=False,
            pad_token_id=0,
            eos_token_id=[],  # None would be the model's own
        )
        output = model.generate(
            input_ids=torch.tensor(rows),
            attention_mask=torch.tensor(mask),
            generation_config=config,
        )
        for i, row in zip(batch, output[:, width:].tolist(), strict=True):
            answers[i] = row[: lengths[i]]
    return answers


def _continuous(model: Any, workload: Workload) -> Tokens:
    config = GenerationConfig(
        do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=max(workload.max_tokens)
    )
    manager = model.init_continuous_batching(generation_config=config)
    manager.start()
    pairs = zip(workload.prompts, workload.max_tokens, strict=True)
    for i, (prompt, length) in enumerate(pairs):
        manager.add_request(prompt, max_new_tokens=length, request_id=str(i))
    answers: dict[int, list[int]] = {}
    while len(answers) < len(workload.prompts):
        result = manager.get_result(timeout=60)
        if result is None:
            if not manager.is_running():
                raise SystemExit("transformers' manager died")
        elif result.is_finished():
            answers[int(result.request_id)] = list(result.generated_tokens)
    manager.stop(block=True)
    return [answers[i] for i in range(len(answers))]


if __name__ == "__main__":
    serve(load)
