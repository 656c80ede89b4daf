"""How close a run came to what the machine could have done: its roofline (Williams et al., 2009).

| quantity | per step |
|---|---|
| FLOPs | 2·body·positions + 2·head·sampled rows + attention·Σ over positions of their contexts |
| bytes | all weights once + the keys and values of every context once, shared blocks once |
| least seconds | the greater of FLOPs / peak and bytes / bandwidth: perfect overlap |

Work is counted as it was done. What was computed twice counts twice, so the percentage says how
well the machine was used, not how little there was to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

_BINS_PER_OCTAVE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCost:
    """What a model costs by its shapes; layers that see a window only count as if they saw all.

    `body` and `head` are weights that multiply each position and each sampled row; `attention`
    FLOPs for a position and a token of its context, all layers; `weight_bytes` are read in every
    step, `kv_bytes` for every token of a context.
    """

    body: int
    head: int
    attention: int
    weight_bytes: int
    kv_bytes: int

    def flops(self, work: StepWork) -> float:
        return (
            2.0 * self.body * work.positions
            + 2.0 * self.head * work.rows
            + float(self.attention) * work.attended
        )

    def bytes(self, work: StepWork) -> float:
        return float(self.weight_bytes) + float(self.kv_bytes) * work.kv_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """One step: positions computed, rows sampled, contexts summed over positions, and tokens whose
    keys and values it had to read."""

    positions: int
    rows: int
    attended: int
    kv_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePeak:
    """Measured, in FLOP/s and bytes/s: best and median of all matrix products, best read.

    `packed_flops` is the best of products with a packed weight (`linear`), if there are any here:
    on some CPUs torch's own product is no limit.
    """

    flops: float
    median_flops: float
    bandwidth: float
    packed_flops: float | None = None

    @property
    def ridge(self) -> float:
        """FLOPs per byte from which on a step is bound by computing."""
        return self.flops / self.bandwidth

    @property
    def with_packed_weights(self) -> MachinePeak | None:
        """The limit of what multiplies by packed weights."""
        return None if self.packed_flops is None else replace(self, flops=self.packed_flops)


@dataclass(slots=True)
class _Bin:
    flops: float = 0.0
    bytes: float = 0.0


@dataclass(slots=True)
class WorkTally:
    """Work of any number of steps in bounded memory, before the machine's peak is known.

    Steps are added up by their FLOPs per byte, in bins a fifth wide: whether computing or memory
    bounds a step is then known for each bin but the one that the ridge falls into.
    """

    cost: ModelCost
    steps: int = 0
    _bins: dict[int, _Bin] = field(default_factory=dict)

    def add(self, work: StepWork) -> None:
        flops, size = self.cost.flops(work), self.cost.bytes(work)
        if flops <= 0 or size <= 0:
            return
        bin_ = self._bins.setdefault(round(_BINS_PER_OCTAVE * math.log2(flops / size)), _Bin())
        bin_.flops += flops
        bin_.bytes += size
        self.steps += 1

    def reset(self) -> None:
        self.steps = 0
        self._bins.clear()

    @property
    def flops(self) -> float:
        return sum(bin_.flops for bin_ in self._bins.values())

    @property
    def bytes(self) -> float:
        return sum(bin_.bytes for bin_ in self._bins.values())

    def least_seconds(self, peak: MachinePeak) -> float:
        """What the work takes at the peak, each step bound by the slower of the two."""
        return sum(
            max(bin_.flops / peak.flops, bin_.bytes / peak.bandwidth)
            for bin_ in self._bins.values()
        )

    def share_of_roofline(self, peak: MachinePeak, seconds: float) -> float:
        """1 is the machine's limit; 0 for no time at all."""
        return self.least_seconds(peak) / seconds if seconds > 0 else 0.0


def step_work(spans: Iterable[tuple[int, int, int]], *, kv_tokens: int) -> StepWork:
    """Of spans (start, count, sampled rows): position p of a sequence attends to p + 1 tokens."""
    positions = rows = attended = 0
    for start, count, sampled in spans:
        positions += count
        rows += sampled
        attended += count * start + count * (count + 1) // 2
    return StepWork(positions=positions, rows=rows, attended=attended, kv_tokens=kv_tokens)
