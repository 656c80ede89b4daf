from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from batchjobs.api.app import create_app
from batchjobs.api.page.eval_compare import PAGE_FLIPS
from batchjobs.api.page.evals import PAGE_RUNS
from batchjobs.deployment import Deployment
from batchjobs.evals import runs
from batchjobs.evals.states import Purpose
from batchjobs.evals.tables import EvalRun
from tests.support.engines import add_models
from tests.support.evals import MODEL, place_of, rows, run_suite, write_suite
from tests.support.jobs import create_job, open_deployment
from tests.support.page import OPERATORS, link, sign_in, words
from tests.support.page_nights import (
    MODELS,
    Night,
    add_nights,
    pin,
    populate_evals,
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """For tests that only read."""
    with open_deployment(tmp_path_factory.mktemp("nights")) as opened:
        yield opened


@pytest.fixture(scope="module")
def made(deployment: Deployment) -> dict[str, list[str]]:
    return populate_evals(deployment)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path) as opened:
        yield opened


def load(deployment: Deployment, run_id: str) -> EvalRun:
    with deployment.database.read() as session:
        return runs.get(session, run_id)


def test_suites_are_listed_with_their_latest_verdicts(
    deployment: Deployment, client: TestClient, made: dict[str, list[str]]
) -> None:
    page = client.get("/evals").text
    said = words(page)
    assert said.startswith('id="main" tabindex="-1"> Evals 1 worse 1 no verdict 1 better Suite')
    worst = load(deployment, made["worse"][-1])
    assert worst.verdict is not None
    effect = f"{100 * worst.verdict['whole']['effect']:+.1f}".replace("-", "−")
    assert f"arithmetic {MODELS[0]} worse" in said
    assert f"160 of 160 scored {effect} [" in said
    assert "now answering" in said
    assert "no baseline is pinned" in said
    strip = re.search(r'id="standing-2".*?</tr>', page, re.DOTALL)
    assert strip is not None
    letters = re.findall(r'aria-hidden="true">(.)<', strip[0])
    assert "".join(letters) == "oooooo?oobo" + "ow…"
    assert f'href="/evals/runs/{worst.id}" title="worse, ' in page


def test_suite_tells_the_baseline_of_each_model(
    client: TestClient, made: dict[str, list[str]]
) -> None:
    assert made["baseline"]
    every = words(client.get("/evals/suites/arithmetic").text)
    one, other = (f"The baseline of {model} is 3 pinned runs." for model in MODELS[:2])
    assert one in every
    assert other in every
    said = words(client.get(f"/evals/suites/arithmetic?model={MODELS[0]}").text)
    assert one in said
    assert other not in said


def test_page_without_runs_says_how_to_make_a_baseline(fresh: Deployment) -> None:
    said = words(TestClient(create_app(fresh)).get("/evals").text)
    assert "No eval runs yet." in said
    assert "batchjobs evals baseline suite.yaml" in said


def test_trend_has_the_same_numbers_as_a_table_beside_the_baselines_band(
    deployment: Deployment, client: TestClient, made: dict[str, list[str]]
) -> None:
    page = client.get(f"/evals/suites/arithmetic?model={MODELS[0]}").text
    assert page.count("data-trend=") == 1
    points = re.findall(r'data-score="([\d.]+)".*?data-word="([\w ]*)" data-run="(\w+)"', page)
    assert [run for _, _, run in points] == made["baseline"] + made["worse"]
    for score, word, run_id in points:
        run = load(deployment, run_id)
        assert run.scores is not None
        assert float(score) == pytest.approx(run.scores["numeric"]["mean"], abs=1e-6)
        assert word == (run.word or "")
    band = re.search(r'data-mean="([\d.]+)" data-low="([\d.]+)" data-high="([\d.]+)"', page)
    assert band is not None
    mean, low, high = map(float, band.groups())
    worst = load(deployment, made["worse"][-1]).verdict
    assert worst is not None
    assert mean == pytest.approx(worst["whole"]["baseline"], abs=1e-6)
    assert low < mean < high
    assert client.get("/evals/suites/arithmetic").text.count("data-trend=") == 2
    again = client.get(f"/evals/suites/arithmetic?model={MODELS[0]}").text
    assert band[0] in again


