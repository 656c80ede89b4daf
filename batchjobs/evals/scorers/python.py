"""One's own scorer: a function of a Python file beside the suite.

It gets the item's fields and the answer's text and gives a score, or None where it finds no answer.
It runs in this process, as the person who runs the suite.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from batchjobs.errors import InvalidFileError
from batchjobs.evals.answers import Answer
from batchjobs.evals.scorers.base import Mark, TextScorer, unparsed
from batchjobs.evals.templates import Fields

Function = Callable[[Fields, str], float | bool | None]


class Python(TextScorer):
    type: Literal["python"]
    file: Path
    """Relative to the suite's folder, which the reader of the suite puts before it."""
    function: str = Field(default="score", pattern=r"^[A-Za-z_]\w*$")

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        function = _load(self.file, self.function, _source(self.file))
        try:
            found = function(fields, answer.text)
            score = None if found is None else float(found)
        except Exception as wrong:
            raise InvalidFileError(
                f"{self.file}: {self.function} failed with {type(wrong).__name__}: {wrong}."
            ) from wrong
        if score is None:
            return unparsed(answer)
        if not math.isfinite(score):
            raise InvalidFileError(f"{self.file}: {self.function} gave {score}, which is no score.")
        return Mark(score=score)

    def check(self, fields: Fields) -> None:
        _load(self.file, self.function, _source(self.file))

    def signature(self) -> dict[str, Any]:
        """The file's content, not its place."""
        source = hashlib.sha256(_source(self.file)).hexdigest()
        return {**super().signature(), "file": source}


def _source(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failed:
        raise InvalidFileError(f"The scorer {path} cannot be read ({failed.strerror}).") from failed


@cache
def _load(path: Path, name: str, source: bytes) -> Function:
    """A file that has changed is loaded anew, also in a process that runs for months. Raises
    InvalidFileError."""
    spec = importlib.util.spec_from_loader(f"suite_scorer_{path.stem}", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102  # it is the user's
    except Exception as wrong:
        raise InvalidFileError(
            f"The scorer {path} cannot be loaded: {type(wrong).__name__}: {wrong}."
        ) from wrong
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidFileError(f"The scorer {path} has no function `{name}`.")
    return function  # type: ignore[no-any-return]  # it is the user's word that it fits
