"""Prompts and inputs that are token ids already."""

from __future__ import annotations

from typing import Any

from batchjobs.endpoints.fields import invalid_value, wrong_type


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_token_ids(name: str, token_ids: list[Any], vocab_size: int) -> list[int]:
    """The array `name` of the body, whose elements must be ids of the vocabulary.

    Raises:
        InvalidRequestError: one is not, by its place in the array.
    """
    for index, token_id in enumerate(token_ids):
        if not is_integer(token_id):
            raise wrong_type(f"{name}[{index}]", "a token id (an integer)", token_id)
        if not 0 <= token_id < vocab_size:
            why = f"token id {token_id} is outside the vocabulary of {vocab_size}."
            raise invalid_value(f"{name}[{index}]", why)
    return token_ids
