"""JSON whose numbers may be infinite or none at all, which PostgreSQL's own does not take.

What one item tells of a suite has an interval without ends. It is kept as `{"number": "inf"}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sqlalchemy import JSON, TypeDecorator
from sqlalchemy.engine import Dialect

_MARK = "number"


class Figures(TypeDecorator[dict[str, Any]]):
    """A column of JSON that gives back every float as it was; None is NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return _changed(value, _marked)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return _changed(value, _unmarked)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return change({key: _changed(each, change) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return [_changed(each, change) for each in value]
    return change(value)


def _marked(value: Any) -> Any:
    is_plain = not isinstance(value, float) or math.isfinite(value)
    return value if is_plain else {_MARK: str(value)}


def _unmarked(value: Any) -> Any:
    return float(value[_MARK]) if isinstance(value, dict) and set(value) == {_MARK} else value
