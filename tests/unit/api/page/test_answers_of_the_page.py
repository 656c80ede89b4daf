"""What every answer of the page has in common."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import batchjobs.api.page
from batchjobs.api.page.assets import assets
from batchjobs.deployment import Deployment
from tests.support.page_jobs import populate

FOLDER = Path(batchjobs.api.page.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
INLINE = re.compile(r"<style|\bstyle=|\bon\w+=|<script(?![^>]*\bsrc=)|javascript:", re.IGNORECASE)


def test_browser_is_told_to_trust_nothing_but_our_files(
    deployment: Deployment, client: TestClient, closed: TestClient
) -> None:
    job_id = populate(deployment)["failures"]
    paths = (
        "/",
        "/workers",
        f"/jobs/{job_id}",
        f"/jobs/{job_id}/answers",
        "/jobs/none",
        "/sign-in",
    )
    replies = [client.get(path) for path in paths]
    replies += [closed.get("/"), closed.post("/sign-in"), client.post(f"/jobs/{job_id}/cancel")]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "same-origin"
        assert INLINE.search(reply.text) is None


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_template_has_nothing_inline_and_nothing_from_elsewhere(template: Path) -> None:
    text = template.read_text()
    assert INLINE.search(text) is None
    assert re.search(r'(href|src|action)="(https?:)?//', text) is None


def test_only_buttons_of_ours_are_taken_for_markup() -> None:
    text = "\n".join(path.read_text() for path in TEMPLATES)
    marked = re.findall(r"'([^']*)' \| safe|\| safe", text)
    assert len(marked) == 2
    assert all(words.startswith("<button ") and "{" not in words for words in marked)
    assert "autoescape" not in text


def test_files_are_kept_by_browsers_under_their_content(client: TestClient) -> None:
    page = client.get("/workers").text
    urls = re.findall(r'(?:href|src)="(/static/[^"#]+)"', page)
    assert len(urls) >= 6
    for url in urls:
        reply = client.get(url)
        digest = url.split("/")[2]
        assert reply.status_code == 200
        assert hashlib.sha256(reply.content).hexdigest().startswith(digest)
        assert "immutable" in reply.headers["cache-control"]
        assert reply.headers["content-type"].split(";")[0] in (
            "text/css",
            "text/javascript",
            "image/svg+xml",
        )
        again = client.get(url, headers={"if-none-match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/static/0000000000000000/page.css",
        "/static/x/%2e%2e/views.py",
        "/static/x/vendor/THIRD_PARTY.md",
        "/static/",
    ],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_files_of_others_are_as_they_came() -> None:
    vendor = FOLDER / "static" / "vendor"
    noted = (vendor / "THIRD_PARTY.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` .*\((\w+\.LICENSE)\) \| `(\w{64})` \|$", noted, re.MULTILINE)
    assert {name for name, _, _ in rows} == {
        Path(name).name for name in assets() if name.startswith("vendor/")
    }
    for name, licence, digest in rows:
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest
        assert (vendor / licence).stat().st_size > 300