def test_suite_lists_its_runs_page_by_page(fresh: Deployment) -> None:
    made = add_nights(fresh, [Night(right=0.5)] * (PAGE_RUNS + 1), items=2, suite="b-ä.c")
    client = TestClient(create_app(fresh))
    first = client.get("/evals/suites/b-%C3%A4.c").text
    assert re.findall(r'<tr id="(run_\w+)"', first) == made[:0:-1]
    older = link(first, "next")
    assert older is not None
    second = client.get(f"/evals/suites/b-%C3%A4.c{older}").text
    assert re.findall(r'<tr id="(run_\w+)"', second) == made[:1]
    assert "data-trend" not in second


def test_run_tells_what_its_verdict_stands_on(
    deployment: Deployment, client: TestClient, made: dict[str, list[str]]
) -> None:
    run = load(deployment, made["worse"][-1])
    assert run.verdict is not None
    whole = run.verdict["whole"]
    page = client.get(f"/evals/runs/{run.id}").text
    said = words(page)
    assert "worse" in said
    assert "points against the baseline of 3 runs" in said
    assert f"{whole['broken']} broken {whole['fixed']} fixed of 160 items" in said
    assert f"Sees drops of {100 * whole['smallest_drop']:.1f} points" in said
    report = client.get(f"/evals/runs/{run.id}/report")
    assert re.search(r'href="([^"]*/report)" download', page)[1] == str(report.url.path)  # type: ignore[index]
    assert f"arithmetic-{run.id}.html" in report.headers["content-disposition"]
    assert run.verdict["sentence"] in html.unescape(report.text)
    assert "p, one-sided < 0.0001 < 0.0001 by Holm, α 0.01" in said
    for tag in run.verdict["tags"]:
        effect = f"{100 * tag['effect']:+.1f}".replace("-", "−")
        assert re.search(rf"{tag['tag']} [\d.]+ {effect} ", said)
    assert "truncated 0.0 % 0.0 % 1.0 %" in said
    assert said.count("as the baseline") == 6
    assert f'href="/jobs/{run.jobs["answers"][0]}"' in page
    assert f"before={made['baseline'][-1]}&amp;after={run.id}" in page


def test_run_without_a_verdict_tells_why_and_leads_to_what_was_not_answered(
    client: TestClient, made: dict[str, list[str]]
) -> None:
    path = f"/evals/runs/{made['worse'][6]}"
    said = words(client.get(path).text)
    assert "no verdict (only 92.5% of the answers have a score" in said
    assert "truncated 7.5 % over 0.0 % 1.0 %" in said
    found = client.get(f"{path}/answers?show=truncated").text
    assert found.count('class="result-head"') == 12
    assert "sum-0000 truncated kind=add · length" in words(found)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("running", "It has no verdict yet: it is answering."),
        ("failed", "there is no model 'qwen3-8b'"),
        ("baseline", "It was made for a baseline, and is not judged."),
    ],
)
def test_run_that_is_not_judged_tells_so(
    client: TestClient, made: dict[str, list[str]], kind: str, said: str
) -> None:
    path = f"/evals/runs/{made[kind][0]}"
    page = client.get(path)
    assert page.status_code == 200
    assert said in words(page.text)
    assert ("data-every" in page.text) == (kind == "running")
    assert client.get(f"{path}/answers").status_code == 200


def test_answers_are_read_page_by_page(client: TestClient, made: dict[str, list[str]]) -> None:
    path = f"/evals/runs/{made['worse'][0]}/answers"
    first = client.get(path).text
    following = link(first, "next")
    assert following == "?page=1"
    seen = [client.get(f"{path}?page={number}").text for number in range(8)]
    items = re.findall(r'<code class="id">(sum-\d+)', "".join(seen))
    assert items == [f"sum-{number:04}" for number in range(160)]
    assert "Nothing follows." in words(seen[-1])
    lowest = words(client.get(f"{path}?show=lowest").text)
    assert re.search(r"sum-\d+ score 0, extracted '", lowest)
    for odd in ("?page=x", "?page=-1", "?show=nothing", "?page=²"):
        assert "sum-0000" in client.get(f"{path}{odd}").text


