"""The prefix tree of all that waits and runs: what is computed once for many, and kept how long.

A radix tree over prompt tokens, as in SGLang's RadixAttention (Zheng et al., 2024), of the known
work instead of the past: like BatchLLM (Zheng et al., MLSys'26) it keeps a prefix while somebody
waits for it and not a step longer. Sharing is by token: whole blocks are referenced, and of the
block where two prompts part the common beginning is copied.

A prompt whose tokens' log-probabilities are asked for shares with those of which as many are, in a
tree of their own, where every owner of keys and values has the log-probabilities as well. These
are taken over with them, up to the last token that is common: the next one's, which each has of
its own, comes of computing that token.

| quantity | invariant |
|---|---|
| `waiting`, `runners` of a node | the sequences whose prompts lead through it |
| `blocks` of a node | None, or referenced by the node and hold the KV of all tokens down to `end` |
| `scores` of a node | with its blocks, of all tokens down to `end`, where they are asked for |
| node with nobody waiting | holds no blocks |
| node with nobody waiting or running | is not in the tree |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from executor.blocks import BlockPool
from executor.request import TokenLogprob
from executor.sequence import Sequence

WORTHWHILE = 8
"""Fewer common tokens are computed again rather than waited for, kept or copied."""


@dataclass(slots=True, eq=False)
class PrefixNode:
    """Tokens [start, end) of all prompts that lead through it; those of `prompt`, for one."""

    parent: PrefixNode | None
    prompt: tuple[int, ...]
    start: int
    end: int
    arrival: int
    """Of the first sequence that came this way."""
    children: dict[int, PrefixNode] = field(default_factory=dict)
    waiting: int = 0
    runners: dict[Sequence, None] = field(default_factory=dict)
    blocks: list[int] | None = None
    scores: list[TokenLogprob] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _Owner:
    """Who has the blocks and the log-probabilities of all tokens down to a node."""

    blocks: list[int]
    scores: list[TokenLogprob]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The first `tokens` of a sequence are in `table`; `coming` are once a running one is there.
    The first `num_scores` of `scores` are the log-probabilities of its own tokens from the second
    on."""

    tokens: int = 0
    table: list[int] = field(default_factory=list)
    scores: list[TokenLogprob] = field(default_factory=list)
    num_scores: int = 0
    coming: int = 0

    @property
    def is_worth_waiting(self) -> bool:
        return self.coming - self.tokens >= WORTHWHILE


