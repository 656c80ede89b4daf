"""A suite file, YAML or JSON, read with the line of everything that is wrong in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from batchjobs.errors import InvalidFileError
from batchjobs.evals.suite import Suite, beside
from batchjobs.evals.templates import SyntaxProblem

MAX_SUITE_BYTES = 4 << 20
MAX_NODES = 200_000
"""With every alias followed: few bytes of YAML can stand for more than any memory holds."""

_CORE = "tag:yaml.org,2002:"


class InvalidSuiteError(InvalidFileError):
    """A suite file cannot be used; its notes are what else is wrong in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFile:
    """`text` is as it was read, for a run to keep."""

    suite: Suite
    path: Path
    text: str

    @property
    def folder(self) -> Path:
        return self.path.parent


def read_suite(path: Path) -> SuiteFile:
    """Raises InvalidSuiteError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_SUITE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as failed:
        raise InvalidSuiteError(f"The suite {path} cannot be read ({failed.strerror}).") from failed
    except UnicodeDecodeError as wrong:
        raise InvalidSuiteError(f"The suite {path} is not UTF-8: save it as UTF-8.") from wrong
    if len(data) > MAX_SUITE_BYTES:
        raise InvalidSuiteError(f"The suite {path} has more than {MAX_SUITE_BYTES:,} bytes.")
    return parse_suite(text, path.absolute(), shown=str(path))


def parse_suite(text: str, path: Path, *, shown: str | None = None) -> SuiteFile:
    """A suite whose file is, or once was, at `path`. Raises InvalidSuiteError."""
    name = shown or str(path)
    tree = _compose(text, name)
    value = _construct(tree, name)
    try:
        suite = Suite.model_validate(value)
    except ValidationError as wrong:
        raise _complaint(wrong, tree, name) from None
    return SuiteFile(suite=beside(suite, path.parent), path=path, text=text)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """YAML 1.2's plain words: `yes`, `no`, `on`, `off`, dates and `007` are text, `1e-3` a
    number."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"{_CORE}{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def _compose(text: str, name: str) -> yaml.Node:
    if name.endswith(".json"):
        text = text.replace("\t", " ")  # which no string of JSON has, and YAML does not take
    try:
        tree = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as wrong:
        mark = wrong.problem_mark or wrong.context_mark
        where = name if mark is None else f"{name} line {mark.line + 1}"
        raise InvalidSuiteError(f"{where}: {wrong.problem or wrong.context}.") from wrong
    except yaml.YAMLError as wrong:
        reason = " ".join(str(wrong).split())
        raise InvalidSuiteError(f"{name}: {reason}.") from wrong
    if not isinstance(tree, yaml.MappingNode):
        raise InvalidSuiteError(
            f"{name}: a suite is a mapping that begins with `suite: NAME`; this is "
            + ("empty." if tree is None else "something else.")
        )
    _check_keys(tree, name)
    return tree


def _construct(tree: yaml.Node, name: str) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_document(tree)
    except yaml.MarkedYAMLError as wrong:
        line = "" if wrong.problem_mark is None else f" line {wrong.problem_mark.line + 1}"
        raise InvalidSuiteError(f"{name}{line}: {wrong.problem}.") from wrong
    finally:
        loader.dispose()


def _check_keys(tree: yaml.Node, name: str) -> None:
    """Every mapping has each key once. Raises InvalidSuiteError."""
    left, seen = [tree], 0
    while left:
        node = left.pop()
        seen += 1
        if seen > MAX_NODES:
            raise InvalidSuiteError(f"{name}: it has more than {MAX_NODES:,} values.")
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise InvalidSuiteError(f"{name} line {_line(key)}: a key must be a word.")
                if key.value in keys:
                    raise InvalidSuiteError(
                        f"{name} line {_line(key)}: `{key.value}` is there twice."
                    )
                keys.add(key.value)
                left.append(value)


def _complaint(wrong: ValidationError, tree: yaml.Node, name: str) -> InvalidSuiteError:
    """The first thing that is wrong as the message, the others as notes, in the file's order."""
    found: dict[str, tuple[int, str]] = {}
    errors = wrong.errors()
    for error in errors:
        if error["type"] == "too_short" and len(_within(errors, error["loc"])) > 1:
            continue  # what is too short lacks only what is complained of beside
        line, path = _locate(tree, error["loc"])
        words = _words(error)
        problem = error.get("ctx", {}).get("error")
        if isinstance(problem, SyntaxProblem):
            line += problem.line - 1
        found.setdefault(path, (line, f"{name} line {line}: {path}{words}."))
    # A list with a wrong element is also called no text, where it could have been either.
    told = [
        place
        for path, place in found.items()
        if not any(other.startswith(f"{path}[") for other in found)
    ]
    sentences = [sentence for _, sentence in sorted(told)]
    complaint = InvalidSuiteError(sentences[0])
    for sentence in sentences[1:]:
        complaint.add_note(sentence)
    return complaint


def _within(errors: Sequence[ErrorDetails], loc: tuple[int | str, ...]) -> list[ErrorDetails]:
    return [error for error in errors if error["loc"][: len(loc)] == loc]


def _words(error: ErrorDetails) -> str:
    match error["type"]:
        case "missing":
            return " is missing"
        case "union_tag_not_found":
            return ".type is missing"
        case "extra_forbidden":
            return " is not known here; correct its spelling or take it out"
        case "tuple_type":
            return ": input should be a list"
        case "model_type" | "model_attributes_type" | "mapping_type":
            return ": input should be a mapping of `key: value`"
        case "union_tag_invalid":
            context = error["ctx"]
            return f".type: {context['tag']!r} is not one of {context['expected_tags']}"
    text = error["msg"].removeprefix("Value error, ").rstrip(".")
    return f": {text[:1].lower()}{text[1:]}"


def _locate(tree: yaml.Node, loc: Sequence[str | int]) -> tuple[int, str]:
    """The line (from 1) of what a validation error is about, and its path for people. Steps that
    are the schema's own, as the kind of a scorer, are no keys of the file."""
    node, line, path = tree, _line(tree), ""
    for place, step in enumerate(loc):
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == str(step)), None)
            if pair is None and place < len(loc) - 1:
                continue
            path = f"{path}.{step}" if path else str(step)
            if pair is None:
                break
            line, node = _line(pair[0]), pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
            line, path = _line(node), f"{path}[{step}]"
    if isinstance(node, yaml.ScalarNode) and loc:
        line = _line(node) + (node.style in ("|", ">"))
    return line, path or "the suite"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
