"""The baseline: static batching in a plain transformers `generate` loop.

A batch is padded to its longest prompt and runs until its longest answer ends; what ends sooner
keeps its slot. It is given each answer's length, and with `by_length` even an order in which
answers of like length share a batch, which nobody knows beforehand: both favour it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessor
from transformers.utils import logging as transformers_logging

from batchjobs.models import Model
from batchjobs.worker.bench.ways import Answers, WayResult, answer_key
from batchjobs.worker.run_figures import RunFigures
from executor.device import DevicePlan
from executor.histogram import Histogram
from executor.loading import Checkpoint
from executor.recorder import Moment
from executor.request import Request

BATCH_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A request, and how many tokens its answer has."""

    id: str
    prompt: tuple[int, ...]
    length: int


@dataclass(slots=True)
class _Account:
    """What is noted while batches run."""

    started: float
    steps: Histogram = field(default_factory=Histogram)
    first_tokens: Histogram = field(default_factory=Histogram)
    course: list[Moment] = field(default_factory=list)
    busy: float = 0.0
    computed: int = 0
    useful: int = 0

    def note(self, running: int, at: float, until: float) -> None:
        self.steps.add(until - at)
        self.busy += running * (until - at)
        self.course.append(Moment(at - self.started, running))


class _Clock(LogitsProcessor):  # type: ignore[misc]
    """Looks at the clock after each forward pass."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.times.append(time.perf_counter())
        return scores


class StaticModel:
    """The model as transformers loads it, on the device and threads that our engine chose."""

    def __init__(self, model: Model, device: DevicePlan) -> None:
        checkpoint = Checkpoint(source=model.source, revision=model.revision)
        transformers_logging.disable_progress_bar()
        self._device = device.device
        module: nn.Module = AutoModelForCausalLM.from_pretrained(
            checkpoint.source,
            dtype=device.types.products,
            use_safetensors=True,
            **checkpoint.arguments,
        )
        self._module: Any = module.eval().to(device.device)

    def run(
        self,
        requests: Sequence[Request],
        lengths: dict[str, int],
        on_answer: Callable[[], None],
        *,
        by_length: bool,
        batch_size: int = BATCH_SIZE,
    ) -> WayResult:
        """`lengths` are the tokens of each answer, by `answer_key`."""
        tasks = [
            _Task(id=key, prompt=request.prompt_token_ids, length=lengths[key])
            for request in requests
            for key in (answer_key(request.id, i) for i in range(request.sampling.n))
        ]
        if by_length:
            tasks.sort(key=lambda task: (task.length, len(task.prompt)))
        self._generate(tasks[:1], 2)
        account = _Account(started=time.perf_counter())
        answers: Answers = {}
        for start in range(0, len(tasks), batch_size):
            batch = tasks[start : start + batch_size]
            self._run_batch(batch, account, answers)
            for _ in batch:
                on_answer()
        wall = time.perf_counter() - account.started
        account.course.append(Moment(wall, 0))
        name = "sorted" if by_length else "static"
        order = "sorted by answer length" if by_length else "in file order"
        return WayResult(
            name=name,
            title=f"static batches of {batch_size}, {order}",
            figures=_figures(tasks, account, wall, batch_size),
            course=tuple(account.course),
            answers=answers,
            lengths=lengths,
        )

    def _run_batch(self, batch: Sequence[_Task], account: _Account, answers: Answers) -> None:
        longest = max(task.length for task in batch)
        output, times = self._generate(batch, longest)
        for step, (at, until) in enumerate(pairwise(times)):
            account.note(sum(task.length > step for task in batch), at, until)
        for task, row in zip(batch, output, strict=True):
            account.first_tokens.add(times[1] - account.started)
            answers[task.id] = tuple(row[: task.length])
        width = max(len(task.prompt) for task in batch)
        account.computed += len(batch) * (width + longest - 1)
        account.useful += sum(len(task.prompt) + task.length - 1 for task in batch)

    @torch.inference_mode()
    def _generate(self, batch: Sequence[_Task], length: int) -> tuple[list[list[int]], list[float]]:
        """Generated tokens of each, all `length` long, and when each step began and ended."""
        width = max(len(task.prompt) for task in batch)
        padding = [width - len(task.prompt) for task in batch]
        rows = [[0] * pad + list(task.prompt) for pad, task in zip(padding, batch, strict=True)]
        mask = [[0] * pad + [1] * (width - pad) for pad in padding]
        clock = _Clock()
        output = self._module.generate(
            input_ids=torch.tensor(rows, device=self._device),
            attention_mask=torch.tensor(mask, device=self._device),
            # No end-of-sequence token ends a row before its length; None would be the model's own.
            generation_config=GenerationConfig(
                max_new_tokens=length, do_sample=False, pad_token_id=0, eos_token_id=[]
            ),
            logits_processor=[clock],
        )
        generated: list[list[int]] = output[:, width:].tolist()
        return generated, clock.times


def _figures(tasks: Sequence[_Task], account: _Account, wall: float, batch_size: int) -> RunFigures:
    return RunFigures(
        requests=len(tasks),
        prompt_tokens=sum(len(task.prompt) for task in tasks),
        output_tokens=sum(task.length for task in tasks),
        wall_seconds=wall,
        slots=batch_size,
        occupancy=account.busy / (wall * batch_size) if wall else 0.0,
        computed_positions=account.computed,
        useful_share=account.useful / account.computed if account.computed else 0.0,
        first_token_p50=account.first_tokens.percentile(0.5),
        first_token_p99=account.first_tokens.percentile(0.99),
        steps=account.steps.total,
        step_p50=account.steps.percentile(0.5),
        step_p99=account.steps.percentile(0.99),
    )
