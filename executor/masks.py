"""What the answers with a grammar may go on with, found out while the model computes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.grammar import GrammarLibrary, Matcher, allowed_tokens, new_mask
from executor.sequence import Sequence

Banned = NDArray[np.bool_]
"""Tokens that may not come, [R, V]."""


class Masks:
    """The masks of one step; `rows` are its rows of logits that have one."""

    def __init__(self, rows: list[int], banned: Future[Banned]) -> None:
        self.rows = rows
        self._banned = banned

    @torch.inference_mode()
    def apply(self, logits: Tensor, *, keep: bool) -> Tensor:
        """Logits [R, V] with minus infinity for what may not come; `keep` leaves the argument as
        it is. Waits for the masks."""
        if not self.rows:
            return logits
        banned = torch.from_numpy(self._banned.result()).to(logits.device)
        masked = logits.clone() if keep else logits
        known = min(banned.shape[1], masked.shape[1])
        banned = banned[:, :known]
        if len(self.rows) == len(masked):
            masked[:, :known].masked_fill_(banned, -torch.inf)
            masked[:, known:] = -torch.inf
            return masked
        for row, own in zip(self.rows, banned, strict=True):
            masked[row, :known].masked_fill_(own, -torch.inf)
            masked[row, known:] = -torch.inf
        return masked


class MaskThread:
    """Fills masks in a thread of its own; the library computes them without Python's lock."""

    def __init__(self, library: GrammarLibrary, eos_token_ids: Many[int]) -> None:
        self._library = library
        self._eos = sorted(eos_token_ids)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="masks")

    def begin(self, ready: Many[Sequence], goes_on: Callable[[Sequence], bool]) -> Masks:
        """Start on the masks of those of `ready` that have a grammar. Those for whom it `goes_on`
        may not end unless nothing else is left to them."""
        rows = [row for row, sequence in enumerate(ready) if sequence.matcher is not None]
        matchers = [s.matcher for s in ready if s.matcher is not None]
        going_on = [place for place, row in enumerate(rows) if goes_on(ready[row])]
        return Masks(rows, self._thread.submit(self._fill, matchers, going_on))

    def _fill(self, matchers: Many[Matcher], going_on: Many[int]) -> Banned:
        vocab_size = self._library.vocab_size
        mask = new_mask(len(matchers), vocab_size)
        self._library.fill(matchers, mask)
        allowed = allowed_tokens(mask, vocab_size)
        for place in going_on:
            others = allowed[place].copy()
            others[self._eos] = False
            if others.any():
                allowed[place] = others
        # Where a matcher has given up, any token will do: it says so when it is given one.
        allowed[~allowed.any(axis=1)] = True
        return ~allowed
