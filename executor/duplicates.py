"""Requests that are bound to have the same answer, so that it is computed once."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from dataclasses import replace

from executor.request import FinishReason, Request
from executor.sequence import Answer, Group

REMEMBERED_TOKENS = 1 << 18
"""Of finished answers, whose requests may come again; log-probabilities count as tokens."""


class Duplicates:
    """Groups in the engine and answers lately finished, by `digest` of their request.

    All sampling here is a function of the prompt, the parameters and the seed, so that equal ones
    have equal answers; for greedy requests the seed is not among them.
    """

    def __init__(self) -> None:
        self._groups: dict[bytes, Group] = {}
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self._remembered = 0

    def group(self, digest: bytes) -> Group | None:
        """An unfinished group whose answer will be the request's."""
        return self._groups.get(digest)

    def answer(self, digest: bytes) -> Answer | None:
        """The answer of an equal request that has ended."""
        if digest in self._answers:
            self._answers.move_to_end(digest)
        return self._answers.get(digest)

    def add(self, group: Group) -> None:
        if group.digest is not None:
            self._groups[group.digest] = group

    def remove(self, group: Group) -> None:
        """It has ended or is no longer wanted; what it has answered is remembered."""
        if group.digest is None:
            return
        del self._groups[group.digest]
        in_time = all(c.finish_reason is not FinishReason.TIMEOUT for c in group.choices)
        if group.is_complete and in_time:
            self._answers[group.digest] = answer = group.answer()
            self._remembered += answer.size
        while self._remembered > REMEMBERED_TOKENS:
            _, forgotten = self._answers.popitem(last=False)
            self._remembered -= forgotten.size


def digest(request: Request) -> bytes:
    """16 bytes that are the same for requests that are bound to have the same answer."""
    sampling = request.sampling
    if sampling.temperature == 0:
        sampling = replace(sampling, seed=0)
    prompt = array("q", request.prompt_token_ids).tobytes()
    words = f"{len(prompt)} {sampling} {request.timeout_seconds}"
    return hashlib.blake2b(words.encode() + prompt, digest_size=16).digest()