class PrefixTree:
    """Follows sequences from `enter` (waiting) over `start` (running) to `stop` or `leave`."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._roots: dict[int | None, PrefixNode] = {}
        self._retained: dict[PrefixNode, None] = {}

    @staticmethod
    def _new_root() -> PrefixNode:
        return PrefixNode(parent=None, prompt=(), start=0, end=0, arrival=0)

    def private_root(self) -> PrefixNode:
        """For the choices of one request that is to share with no other."""
        return self._new_root()

    def enter(self, sequence: Sequence, root: PrefixNode | None = None) -> None:
        """It waits; below `root`, if given, where no other request is."""
        if sequence.leaf is None:
            sequence.leaf = self._insert(root or self._root_of(sequence), sequence)
        for node in ancestry(sequence.leaf):
            node.waiting += 1

    def start(self, sequence: Sequence) -> None:
        """It waited and runs now."""
        for node in ancestry(sequence.leaf):
            node.waiting -= 1
            node.runners[sequence] = None
            if not node.waiting:
                self._release(node)

    def pause(self, sequence: Sequence) -> None:
        """It ran and waits again, to make room: what it leaves is not kept."""
        for node in ancestry(sequence.leaf):
            del node.runners[sequence]
            node.waiting += 1

    def stop(self, sequence: Sequence) -> None:
        """It ran and has ended; what others wait for is kept."""
        for node in list(ancestry(sequence.leaf)):
            del node.runners[sequence]
            if self._is_to_be_kept(node, sequence):
                node.blocks = sequence.block_table[: -(-node.end // self._block_size)]
                node.scores = sequence.group.prompt_logprobs
                self._pool.share(node.blocks)
                self._retained[node] = None
            self._prune(node)

    def leave(self, sequence: Sequence) -> None:
        """It waited and is no longer wanted."""
        for node in list(ancestry(sequence.leaf)):
            node.waiting -= 1
            if not node.waiting:
                self._release(node)
            self._prune(node)

    def match(self, sequence: Sequence) -> Match:
        """What `sequence`, which must compute its last token itself, need not compute."""
        coming = 0
        for node in ancestry(sequence.leaf):
            depth = _reach(sequence, node)
            owner = self._owner(node)
            if owner is not None:
                return Match(
                    tokens=self._usable(depth),
                    table=owner.blocks,
                    scores=owner.scores,
                    num_scores=node.end - 1,
                    coming=coming,
                )
            if node.runners:
                coming = max(coming, depth)
        return Match(coming=coming)

    def evict(self) -> bool:
        """Let go of the kept prefix that the fewest wait for; False if none is kept."""
        if not self._retained:
            return False
        # Whoever waits for a node waits for those above it: a tie is between node and ancestor.
        self._release(min(self._retained, key=lambda node: (node.waiting, -node.end)))
        return True

    def shared_tokens(self) -> int:
        """Tokens that several sequences have in common and some wait for."""
        return sum(
            node.size
            for node in self._nodes()
            if node.waiting and node.waiting + len(node.runners) > 1
        )

    def tables(self) -> list[list[int]]:
        """The blocks that nodes hold, node by node."""
        return [node.blocks for node in self._retained if node.blocks is not None]

    @property
    def is_empty(self) -> bool:
        return not self._retained and not any(root.children for root in self._roots.values())

    def _root_of(self, sequence: Sequence) -> PrefixNode:
        kind = sequence.request.sampling.prompt_logprobs
        return self._roots.setdefault(kind, self._new_root())

    def _nodes(self) -> Iterator[PrefixNode]:
        stack = [node for root in self._roots.values() for node in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _insert(self, root: PrefixNode, sequence: Sequence) -> PrefixNode:
        prompt = sequence.request.prompt_token_ids
        node = root
        while node.end < len(prompt):
            child = node.children.get(prompt[node.end])
            if child is None:
                child = PrefixNode(node, prompt, node.end, len(prompt), sequence.arrival)
                node.children[prompt[node.end]] = child
                return child
            parting = _parting(prompt, child)
            node = child if parting == child.end else self._split(child, parting)
        return node

    def _split(self, lower: PrefixNode, at: int) -> PrefixNode:
        """Part `lower` at depth `at`, and return the new node above it."""
        parent = lower.parent
        assert parent is not None
        upper = PrefixNode(parent, lower.prompt, lower.start, at, lower.arrival)
        upper.children = {lower.prompt[at]: lower}
        upper.waiting, upper.runners = lower.waiting, dict(lower.runners)
        if lower.blocks is not None:
            upper.blocks = lower.blocks[: -(-at // self._block_size)]
            upper.scores = lower.scores
            self._pool.share(upper.blocks)
            self._retained[upper] = None
        parent.children[lower.prompt[lower.start]] = upper
        lower.parent, lower.start = upper, at
        return upper

    def _owner(self, node: PrefixNode) -> _Owner | None:
        if node.blocks is not None:
            return _Owner(node.blocks, node.scores)
        for runner in node.runners:
            if runner.computed >= node.end:
                return _Owner(runner.block_table, runner.group.prompt_logprobs)
        return None

    def _is_to_be_kept(self, node: PrefixNode, leaving: Sequence) -> bool:
        return (
            node.waiting > 0
            and node.size >= WORTHWHILE
            and leaving.computed >= node.end
            and self._owner(node) is None
        )

    def _usable(self, depth: int) -> int:
        beyond_whole_blocks = depth % self._block_size
        return depth if beyond_whole_blocks >= WORTHWHILE else depth - beyond_whole_blocks

    def _release(self, node: PrefixNode) -> None:
        if node.blocks is not None:
            self._pool.release(node.blocks)
            node.blocks, node.scores = None, []
            del self._retained[node]

    def _prune(self, node: PrefixNode) -> None:
        if not node.waiting and not node.runners and node.parent is not None:
            del node.parent.children[node.prompt[node.start]]


def ancestry(leaf: PrefixNode | None) -> Iterator[PrefixNode]:
    """From the leaf up to the root, without that."""
    node = leaf
    while node is not None and node.parent is not None:
        yield node
        node = node.parent


def _reach(sequence: Sequence, node: PrefixNode) -> int:
    """How many of its tokens a sequence may take over from who has all those down to the node."""
    group, most = sequence.group, len(sequence.tokens) - 1
    if not group.scores_prompt:
        return min(node.end, most)
    return min(node.end, most, max(node.end - 1, len(group.prompt_logprobs)))


def _parting(prompt: tuple[int, ...], node: PrefixNode) -> int:
    """The depth, behind the node's first token, at which `prompt` and the node's part."""
    low, high = node.start + 1, min(node.end, len(prompt))
    if prompt[low:high] == node.prompt[low:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if prompt[low:middle] == node.prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
