"""The page as a browser asks for it, and what is in its answers."""

from __future__ import annotations

import html
import re

from starlette.testclient import TestClient

from batchjobs.deployment import Deployment
from tests.support.api import new_secret

FROM_THE_PAGE = {"sec-fetch-site": "same-origin"}
OF_A_JOB = (
    ("GET", "/jobs/{job_id}"),
    ("GET", "/jobs/{job_id}/answers"),
    ("GET", "/jobs/{job_id}/failed"),
    ("GET", "/jobs/{job_id}/files/{kind}"),
    ("GET", "/jobs/{job_id}/{action}"),
    ("POST", "/jobs/{job_id}/cancel"),
    ("POST", "/jobs/{job_id}/retry"),
)
"""The page's routes that name a job."""
OF_A_SCHEDULE = (
    ("GET", "/schedules/{name}"),
    ("GET", "/schedules/{name}/{action}"),
    ("POST", "/schedules/{name}/pause"),
    ("POST", "/schedules/{name}/resume"),
    ("POST", "/schedules/{name}/run"),
    ("POST", "/schedules/{name}/remove"),
)
OPERATORS = (
    ("GET", "/evals"),
    ("GET", "/evals/suites/{suite}"),
    ("GET", "/evals/runs/{run_id}"),
    ("GET", "/evals/runs/{run_id}/answers"),
    ("GET", "/evals/runs/{run_id}/report"),
    ("GET", "/evals/compare"),
    ("GET", "/workers"),
)
"""Of all tenants' work together; other tenants are told that there is no such page."""
NAMELESS = (
    ("GET", "/"),
    ("GET", "/schedules"),
    ("GET", "/sign-in"),
    ("POST", "/sign-in"),
    ("POST", "/sign-out"),
    ("GET", "/static/{digest}/{name:path}"),
)
_ROW = re.compile(r'<tr id="(batch_\w+)">')


def job_ids(page: str) -> list[str]:
    """Of the jobs in a list, in its order."""
    return _ROW.findall(page)


def link(page: str, relation: str) -> str | None:
    """Where the link `prev` or `next` leads."""
    found = re.search(rf'href="([^"]+)" rel="{relation}"', page)
    return None if found is None else html.unescape(found[1])


def words(page: str) -> str:
    """What a person reads of it."""
    body = page.partition("<main")[2] or page
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def sign_in(client: TestClient, deployment: Deployment, tenant: str) -> None:
    """The client's cookie is then the tenant's."""
    answer = client.post("/sign-in", data={"key": new_secret(deployment, tenant)})
    assert answer.status_code == 303, answer.text
