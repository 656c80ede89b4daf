"""What a plain loop with padding would have computed for the same static batches."""

from __future__ import annotations

from executor.sequence import Sequence


class PaddedBatches:
    """Every member's prompt padded to the longest, and decoded until the longest answer ends."""

    def __init__(self) -> None:
        self._longest_prompt = self._longest_answer = 0

    def end(self, sequence: Sequence) -> None:
        """A member of the batch at hand has ended."""
        prompt = len(sequence.request.prompt_token_ids)
        self._longest_prompt = max(self._longest_prompt, prompt)
        self._longest_answer = max(self._longest_answer, sequence.num_generated)

    def close(self, width: int) -> int:
        """The batch of `width` has ended: its positions. The last token is not among them."""
        longest = self._longest_prompt + max(self._longest_answer, 1) - 1
        self._longest_prompt = self._longest_answer = 0
        return width * longest
