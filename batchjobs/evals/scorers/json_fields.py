"""The answer is JSON that fits a schema, and its fields have the right values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from batchjobs.evals.answers import Answer
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.scorers.base import BaseScorer, Expression, Mark, Marks
from batchjobs.evals.templates import Fields, TemplateError, evaluate

_FENCE = re.compile(r"\A```(?:json)?\s*\n(?P<inside>.*?)\n?```\s*\Z", re.DOTALL | re.IGNORECASE)


def _check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as wrong:
        raise ValueError(f"the schema cannot be read: {wrong.message}") from None
    return schema


class JsonFields(BaseScorer):
    """Metrics: `json_fields`, the share of `target`'s fields that are equal; `json_exact`, whether
    all are; `json_valid`, whether the answer is JSON that fits the schema. An answer that is no
    JSON is not valid, and for the first two `unparsed`."""

    type: Literal["json"]
    json_schema: Annotated[dict[str, Any], AfterValidator(_check_schema)] | None = Field(
        default=None, alias="schema"
    )
    target: Expression | None = None
    """An object; without one only `json_valid` is told."""
    ignore_case: bool = True
    """Of strings, with the white space around them."""

    @property
    def metrics(self) -> tuple[str, ...]:
        behind = "" if self.name is None else f"{self.name}."
        names = ("json_valid",) if self.target is None else _METRICS
        return tuple(f"{behind}{name}" for name in names)

    def score(self, fields: Fields, answer: Answer) -> Marks:
        missing = answer.missing or (None if answer.text.strip() else Missing.EMPTY)
        if missing is not None:
            return dict.fromkeys(self.metrics, Mark(missing=missing))
        try:
            value = parse_answer(answer.text)
        except ValueError:
            return self._without_json(answer)
        shown = json.dumps(value, ensure_ascii=False)
        scores = [float(self._fits(value))]
        if self.target is not None:
            share = self._share(value, self._target(fields))
            scores = [share, float(share == 1), *scores]
        marks = [Mark(score=score, extracted=shown) for score in scores]
        return dict(zip(self.metrics, marks, strict=True))

    def templates(self) -> tuple[str, ...]:
        return ()

    def check(self, fields: Fields) -> None:
        if self.target is not None:
            self._target(fields)

    def _without_json(self, answer: Answer) -> Marks:
        if answer.is_truncated:
            return dict.fromkeys(self.metrics, Mark(missing=Missing.TRUNCATED))
        *others, valid = self.metrics
        return {**dict.fromkeys(others, Mark(missing=Missing.UNPARSED)), valid: Mark(score=0.0)}

    def _target(self, fields: Fields) -> Mapping[str, Any]:
        target = evaluate(self.target or "", fields)
        if isinstance(target, str):
            try:
                target = json.loads(target)
            except ValueError:
                target = None
        if not isinstance(target, Mapping) or not target:
            raise TemplateError(f"the target `{self.target}` is no object with fields")
        return target

    def _fits(self, value: object) -> bool:
        if self.json_schema is None:
            return True
        from jsonschema.validators import validator_for

        return bool(validator_for(self.json_schema)(self.json_schema).is_valid(value))

    def _share(self, value: object, target: Mapping[str, Any]) -> float:
        if not isinstance(value, Mapping):
            return 0.0
        right = [
            name in value and self._normal(value[name]) == self._normal(wanted)
            for name, wanted in target.items()
        ]
        return sum(right) / len(right)

    def _normal(self, value: object) -> object:
        """A value that equals another exactly if both mean the same JSON: true is not 1."""
        match value:
            case bool() | None:
                return (type(value).__name__, value)
            case str():
                text = value.strip()
                return text.casefold() if self.ignore_case else text
            case Mapping():
                return {key: self._normal(one) for key, one in value.items()}
            case list() | tuple():
                return [self._normal(one) for one in value]
        return value


_METRICS = ("json_fields", "json_exact", "json_valid")


def parse_answer(text: str) -> Any:
    """The JSON that the text is, also within one Markdown fence. Raises ValueError."""
    bare = text.strip()
    fenced = _FENCE.match(bare)
    try:
        return json.loads(fenced["inside"] if fenced else bare, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is too deep") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
