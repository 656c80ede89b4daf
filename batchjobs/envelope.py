"""What surrounds the body on a request line: `custom_id`, `method` and `url`.

Other keys beside these are let pass, as clients write their own notes there.
"""

from __future__ import annotations

from typing import Any

from batchjobs.endpoints.base import Body
from batchjobs.endpoints.fields import empty_string, missing, wrong_type
from batchjobs.errors import InvalidRequestError

Line = dict[str, Any]


def read_custom_id(line: Line, max_chars: int) -> str:
    """The user's name for the line. Raises InvalidRequestError."""
    custom_id = line.get("custom_id")
    if custom_id is None:
        raise missing("custom_id")
    if not isinstance(custom_id, str):
        raise wrong_type("custom_id", "a string", custom_id)
    if not custom_id:
        raise empty_string("custom_id")
    if len(custom_id) > max_chars:
        message = (
            "Invalid 'custom_id': string too long. Expected a string with maximum length"
            f" {max_chars}, but got a string with length {len(custom_id)} instead."
        )
        raise InvalidRequestError(message, param="custom_id", code="string_above_max_length")
    return custom_id


def read_body(line: Line, *, url: str, model_override: str | None) -> Body:
    """The body of a line that goes to `url`, with the model that it is to run on.

    Raises:
        InvalidRequestError: method, url or body is missing or wrong.
    """
    method = line.get("method")
    if method is None:
        raise missing("method")
    if method != "POST":
        message = f"Invalid method '{method}': only 'POST' is supported by the Batch API."
        raise InvalidRequestError(message, param="method", code="invalid_method")
    found = line.get("url")
    if found is None:
        raise missing("url")
    if found != url:
        message = "The URL provided for this request does not match the batch endpoint."
        raise InvalidRequestError(message, param="url", code="invalid_url")
    body = line.get("body")
    if body is None:
        raise missing("body")
    if not isinstance(body, dict):
        raise wrong_type("body", "an object", body)
    return body if model_override is None else {**body, "model": model_override}
