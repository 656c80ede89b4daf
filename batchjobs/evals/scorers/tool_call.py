"""The answer calls the right functions with the right arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from batchjobs.evals.answers import Answer
from batchjobs.evals.scorers.base import BaseScorer, Expression, Mark, Marks, unparsed
from batchjobs.evals.templates import Fields, TemplateError, evaluate


class ToolCall(BaseScorer):
    """`target` is a call `{name, arguments}` or a list of them, in any order; an empty list wants
    an answer without calls. Every argument of the target must be there and equal; others may not
    be, unless `extra_arguments`. An answer in words where a call was wanted is wrong."""

    type: Literal["tool_call"]
    target: Expression
    extra_arguments: bool = False

    def templates(self) -> tuple[str, ...]:
        return ()

    def check(self, fields: Fields) -> None:
        self._target(fields)

    def score(self, fields: Fields, answer: Answer) -> Marks:
        [metric] = self.metrics
        if answer.missing is not None:
            return {metric: Mark(missing=answer.missing)}
        wanted = self._target(fields)
        try:
            given = [_read(call["function"]) for call in answer.tool_calls]
        except (ValueError, KeyError, TypeError):
            return {metric: unparsed(answer)}
        if not given and wanted and answer.is_truncated:
            return {metric: unparsed(answer)}
        shown = json.dumps([{"name": name, "arguments": values} for name, values in given])
        return {metric: Mark(score=float(self._fits(given, wanted)), extracted=shown)}

    def _target(self, fields: Fields) -> list[tuple[str, Any]]:
        value = evaluate(self.target, fields)
        calls = [value] if isinstance(value, Mapping) else value
        try:
            return [_read(call) for call in calls]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TemplateError(
                f"the target `{self.target}` is no call {{name, arguments}}, nor a list of them"
            ) from None

    def _fits(self, given: Sequence[tuple[str, Any]], wanted: Sequence[tuple[str, Any]]) -> bool:
        left = list(given)
        for call in wanted:
            match = next((one for one in left if self._equal(one, call)), None)
            if match is None:
                return False
            left.remove(match)
        return not left

    def _equal(self, given: tuple[str, Any], wanted: tuple[str, Any]) -> bool:
        (name, values), (wanted_name, wanted_values) = given, wanted
        if name != wanted_name or not isinstance(values, Mapping):
            return False
        if not self.extra_arguments and set(values) != set(wanted_values):
            return False
        return all(
            key in values and _typed(values[key]) == _typed(value)
            for key, value in wanted_values.items()
        )


def _read(call: Mapping[str, Any]) -> tuple[str, Any]:
    arguments = call.get("arguments", {})
    values = json.loads(arguments) if isinstance(arguments, str) else arguments
    return str(call["name"]), values


def _typed(value: object) -> str:
    """Equal for equal JSON only: true is not 1."""
    return json.dumps(value, sort_keys=True)
