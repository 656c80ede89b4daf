"""transformers' greedy answers in float32 of stored weights, for answers of ours to be held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from executor.number_types import cpu_types
from executor.stored import stored_types

TIES = {torch.float32: 1e-3, torch.bfloat16: 0.3}
"""A token whose logit is this near the largest, as a share of the logits' spread, may be chosen as
well: which of the two is larger is decided by rounding, by the type of the engine's products. A
token that is chosen by chance is two to three spreads behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A prompt and what a model said to it, without the token that ended it."""

    prompt: Sequence[int]
    tokens: Sequence[int]
    finish_reason: str


class Reference:
    """A checkpoint as transformers loads it, computed one sequence at a time without a cache."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self.tie = TIES[cpu_types(None, stored_types(str(folder), "", None).matrices).products]

    def prompt(self, messages: Sequence[Mapping[str, str]], template: str | None) -> list[int]:
        """Token ids; a `template` takes the place of the checkpoint's own."""
        ids: list[int] = self.tokenizer.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=True, return_dict=True
        )["input_ids"]
        return ids

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """After each token [T, V]."""
        row = torch.tensor([list(tokens)])
        found: torch.Tensor = self._model(input_ids=row, use_cache=False).logits[0].float()
        return found

    def continued(self, prompt: Sequence[int], length: int) -> list[int]:
        """The first `length` greedy tokens, whatever ends an answer."""
        tokens = list(prompt)
        for _ in range(length):
            tokens.append(int(self.logits(tokens)[-1].argmax()))
        return tokens[len(prompt) :]

    def tokens(self, entries: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of the tokens in a chat answer's log probabilities, by their bytes."""
        names = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        special = set(self.tokenizer.all_special_tokens)
        byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
        known = {
            name.encode() if name in special else bytes(byte_of[char] for char in name): token
            for token, name in enumerate(names)
        }
        return [known[bytes(entry["bytes"])] for entry in entries]


def check_greedy(reference: Reference, answer: Answer, *, ends: Set[int], max_tokens: int) -> None:
    """Fail unless each token is the greedy one after those before it, and the end is in place."""
    assert not ends & set(answer.tokens)
    logits = reference.logits([*answer.prompt, *answer.tokens])[len(answer.prompt) - 1 :]
    spread = float(logits.std())
    for place, (row, token) in enumerate(zip(logits, answer.tokens, strict=False)):
        behind = float(row.max() - row[token]) / spread
        assert behind <= reference.tie, f"token {place}, {token}, is {behind:.2g} off"
    if answer.finish_reason == "length":
        assert len(answer.tokens) == max_tokens
        return
    assert answer.finish_reason == "stop"
    end = max(float(logits[-1][token]) for token in ends)
    assert float(logits[-1].max()) - end <= reference.tie * spread
