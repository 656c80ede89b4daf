"""What `batchjobs models add` is told of a model, as its defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import orjson

from batchjobs.endpoints.samplers import check_model_sampling
from batchjobs.errors import InvalidRequestError, UsageError
from batchjobs.own_templates import own_templates

MAX_TEMPLATE_BYTES = 1 << 20


def find_template(words: str, model: Path) -> str:
    """The chat template that a person means by `words`: a file, or a name among those that the
    `model`'s folder brings; of a model on the hub only a file.

    Raises:
        UsageError: neither, or not Jinja.
    """
    file = Path(words).expanduser()
    own = own_templates(model) if model.is_dir() and not file.is_file() else {}
    if words in own:
        return own[words]
    if own:
        raise UsageError(
            f"{words} is neither a file nor one of the model's chat templates"
            f" ({', '.join(sorted(own))})."
        )
    return read_template(file)


def read_template(file: Path) -> str:
    """A chat template out of a file. Raises UsageError: unreadable, too large or not Jinja."""
    try:
        data = file.read_bytes()
        text = data.decode()
    except OSError as failed:
        raise UsageError(f"{file} cannot be read: {failed.strerror}.") from failed
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8, as a chat template must be.") from None
    if len(data) > MAX_TEMPLATE_BYTES:
        raise UsageError(f"{file} has {len(data):,} bytes; a chat template has 1 MiB at most.")
    try:
        jinja2.Environment(extensions=["jinja2.ext.loopcontrols", _Generation]).parse(text)  # noqa: S701
    except jinja2.TemplateSyntaxError as wrong:
        raise UsageError(f"{file}, line {wrong.lineno}: {wrong.message}") from None
    return text


def read_sampling_words(words: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` words as parameters; a value is JSON, and otherwise text.

    Raises:
        UsageError: no `=`, a parameter that cannot have a default, or a value out of range.
    """
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--default takes NAME=VALUE, as in temperature=0.2, not '{word}'.")
        given[name] = _value(value)
    try:
        check_model_sampling(given)
    except InvalidRequestError as wrong:
        raise UsageError(f"--default: {wrong.message}") from None
    return given


def _value(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


class _Generation(jinja2.ext.Extension):
    """transformers' own `{% generation %}`, around what the model says."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
