"""What becomes of every parameter an endpoint knows.

One table for each endpoint: bodies are checked by it, and `docs/parameters.md` is made of it.

| a parameter is | with the value | then |
|---|---|---|
| honoured | any | it is read, and changes the answer |
| without effect | any | it is left out: it says nothing about the answer |
| refused | one of `off` | it is left out: that value asks for nothing |
| refused | another | the line fails with `unsupported_parameter` |
| in no table | any | the line fails with `unknown_parameter`, unless unknown ones are ignored |

A null is an absent parameter everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Support(StrEnum):
    HONOURED = "supported"
    NO_EFFECT = "accepted, without effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """`note` is for people, in `docs/parameters.md`; `off` are a refused one's harmless values."""

    support: Support
    note: str = ""
    off: tuple[object, ...] = ()


def honoured(note: str = "") -> Parameter:
    return Parameter(support=Support.HONOURED, note=note)


def no_effect(note: str = "") -> Parameter:
    return Parameter(support=Support.NO_EFFECT, note=note)


def refused(*off: object, note: str = "") -> Parameter:
    return Parameter(support=Support.REFUSED, note=note, off=off)
