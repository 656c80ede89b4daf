"""What the engine refuses.

EngineError
└── UnsupportedModelError   a packed batch would compute this model wrongly, or it cannot be loaded
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of the engine's errors; the message is one sentence a person can act on."""


class UnsupportedModelError(EngineError):
    """The model cannot run here."""
