"""Fields of a form that was sent, which are few and short."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from batchjobs.errors import TooLargeError

MAX_FORM_BYTES = 16 << 10

Fields = dict[str, str]


async def read_form(request: Request) -> Fields:
    """Raises TooLargeError."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise TooLargeError(f"This form has more than {MAX_FORM_BYTES:,} bytes.")
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


Form = Annotated[Fields, Depends(read_form)]
