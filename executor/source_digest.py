"""Digests of what a forward computes, read from its source.

A proof on a few inputs cannot show that a forward does nothing more far from them: at late
positions, for large numbers. So a module is replaced by a faster form only if its source is one
that was read (`known_forwards`). A digest covers the source without comments, docstrings,
annotations and decorators, and that of the functions and methods that it calls by name.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
import transformers
from torch import nn

_LIBRARIES = tuple(str(Path(str(lib.__file__)).parent) for lib in (torch, transformers))
"""Whose wrappers around a forward are known to leave its result alone outside of training."""

_DONE_BY_US = frozenset({"eager_attention_forward"})
"""Helpers that do not run: attention goes through `hook`."""

_NO_MEANING = frozenset(
    {"annotation", "returns", "decorator_list", "type_comment", "type_params", "kind", "ctx"}
)


def digest(module: nn.Module) -> str | None:
    """Of what the forward of the module's class computes; None if that cannot be known."""
    kind: Any = type(module)
    own = vars(module).get("forward")
    code = getattr(getattr(own, "__func__", None), "__code__", None)
    if own is not None and code is not inspect.unwrap(kind.forward).__code__:
        return None
    return class_digest(kind)


@cache
def class_digest(kind: Any) -> str | None:
    """As `digest`, of a class."""
    return function_digest(kind.forward, kind)


@cache
def function_digest(function: Any, owner: Any = None) -> str | None:
    """Sixteen hexadecimal digits of the source of a function, a method of `owner`, and of what it
    calls; None without a source, or where something other than the libraries' own wraps it."""
    try:
        sources = list(_sources(function, owner, set()))
    except (OSError, SyntaxError, TypeError, ValueError):
        return None
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16]


def _sources(function: Any, owner: type | None, seen: set[str]) -> Iterator[str]:
    plain = _unwrapped(function)
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(plain))).body
    seen.add(plain.__name__)
    yield repr(_plain(tree))
    for name, callee, its_owner in _called(tree, plain, owner):
        if name not in seen:
            yield from _sources(callee, its_owner, seen)


def _unwrapped(function: Any) -> FunctionType:
    while hasattr(function, "__wrapped__"):
        if not function.__code__.co_filename.startswith(_LIBRARIES):
            raise ValueError("wrapped by an unknown decorator")
        function = function.__wrapped__
    if not isinstance(function, FunctionType):
        raise TypeError("not a function")
    return function


def _called(
    tree: ast.stmt, function: FunctionType, owner: type | None
) -> Iterator[tuple[str, Any, type | None]]:
    """The functions of its module, and methods of its class, that a function calls by name."""
    assert isinstance(tree, ast.FunctionDef)
    for node in [part for statement in tree.body for part in ast.walk(statement)]:
        if isinstance(node, ast.Name) and node.id not in _DONE_BY_US:
            callee = function.__globals__.get(node.id)
            if isinstance(callee, FunctionType):
                yield node.id, callee, None
        elif isinstance(node, ast.Attribute) and owner is not None:
            method = inspect.getattr_static(owner, node.attr, None)
            if isinstance(method, FunctionType) and ast.unparse(node.value) == "self":
                yield node.attr, method, owner


def _plain(node: Any) -> Any:
    """A syntax tree as nested tuples that are equal in all versions of Python."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        node = ast.Assign(targets=[node.target], value=node.value)
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if name not in _NO_MEANING)
        named = [(name, _plain(value)) for name, value in fields if value not in (None, [])]
        return type(node).__name__, named
    if isinstance(node, list):
        return [_plain(part) for part in node if not _is_text(part)]
    return repr(node)


def _is_text(node: Any) -> bool:
    """Whether it is a docstring, or another string that is not used."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
