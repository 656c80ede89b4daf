"""Bytes of UTF-8 as text."""

from __future__ import annotations

import codecs


def whole_characters(data: bytes) -> str:
    """The bytes as text, as `text.Detokenizer.decode` has it."""
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)
