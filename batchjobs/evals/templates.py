"""Templates with `{{ field }}` placeholders, in a sandbox: a suite may come from someone else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from batchjobs.errors import InvalidRequestError

Fields = Mapping[str, Any]

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
)


class TemplateError(InvalidRequestError):
    """A template cannot be filled from an item."""


class SyntaxProblem(ValueError):
    """A template cannot be read; `line` counts within it, from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def check_template(text: str) -> str:
    """The template itself. Raises SyntaxProblem."""
    try:
        _compiled(text)
    except jinja2.TemplateSyntaxError as wrong:
        raise SyntaxProblem(f"the template cannot be read: {wrong.message}", wrong.lineno) from None
    return text


def check_expression(text: str) -> str:
    """The expression itself. Raises SyntaxProblem."""
    try:
        _expression(text)
    except jinja2.TemplateSyntaxError as wrong:
        message = f"the expression cannot be read: {wrong.message}"
        raise SyntaxProblem(message, wrong.lineno) from None
    return text


def render(text: str, fields: Fields) -> str:
    """The template filled. Raises TemplateError that names what the item lacks."""
    try:
        return _compiled(text).render(fields)
    except Exception as wrong:
        raise _unfilled(text, fields, wrong) from wrong


def evaluate(text: str, fields: Fields) -> Any:
    """The value of an expression such as `choices.text`. Raises TemplateError."""
    try:
        return _expression(text)(**fields)
    except Exception as wrong:
        raise _unfilled(text, fields, wrong) from wrong


def digest(value: object) -> str:
    """SHA-256 of the value's canonical JSON: the same whatever order its keys came in."""
    canonical = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str
    )
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


@lru_cache(maxsize=256)
def _compiled(text: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(text)


@lru_cache(maxsize=256)
def _expression(text: str) -> Any:
    return _ENVIRONMENT.compile_expression(text, undefined_to_none=False)


def _unfilled(text: str, fields: Fields, wrong: Exception) -> TemplateError:
    """Templates are a user's program: whatever it raises is a word to the user."""
    short = text if len(text) <= 60 else text[:59] + "…"
    has = ", ".join(sorted(map(str, fields))) or "no fields"
    return TemplateError(f"the template {short!r} cannot be filled: {wrong} (the item has: {has})")
