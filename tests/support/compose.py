"""`docker-compose.yml` as Docker Compose reads it: overrides merged, variables filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?P<kind>:\?|:-)(?P<rest>[^}]*)\}")


def read_raw(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return content


def read(*names: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """What the files say together. Raises KeyError for a required variable that is not given."""
    merged: dict[str, Any] = {}
    for name in names:
        merged = _merge(merged, read_raw(name))
    filled: dict[str, Any] = _fill(merged, variables)
    return filled


def required_variables(text: str) -> set[str]:
    return {found["name"] for found in _VARIABLE.finditer(text) if found["kind"] == ":?"}


def strings(value: Any) -> list[str]:
    """All strings in it, keys left out."""
    if isinstance(value, dict):
        return [string for each in value.values() for string in strings(each)]
    if isinstance(value, list):
        return [string for each in value for string in strings(each)]
    return [value] if isinstance(value, str) else []


def _merge(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in override.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both else value
    return merged


def _fill(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_fill(each, variables) for each in value]
    if not isinstance(value, str):
        return value

    def given(found: re.Match[str]) -> str:
        if found["kind"] == ":-":
            return variables.get(found["name"]) or found["rest"]
        return variables[found["name"]]

    return _VARIABLE.sub(given, value)
