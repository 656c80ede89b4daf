from __future__ import annotations

import pytest

from batchjobs.endpoints.reasoning import (
    opens_with_reasoning,
    reasoning_tokens,
    split_reasoning,
)
from tests.support.tokenizer import ByteTokenizer


@pytest.mark.parametrize(
    ("text", "is_open", "reasoning", "answer"),
    [
        ("Four.", False, None, "Four."),
        ("<think>\n2 and 2\n</think>\n\nFour.", False, "2 and 2", "Four."),
        ("\n<think>2 and 2</think>Four.", False, "2 and 2", "Four."),
        ("2 and 2\n</think>\n\nFour.", True, "2 and 2", "Four."),
        ("2 and 2\n</think>\n\nFour.", False, "2 and 2", "Four."),
        ("<think>\n\n</think>\n\nFour.", False, None, "Four."),
        ("<think>\n2 and", False, "2 and", ""),
        ("2 and", True, "2 and", ""),
        ("", True, None, ""),
        ("Write <think>x</think>.", False, None, "Write <think>x</think>."),
        ("<think>a</think>b</think>", False, "a", "b</think>"),
    ],
)
def test_reasoning_is_told_from_the_answer(
    text: str, is_open: bool, reasoning: str | None, answer: str
) -> None:
    assert split_reasoning(text, is_open=is_open) == (reasoning, answer)


@pytest.mark.parametrize(
    ("prompt", "is_open"),
    [
        ("assistant:<think>", True),
        ("assistant:<think>\n", True),
        ("assistant:<think>\n\n</think>\n\n", False),
        ("<think> assistant:", False),
        ("", False),
    ],
)
def test_a_prompt_may_end_within_reasoning(prompt: str, is_open: bool) -> None:
    assert opens_with_reasoning(prompt) is is_open


@pytest.mark.parametrize(
    ("text", "count"), [("<think>a</think>bc", 16), ("a</think>", 9), ("abc", 3), ("", 0)]
)
def test_tokens_up_to_the_end_of_reasoning_are_counted(text: str, count: int) -> None:
    assert reasoning_tokens(tuple(text.encode()), ByteTokenizer()) == count
