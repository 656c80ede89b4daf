"""What is searched for."""

from __future__ import annotations

from starlette.datastructures import QueryParams

MAX_SEARCH_CHARS = 200


def read_search(query: QueryParams) -> str:
    """Of the parameter `q`: printable and not too long; "" if there is nothing to search for."""
    letters = (letter if letter.isprintable() else " " for letter in query.get("q", ""))
    return "".join(letters).strip()[:MAX_SEARCH_CHARS].strip()
