"""From items to request lines: pure, and the same for the same suite and item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchjobs.errors import InvalidFileError
from batchjobs.evals.items import Item
from batchjobs.evals.scorers.choice import CHOICES
from batchjobs.evals.suite import FewShot, Suite
from batchjobs.evals.suite import Request as Asked
from batchjobs.evals.templates import Fields, TemplateError, digest, evaluate, render

Message = Mapping[str, str]
Prompt = str | Sequence[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLine:
    """One request: sample number `sample` of an item, whose place in the dataset is `number`.
    `fields` are the item's, with the choices that were asked about."""

    number: int
    sample: int
    item: Item
    fields: Fields
    prompt: Prompt
    prompt_digest: str
    body: Mapping[str, Any]

    @property
    def custom_id(self) -> str:
        return f"{self.number}-{self.sample}"


class Renderer:
    """A suite's requests to one model. `examples` are the rows that few-shot blocks are made of;
    `seed` is that of first samples, if the suite names none."""

    def __init__(
        self, suite: Suite, model: str, examples: Sequence[Fields] = (), *, seed: int = 0
    ) -> None:
        self._suite = suite
        self._asked = suite.request
        self._model = model
        own = suite.request.sampling.seed
        self._first_seed = seed if own is None else own
        self._examples = list(_worked(suite.request, examples))

    def lines(self, items: Iterable[Item]) -> Iterator[PlannedLine]:
        """Raises InvalidFileError that names the item which a template does not fit."""
        for number, item in enumerate(items):
            try:
                rendered = self._render(item)
            except TemplateError as wrong:
                raise InvalidFileError(f"Item {item.id}: {wrong.message}.") from wrong
            fields, prompt, body = rendered
            prompt_digest = digest([prompt, body.get("prompt")])
            for sample in range(self._suite.repeats):
                yield PlannedLine(
                    number=number,
                    sample=sample,
                    item=item,
                    fields=fields,
                    prompt=prompt,
                    prompt_digest=prompt_digest,
                    body={**body, **self._seed(sample)},
                )

    def _render(self, item: Item) -> tuple[Fields, Prompt, Mapping[str, Any]]:
        prompt = self._prompt(item.fields)
        if self._asked.choices is None:
            return item.fields, prompt, self._generation(prompt)
        assert isinstance(prompt, str)
        choices = self._choices(item.fields)
        context, continued = continuations(prompt, self._asked.delimiter, choices)
        body = self._body(prompt=[context, *continued], **_LIKELIHOOD)
        return {**item.fields, CHOICES: choices}, prompt, body

    def _prompt(self, fields: Fields) -> Prompt:
        asked = self._asked
        if asked.messages:
            return [
                {"role": turn.role, "content": render(turn.content, fields)}
                for turn in asked.messages
            ]
        assert asked.prompt is not None
        question = render(asked.prompt, fields)
        system = "" if asked.system is None else render(asked.system, fields)
        if asked.endpoint == "chat":
            return [*_opening(system), *_turns(self._examples), _user(question)]
        separator = "" if asked.fewshot is None else asked.fewshot.separator
        worked = [f"{one}{answer}{separator}" for one, answer in self._examples]
        return "".join([system, *worked, question])

    def _generation(self, prompt: Prompt) -> Mapping[str, Any]:
        sampling = self._asked.sampling
        settings = sampling.model_dump(exclude_none=True, exclude={"seed"})
        if not sampling.stop:
            del settings["stop"]
        if isinstance(prompt, str):
            return self._body(prompt=prompt, **settings)
        return self._body(messages=list(prompt), **settings)

    def _body(self, **parameters: Any) -> Mapping[str, Any]:
        return {"model": self._model, **parameters, **self._asked.body}

    def _seed(self, sample: int) -> Mapping[str, int]:
        return {} if self._asked.has_choices else {"seed": self._first_seed + sample}

    def _choices(self, fields: Fields) -> list[str]:
        asked = self._asked.choices
        if isinstance(asked, str):
            found = evaluate(asked, fields)
        else:
            found = [render(choice, fields) for choice in asked or ()]
        if not isinstance(found, list | tuple) or len(found) < 2 or not all(map(str, found)):
            raise TemplateError(f"`choices` gives {found!r}, not a list of two texts or more")
        return [str(choice) for choice in found]


def continuations(prompt: str, delimiter: str, choices: Sequence[str]) -> tuple[str, list[str]]:
    """The context, and the context with each choice behind it. As lm-evaluation-harness does it,
    white space at the context's end goes to the continuations. Raises TemplateError."""
    context = prompt.rstrip()
    if not context:
        raise TemplateError("the prompt is empty, so there is nothing for a choice to follow")
    return context, [f"{prompt}{delimiter}{choice}" for choice in choices]


def _worked(asked: Asked, rows: Sequence[Fields]) -> Iterator[tuple[str, str]]:
    """Question and answer of each example."""
    few: FewShot | None = asked.fewshot
    if few is None:
        return
    question = few.prompt or asked.prompt
    assert question is not None
    for number, fields in enumerate(rows, start=1):
        try:
            yield render(question, fields), render(few.answer, fields)
        except TemplateError as wrong:
            raise InvalidFileError(f"Example {number}: {wrong.message}.") from wrong


def _opening(system: str) -> list[Message]:
    return [{"role": "system", "content": system}] if system else []


def _turns(examples: Sequence[tuple[str, str]]) -> Iterator[Message]:
    for question, answer in examples:
        yield _user(question)
        yield {"role": "assistant", "content": answer}


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


_LIKELIHOOD = {"echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0.0}
