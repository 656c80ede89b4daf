from __future__ import annotations

from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from batchjobs import api_keys, sign_ins
from batchjobs.api.app import create_app
from batchjobs.api.page.visitor import COOKIE
from batchjobs.deployment import Deployment
from batchjobs.models import SignIn
from batchjobs.states import JobState
from tests.support.api import bearer, new_secret
from tests.support.jobs import clock_of, create_job, load_job, request_line, start_job
from tests.support.page import (
    FROM_THE_PAGE,
    NAMELESS,
    OF_A_JOB,
    OF_A_SCHEDULE,
    OPERATORS,
    job_ids,
    sign_in,
    words,
)


def revoke_all(deployment: Deployment) -> None:
    with deployment.database.write() as session:
        for key in api_keys.keys(session):
            api_keys.revoke(session, deployment.clock, key.id)


@pytest.mark.parametrize("path", ["/", "/jobs/batch_1", "/workers", "/jobs/batch_1/answers"])
def test_page_without_a_key_asks_for_one(closed: TestClient, path: str) -> None:
    reply = closed.get(path)
    assert (reply.status_code, reply.headers["location"]) == (303, f"/sign-in?next={path}")
    assert closed.post("/jobs/batch_1/cancel").headers["location"] == "/sign-in"


@pytest.mark.parametrize("is_partial", [False, True])
def test_nothing_is_shown_or_done_without_a_key(
    deployment: Deployment, closed: TestClient, is_partial: bool
) -> None:
    known = start_job(deployment, [request_line("a")], filename="secret.jsonl")
    kept = {"/sign-in", "/sign-out", "/static/{digest}/{name:path}"}
    headers = {"hx-request": "true"} if is_partial else {}
    for method, path in (*OF_A_JOB, *OF_A_SCHEDULE, *OPERATORS, *NAMELESS):
        if path in kept:
            continue
        names = {"name": "nightly", "action": "cancel", "kind": "input", "suite": "a"}
        asked = path.format(job_id=known, run_id="run_1", **names)
        reply = closed.request(method, asked, headers=headers)
        assert reply.text == ""
        onward = reply.headers["hx-redirect" if is_partial else "location"]
        assert onward.split("?")[0] == "/sign-in"
    assert load_job(deployment, known).status == JobState.IN_PROGRESS


def test_refresh_without_a_key_sends_the_browser_to_sign_in(closed: TestClient) -> None:
    for asked, onward in (
        ({}, "/"),
        (
            {"hx-current-url": "http://testserver/?status=open&q=a%20b"},
            "/%3Fstatus%3Dopen%26q%3Da%2520b",
        ),
        ({"hx-current-url": "http://[elsewhere"}, "/"),
    ):
        reply = closed.get("/", headers={"hx-request": "true", **asked})
        assert (reply.headers["hx-redirect"], reply.text) == (f"/sign-in?next={onward}", "")


def test_key_opens_the_page_it_was_asked_for(deployment: Deployment, closed: TestClient) -> None:
    job_id = create_job(deployment, tenant="research")
    form = closed.get(f"/sign-in?next=/jobs/{job_id}").text
    assert f'name="next" value="/jobs/{job_id}"' in form
    secret = new_secret(deployment, "research")
    reply = closed.post("/sign-in", data={"key": f" {secret}\n", "next": f"/jobs/{job_id}"})
    assert (reply.status_code, reply.headers["location"]) == (303, f"/jobs/{job_id}")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert secret not in cookie
    page = closed.get(f"/jobs/{job_id}")
    assert page.status_code == 200
    assert secret not in page.text
    assert "research" in page.text


def test_cookie_of_an_encrypted_page_stays_encrypted(deployment: Deployment) -> None:
    app = create_app(deployment, require_keys=True)
    client = TestClient(
        app, base_url="https://testserver", follow_redirects=False, headers=FROM_THE_PAGE
    )
    reply = client.post("/sign-in", data={"key": new_secret(deployment)})
    assert "Secure" in reply.headers["set-cookie"]


@pytest.mark.parametrize("key", ["", "   ", "bj-wrong", "x" * 5000, "\0", "é"])
def test_wrong_key_is_refused_and_not_shown(closed: TestClient, key: str) -> None:
    reply = closed.post("/sign-in", data={"key": key, "next": "/workers"})
    assert reply.status_code == 401
    assert "set-cookie" not in reply.headers
    assert "not one of this server" in words(reply.text)
    assert 'value="/workers"' in reply.text
    if key.strip():
        assert f'value="{key}"' not in reply.text


def test_form_that_is_no_form_of_ours_is_refused(closed: TestClient) -> None:
    assert closed.post("/sign-in", content=b"key=" + b"x" * 20_000).status_code == 413
    assert closed.post("/sign-in", content=b"\xff\xfe").status_code == 401


@pytest.mark.parametrize(
    "path",
    ["https://evil.example", "//evil.example", "/\\evil.example", "jobs", "", "/\r\nx: y"],
)
def test_sign_in_leads_nowhere_else(deployment: Deployment, closed: TestClient, path: str) -> None:
    fields = {"key": new_secret(deployment), "next": path}
    assert closed.post("/sign-in", data=fields).headers["location"] == "/"


def test_sign_in_from_another_site_is_refused(deployment: Deployment, closed: TestClient) -> None:
    reply = closed.post(
        "/sign-in",
        data={"key": new_secret(deployment)},
        headers={"sec-fetch-site": "cross-site"},
    )
    assert reply.status_code == 403
    assert "set-cookie" not in reply.headers


def test_revoked_key_closes_the_page_at_once(deployment: Deployment, closed: TestClient) -> None:
    sign_in(closed, deployment, "research")
    assert closed.get("/").status_code == 200
    revoke_all(deployment)
    assert closed.get("/").status_code == 303


def test_sign_in_ends_after_its_time(deployment: Deployment, closed: TestClient) -> None:
    sign_in(closed, deployment, "research")
    clock_of(deployment).advance(sign_ins.LIFETIME - timedelta(seconds=1))
    assert closed.get("/").status_code == 200
    clock_of(deployment).advance(timedelta(seconds=1))
    assert closed.get("/").status_code == 303
    sign_in(closed, deployment, "research")
    with deployment.database.read() as session:
        assert session.query(SignIn).count() == 1


def test_sign_out_ends_it_for_whoever_has_the_cookie(
    deployment: Deployment, closed: TestClient
) -> None:
    sign_in(closed, deployment, "research")
    secret = closed.cookies[COOKIE]
    assert closed.post("/sign-out").headers["location"] == "/sign-in"
    assert COOKIE not in closed.cookies
    closed.cookies.set(COOKIE, secret)
    assert closed.get("/").status_code == 303


def test_cookie_is_worth_nothing_to_the_api(deployment: Deployment, closed: TestClient) -> None:
    sign_in(closed, deployment, "research")
    assert closed.get("/v1/batches").status_code == 401
    headers = bearer(closed.cookies[COOKIE])
    assert closed.get("/v1/batches", headers=headers).status_code == 401


def test_without_required_keys_anybody_is_the_default_tenant_until_signed_in(
    deployment: Deployment, client: TestClient
) -> None:
    ours = create_job(deployment)
    theirs = create_job(deployment, tenant="research")
    assert job_ids(client.get("/").text) == [ours]
    client.cookies.set(COOKIE, "no-such-sign-in")
    assert job_ids(client.get("/").text) == [ours]
    client.cookies.clear()
    sign_in(client, deployment, "research")
    assert job_ids(client.get("/").text) == [theirs]
    assert client.post("/sign-out").headers["location"] == "/"
    assert job_ids(client.get("/").text) == [ours]