def test_flipped_items_stand_side_by_side(
    deployment: Deployment, client: TestClient, made: dict[str, list[str]]
) -> None:
    before, after = made["baseline"][0], made["worse"][-1]
    path = f"/evals/compare?before={before}&after={after}"
    page = client.get(path).text
    said = words(page)
    all_of, broken, fixed = map(int, re.findall(r"(?:All|Broken|Fixed) (\d+)", said)[:3])
    assert all_of == broken + fixed > PAGE_FLIPS
    assert page.count('class="pair"') == PAGE_FLIPS
    assert "Show all 5" in said
    seen, following = 0, "?" + path.partition("?")[2]
    while following:
        found = client.get(f"/evals/compare{following}").text
        seen += found.count('class="pair"')
        following = link(found, "next") or ""
    assert seen == all_of
    tagged = client.get(f"{path}&way=broken&tag=kind%3Dadd").text
    assert set(re.findall(r'<span class="sub">(kind=\w+)<', tagged)) == {"kind=add"}
    assert "badge good" not in tagged.partition("flips")[2]
    swapped = words(client.get(f"/evals/compare?before={after}&after={before}").text)
    assert f"All {all_of} Broken {fixed} Fixed {broken}" in swapped


def test_runs_that_cannot_be_compared_are_told(
    client: TestClient, made: dict[str, list[str]]
) -> None:
    for before, after, status, said in (
        (made["bare"][0], made["worse"][0], 409, "two suites, json-fields and arithmetic"),
        (made["running"][0], made["worse"][0], 409, "is not finished"),
        ("run_0", made["worse"][0], 404, "No eval run found"),
        ("", "", 404, "No eval run found"),
    ):
        reply = client.get(f"/evals/compare?before={before}&after={after}")
        assert (reply.status_code, said in words(reply.text)) == (status, True)


def test_job_says_of_which_run_it_is_if_the_run_says_the_same(
    deployment: Deployment, client: TestClient, made: dict[str, list[str]]
) -> None:
    run = load(deployment, made["worse"][0])
    assert f'href="/evals/runs/{run.id}"' in client.get(f"/jobs/{run.jobs['answers'][0]}").text
    pretender = create_job(deployment, "file-none", metadata={"eval_run": run.id})
    assert f'href="/evals/runs/{run.id}"' not in client.get(f"/jobs/{pretender}").text


def test_alarm_and_the_run_that_confirms_it_lead_to_each_other(
    fresh: Deployment, tmp_path: Path
) -> None:
    add_models(fresh, MODEL)
    place = place_of(fresh)
    path = write_suite(tmp_path / "suite", rows(60))
    baseline = [run_suite(place, path, purpose=Purpose.BASELINE).id for _ in range(2)]
    pin(fresh, baseline)
    run = run_suite(place, path, lambda text: "no number" if text.endswith("7") else "-1")
    client = TestClient(create_app(fresh))
    assert run.word == "no verdict"
    assert "unparsed 10.0 % over 0.0 % 1.0 %" in words(client.get(f"/evals/runs/{run.id}").text)
    alarm = run_suite(place, path, lambda text: "-1")
    page = client.get(f"/evals/runs/{alarm.id}").text
    assert "worse" in words(page)
    assert "a second run held it up." in words(page)
    confirming = re.search(r'href="/evals/runs/(\w+)">a second run', page)
    assert confirming is not None
    other = client.get(f"/evals/runs/{confirming[1]}").text
    assert f'href="/evals/runs/{alarm.id}">another run' in other
    for job_id in alarm.jobs["answers"]:
        assert f'href="/evals/runs/{alarm.id}"' in client.get(f"/jobs/{job_id}").text
    compared = client.get(f"/evals/compare?before={baseline[0]}&after={alarm.id}").text
    assert "All 60 Broken 60 Fixed 0" in words(compared)


@pytest.mark.parametrize(("tenant", "status"), [("default", 200), ("research", 404)])
def test_evals_are_the_operators(
    deployment: Deployment,
    closed: TestClient,
    made: dict[str, list[str]],
    tenant: str,
    status: int,
) -> None:
    baseline = made["baseline"]
    sign_in(closed, deployment, tenant)
    for method, path in OPERATORS:
        asked = path.format(suite="arithmetic", run_id=baseline[0])
        query = f"?before={baseline[0]}&after={baseline[1]}"
        reply = closed.request(method, f"{asked}{query}")
        assert reply.status_code == status, path
        assert ("arithmetic" in reply.text) == (status == 200 and path != "/workers")
    assert ('href="/evals"' in closed.get("/").text) == (status == 200)


def test_what_an_answer_holds_is_never_taken_for_markup(
    fresh: Deployment,
) -> None:
    client = TestClient(create_app(fresh))
    model = "<b>&\"'"
    made = add_nights(fresh, [Night(right=0.5)], items=4, model=model)
    for path in ("/evals", "/evals/suites/arithmetic", f"/evals/runs/{made[0]}"):
        page = client.get(path).text
        assert "<b>" not in page
        assert "&lt;b&gt;" in page
