"""Files that browsers keep: their URLs have a digest of what is in them, and so never change."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from batchjobs.api.answers import entity_tag, is_known
from batchjobs.errors import NotFoundError

PREFIX = "/static"
FOREVER = "public, max-age=31536000, immutable"

_FOLDER = Path(__file__).parent / "static"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    content: bytes
    media_type: str
    digest: str
    url: str


@cache
def assets() -> dict[str, Asset]:
    """By name: the path below `static`."""
    paths = [path for path in _FOLDER.rglob("*") if path.suffix in _MEDIA_TYPES]
    return {path.relative_to(_FOLDER).as_posix(): _read(path) for path in sorted(paths)}


def asset_url(name: str) -> str:
    return assets()[name].url


router = APIRouter(prefix=PREFIX)


@router.get("/{digest}/{name:path}")
def asset(request: Request, digest: str, name: str) -> Response:
    found = assets().get(name)
    if found is None or found.digest != digest:
        raise NotFoundError("There is no such file.")
    tag = entity_tag(found.digest)
    headers = {"etag": tag, "cache-control": FOREVER, "x-content-type-options": "nosniff"}
    if is_known(tag, request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media_type)


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]
    return Asset(
        content=content,
        media_type=_MEDIA_TYPES[path.suffix],
        digest=digest,
        url=f"{PREFIX}/{digest}/{path.relative_to(_FOLDER).as_posix()}",
    )
