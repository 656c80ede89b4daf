"""Typed fields of a request body, or the public API's own errors. A null is an absent field."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from batchjobs.endpoints.base import Body, LineProblem
from batchjobs.errors import InvalidRequestError
from batchjobs.jsonl import json_type

_MOST_INTEGER = float(1 << 63)


def wrong_type(name: str, expected: str, value: object) -> InvalidRequestError:
    found = json_type(value)
    message = f"Invalid type for '{name}': expected {expected}, but got {found} instead."
    return InvalidRequestError(message, param=name, code="invalid_type")


def invalid_value(name: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid '{name}': {why}", param=name, code="invalid_value")


def missing(name: str) -> InvalidRequestError:
    message = f"Missing required parameter: '{name}'."
    return InvalidRequestError(message, param=name, code="missing_required_parameter")


def empty_array(name: str) -> InvalidRequestError:
    message = (
        f"Invalid '{name}': empty array. Expected an array with minimum length 1,"
        " but got an empty array instead."
    )
    return InvalidRequestError(message, param=name, code="empty_array")


def empty_string(name: str) -> InvalidRequestError:
    message = (
        f"Invalid '{name}': empty string. Expected a string with minimum length 1,"
        " but got an empty string instead."
    )
    return InvalidRequestError(message, param=name, code="empty_string")


def not_among(name: str, value: object, supported: Sequence[str]) -> InvalidRequestError:
    message = f"Invalid value: '{value}'. Supported values are: {_listed(supported)}."
    return InvalidRequestError(message, param=name, code="invalid_value")


def unsupported(name: str, value: str | None = None) -> InvalidRequestError:
    what = f"'{name}'" if value is None else f"'{name}' with the value '{value}'"
    message = f"Unsupported parameter: {what} is not supported by this server."
    return InvalidRequestError(message, param=name, code="unsupported_parameter")


def unknown(name: str) -> InvalidRequestError:
    message = f"Unknown parameter: '{name}'."
    return InvalidRequestError(message, param=name, code="unknown_parameter")


def check_keys(
    where: str, value: Mapping[str, Any], known: Collection[str], *, ignore_unknown: bool
) -> None:
    """Raise for the first key of the object at `where` that is neither null nor known."""
    for name in value:
        if name not in known and value[name] is not None and not ignore_unknown:
            raise unknown(f"{where}.{name}")


def as_problem(error: InvalidRequestError) -> LineProblem:
    """The same finding at intake, where it fails the whole job."""
    return LineProblem(
        code=error.code or "invalid_request", message=error.message, param=error.param
    )


def read_integer(body: Body, name: str, low: int, high: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) > _MOST_INTEGER:
        value = int(value)  # JSON's reader makes decimals of integers beyond 64 bits
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, "an integer", value)
    _check_range(name, value, low, high, "integer")
    return value


def read_decimal(body: Body, name: str, low: float, high: float) -> float | None:
    value = body.get(name)
    return None if value is None else check_decimal(name, value, low, high)


def check_decimal(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a decimal", value)
    if value != value:
        raise invalid_value(name, "it must be a number, but is none.")
    _check_range(name, value, low, high, "decimal")
    return float(value)


def read_boolean(body: Body, name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise wrong_type(name, "a boolean", value)
    return value


def read_string(body: Body, name: str, where: str = "") -> str | None:
    """The string `name` of the body, or of the object at `where`."""
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise wrong_type(f"{where}.{name}" if where else name, "a string", value)


def require_string(body: Body, name: str, where: str = "") -> str:
    value = read_string(body, name, where)
    if value is None:
        raise missing(f"{where}.{name}" if where else name)
    return value


def check_length(name: str, array: list[Any], longest: int) -> None:
    if len(array) > longest:
        message = (
            f"Invalid '{name}': array too long. Expected an array with maximum length {longest},"
            f" but got an array with length {len(array)} instead."
        )
        raise InvalidRequestError(message, param=name, code="array_above_max_length")


def _listed(values: Sequence[str]) -> str:
    """As the public API writes it: 'a' and 'b', but 'a', 'b', and 'c'."""
    *others, last = (f"'{value}'" for value in values)
    if not others:
        return last
    return f"{', '.join(others)}{',' if len(others) > 1 else ''} and {last}"


def _check_range(name: str, value: float, low: float, high: float, kind: str) -> None:
    if value < low:
        bound, code, limit = f">= {low}", "below_min_value", "below minimum"
    elif value > high:
        bound, code, limit = f"<= {high}", "above_max_value", "above maximum"
    else:
        return
    message = (
        f"Invalid '{name}': {kind} {limit} value. Expected a value {bound},"
        f" but got {value} instead."
    )
    raise InvalidRequestError(message, param=name, code=f"{kind}_{code}")
