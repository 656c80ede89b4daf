"""What a model of the catalogue is configured as, beside where its weights are.

A line's own words go before these, and these before what the server or the model says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from batchjobs.models import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDefaults:
    """None and an empty `sampling` say nothing. `max_model_len` is in tokens, `chat_template` is
    Jinja, and `sampling` holds the values of parameters that a line leaves out."""

    max_model_len: int | None = None
    chat_template: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> Self:
        return cls(
            max_model_len=model.max_model_len,
            chat_template=model.chat_template,
            sampling=model.sampling or {},
        )

    def enter(self, model: Model) -> None:
        """Write them to the catalogue's row."""
        model.max_model_len = self.max_model_len
        model.chat_template = self.chat_template
        model.sampling = self.sampling or None
