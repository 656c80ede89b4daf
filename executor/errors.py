"""What the engine refuses.

EngineError
└── UnsupportedModelError   a packed batch would compute this model wrongly, or it cannot be loaded
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of the engine's errors; the message is one sentence a person can act on."""


class UnsupportedModelError(EngineError):
    """The model cannot run here."""


def cannot_be_packed(module: object, error: Exception) -> UnsupportedModelError:
    """One sentence of whatever a model's code raised in a packed batch, with its class."""
    return UnsupportedModelError(f"{type(module).__name__} cannot be packed: {one_line(error)}")


def one_line(error: Exception) -> str:
    """Its message without line breaks, at most 300 characters; its class if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__
