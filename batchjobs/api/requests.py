"""What requests carry, read into values or refused in the public API's words."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.datastructures import QueryParams

from batchjobs.caretaker import Caretaker
from batchjobs.deployment import Deployment
from batchjobs.endpoints.fields import not_among, read_integer
from batchjobs.errors import InvalidRequestError, TooLargeError
from batchjobs.forecast import Forecast
from batchjobs.jsonl import parse_object

MAX_JSON_BYTES = 1 << 20
MAX_OFFSET = 2**53


def _deployment(request: Request) -> Deployment:
    deployment: Deployment = request.app.state.deployment
    return deployment


def _caretaker(request: Request) -> Caretaker:
    caretaker: Caretaker = request.app.state.caretaker
    return caretaker


def _forecast(request: Request) -> Forecast:
    forecast: Forecast = request.app.state.forecast
    return forecast


async def _json_object(request: Request) -> dict[str, Any]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_JSON_BYTES:
            raise TooLargeError(f"The body of this request has more than {MAX_JSON_BYTES:,} bytes.")
    try:
        return parse_object(body)
    except InvalidRequestError as wrong:
        raise InvalidRequestError(
            "We could not parse the JSON body of your request: it is not a JSON object in UTF-8."
        ) from wrong


Service = Annotated[Deployment, Depends(_deployment)]
Care = Annotated[Caretaker, Depends(_caretaker)]
Ahead = Annotated[Forecast, Depends(_forecast)]
JsonObject = Annotated[dict[str, Any], Depends(_json_object)]


def read_number(query: QueryParams, name: str, *, default: int, highest: int) -> int:
    """A parameter of 0 to `highest`. Raises InvalidRequestError."""
    text = query.get(name, "")
    if not text:
        return default
    return read_integer({name: as_number(text)}, name, 0, highest) or 0


def as_number(text: str) -> int | str:
    """The integer that `text` says, or the text itself, for a check to refuse."""
    try:
        return int(text)
    except ValueError:
        return text


def read_after(query: QueryParams) -> str | None:
    """The id behind which a page begins."""
    return query.get("after") or None


def read_newest_first(query: QueryParams) -> bool:
    order = query.get("order") or "desc"
    if order not in ("asc", "desc"):
        raise not_among("order", order, ("asc", "desc"))
    return order == "desc"
