"""The page in a real browser, as people of every kind look at it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from batchjobs.api.page.visitor import COOKIE
from batchjobs.deployment import Deployment
from batchjobs.finalize import finalize
from batchjobs.queue import jobs
from batchjobs.states import JobState
from batchjobs.worker.presence import present
from tests.support.api import new_secret
from tests.support.browser import FORMS, Form, looking, take_picture, wants_pictures
from tests.support.jobs import create_job, load_job, open_deployment, request_line, start_job
from tests.support.page_jobs import MODELS, OWNER, add_thousands, answer_more, populate
from tests.support.page_nights import populate_evals
from tests.support.page_odd import (
    ARABIC,
    SCRIPT,
    TURNED,
    UNBROKEN,
    Odd,
    populate_odd,
)
from tests.support.page_schedules import populate_schedules
from tests.support.served import serving

REFRESH_MS = 3000
KINDS = (
    *("jobs", "jobs-empty", "workers", "sign-in", "job-failures", "answers", "cancel"),
    *("schedules", "schedule", "evals", "suite", "run-worse", "run-none", "compare"),
)
DARK = ("jobs", "workers", "job-failures", "answers", "schedule", "evals", "suite")
ACCESSIBLE = {"desktop-light": KINDS, "phone-dark": DARK}
"""Which pages are looked through for what keeps people out: each kind, and both schemes."""
_SPILLED = """() => {
    const wide = document.documentElement.scrollWidth - window.innerWidth;
    const cells = [...document.querySelectorAll("td, th, dt, dd, .badge, h1, h2, p, li")];
    const spilled = cells.filter((cell) => {
        const style = getComputedStyle(cell);
        const head = cell.closest("thead");
        const isHidden = head && getComputedStyle(head).position === "absolute";
        return !isHidden && style.overflowX === "visible" && cell.clientWidth > 1
            && cell.scrollWidth > cell.clientWidth + 1;
    });
    return [...(wide > 0 ? [`${wide} pixels`] : []), ...spilled.map((cell) => cell.outerHTML)];
}"""
"""What is wider than the page, or than its place on it."""
MAX_SHIFT = 0.02
"""Of what is in sight, by the browser's own measure; 0.1 is what people begin to notice."""
_SHIFTS = """() => {
    window.shifted = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.shifted += entry.value;
    }).observe({ type: "layout-shift" });
    window.isTheSamePage = true;
}"""
_TREND = "document.querySelector('#chart-1 canvas')?.toDataURL()"
_PICTURE = "() => document.querySelector('#chart canvas')?.toDataURL()"
_COLOURS_OF_CHART = """() => {
    const canvas = document.querySelector("#chart canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 4).join());
    return seen.size;
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A deployment in the middle of a night; `jobs` are its jobs by kind, `runs` those of evals."""

    deployment: Deployment
    url: str
    closed_url: str
    empty_url: str
    jobs: dict[str, str]
    runs: dict[str, list[str]]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with ExitStack() as stack:
        deployment = stack.enter_context(
            open_deployment(tmp_path_factory.mktemp("night"), poll_seconds=0.05)
        )
        empty = stack.enter_context(open_deployment(tmp_path_factory.mktemp("empty")))
        stack.enter_context(present(deployment.settings.workers_dir, OWNER))
        runs = populate_evals(deployment)
        jobs = populate(deployment)
        populate_schedules(deployment, runs["worse"], jobs["running"])
        add_thousands(deployment, 200)
        yield Night(
            deployment=deployment,
            url=stack.enter_context(serving(deployment)),
            closed_url=stack.enter_context(serving(deployment, require_keys=True)),
            empty_url=stack.enter_context(serving(empty)),
            jobs=jobs,
            runs=runs,
        )


def pages_of(night: Night) -> dict[str, str]:
    """Every kind of page by a name for its picture."""
    jobs = {
        f"job-{kind}": f"{night.url}/jobs/{night.jobs[kind]}"
        for kind in ("running", "at_risk", "waiting", "failures", "invalid", "expired")
    }
    failures = jobs["job-failures"]
    runs = {
        "run-worse": f"{night.url}/evals/runs/{night.runs['worse'][-1]}",
        "run-none": f"{night.url}/evals/runs/{night.runs['worse'][6]}",
        "run-baseline": f"{night.url}/evals/runs/{night.runs['baseline'][0]}",
        "run-running": f"{night.url}/evals/runs/{night.runs['running'][0]}",
        "run-failed": f"{night.url}/evals/runs/{night.runs['failed'][0]}",
    }
    pair = f"before={night.runs['baseline'][0]}&after={night.runs['worse'][-1]}"
    return {
        "jobs": night.url,
        "jobs-none-fits": f"{night.url}/?q=nothing-like-it",
        "jobs-empty": night.empty_url,
        "workers": f"{night.url}/workers",
        "workers-empty": f"{night.empty_url}/workers",
        "sign-in": f"{night.closed_url}/",
        **jobs,
        "answers": f"{failures}/answers",
        "answers-running": f"{jobs['job-running']}/answers?q=item-0001",
        "failed": f"{failures}/failed",
        "cancel": f"{jobs['job-running']}/cancel",
        "schedules": f"{night.url}/schedules",
        "schedules-empty": f"{night.empty_url}/schedules",
        "schedule": f"{night.url}/schedules/nightly-evals",
        "schedule-file": f"{night.url}/schedules/morning-digest",
        "schedule-paused": f"{night.url}/schedules/weekly-report",
        "schedule-remove": f"{night.url}/schedules/weekly-report/remove",
        "evals": f"{night.url}/evals",
        "evals-empty": f"{night.empty_url}/evals",
        "suite": f"{night.url}/evals/suites/arithmetic",
        "suite-bare": f"{night.url}/evals/suites/json-fields",
        **runs,
        "run-answers": f"{runs['run-none']}/answers?show=truncated",
        "compare": f"{night.url}/evals/compare?{pair}",
    }


def odd_pages(url: str, odd: Odd) -> dict[str, str]:
    """Those on which somebody's words and numbers stand."""
    suites = {
        f"odd-{kind}-{name}": f"{url}/evals/{kind}/{at}"
        for name, runs in odd.runs.items()
        for kind, at in (("suites", name if name != "worse" else "s" * 64), ("runs", runs[-1]))
    }
    pair = f"before={odd.runs['worse'][0]}&after={odd.runs['worse'][-1]}"
    return {
        "odd-jobs": url,
        "odd-search": f"{url}/?q={quote(SCRIPT + UNBROKEN)}",
        "odd-job": f"{url}/jobs/{odd.answered}",
        "odd-named": f"{url}/jobs/{odd.named[ARABIC]}",
        "odd-huge": f"{url}/jobs/{odd.huge}",
        "odd-answers": f"{url}/jobs/{odd.answered}/answers",
        "odd-failed": f"{url}/jobs/{odd.answered}/failed",
        "odd-workers": f"{url}/workers",
        "odd-schedules": f"{url}/schedules",
        "odd-schedule": f"{url}/schedules/{'s' * 64}",
        "odd-evals": f"{url}/evals",
        "odd-run-answers": f"{url}/evals/runs/{odd.runs['worse'][-1]}/answers",
        "odd-compare": f"{url}/evals/compare?{pair}",
        **suites,
    }


def look_again(page: Page) -> None:
    """Let the time until the next refresh pass."""
    page.clock.fast_forward(REFRESH_MS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_page_is_sound(browser: Browser, night: Night, form: Form) -> None:
    axe, pages = Axe(), pages_of(night)
    shown = pages if str(form) in ACCESSIBLE or wants_pictures() else KINDS
    with looking(browser, form) as watched:
        page = watched.page
        for name in shown:
            page.goto(pages[name])
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{name} is {wide} pixels too wide"
            if name in ACCESSIBLE.get(str(form), ()):
                found = axe.run(page).response["violations"]
                assert [(wrong["id"], wrong["nodes"][0]["html"][:200]) for wrong in found] == [], (
                    name
                )
            take_picture(page, name, form)


@pytest.fixture(scope="module")
def odd_night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Odd]]:
    with open_deployment(tmp_path_factory.mktemp("odd"), poll_seconds=0.05) as deployment:
        odd = populate_odd(deployment)
        with serving(deployment) as url:
            yield url, odd


@pytest.mark.parametrize("form", (FORMS if wants_pictures() else FORMS[::3]), ids=str)
def test_page_holds_whatever_stands_on_it(
    browser: Browser, odd_night: tuple[str, Odd], form: Form
) -> None:
    with looking(browser, form) as watched:
        page = watched.page
        spilled = {}
        for name, url in odd_pages(*odd_night).items():
            page.goto(url)
            spilled[name] = page.evaluate(_SPILLED)
            assert not page.evaluate("window.hacked"), name
            take_picture(page, name, form)
        assert {name: found for name, found in spilled.items() if found} == {}


def test_name_cannot_turn_around_what_it_says(browser: Browser, odd_night: tuple[str, Odd]) -> None:
    url, odd = odd_night
    with looking(browser) as watched:
        page = watched.page
        page.goto(f"{url}/jobs/{odd.named[TURNED]}")
        expect(page.get_by_role("heading", level=1)).to_have_text("invoice-\ufffdlnosj.exe")
        page.goto(f"{url}/jobs/{odd.named[' ']}")
        expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("^file-"))


def test_progress_changes_without_a_reload(browser: Browser, night: Night) -> None:
    with looking(browser) as watched:
        page = watched.page
        page.clock.install()
        page.goto(f"{night.url}/jobs/{night.jobs['running']}")
        counts = page.locator(".counts-line")
        expect(counts).to_contain_text("120 of 240 requests")
        cancel = page.get_by_role("link", name="Cancel job")
        cancel.focus()
        page.evaluate(_SHIFTS)
        answer_more(night.deployment, night.jobs["running"])
        look_again(page)
        expect(counts).to_contain_text("160 of 240 requests")
        expect(page.locator("main [role=status]")).to_contain_text("60 % done")
        expect(cancel).to_be_focused()
        assert page.evaluate("window.isTheSamePage")
        assert page.evaluate("window.shifted") < MAX_SHIFT


def test_job_that_ends_is_told_and_not_asked_for_again(browser: Browser, night: Night) -> None:
    job_id = start_job(night.deployment, [request_line("a", model=MODELS[0])])
    with looking(browser) as watched:
        page = watched.page
        page.clock.install()
        page.goto(f"{night.url}/jobs/{job_id}")
        expect(page.locator("[data-every]")).to_have_count(1)
        answer_more(night.deployment, job_id)
        with night.deployment.database.write() as session:
            jobs.settle(session, night.deployment.clock, job_id)
        finalize(night.deployment, job_id)
        look_again(page)
        expect(page.locator(".head .badge")).to_have_text("completed")
        expect(page.get_by_role("link", name="Output 1")).to_be_visible()
        expect(page.get_by_role("link", name="Cancel job")).to_have_count(0)
        expect(page.locator("[data-every]")).to_have_count(0)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        look_again(page)
        page.get_by_role("link", name="Answers 1").click()
        expect(page.locator(".results li")).to_have_count(1)
        assert asked[0] == f"{night.url}/jobs/{job_id}/answers"


def test_way_back_leads_to_the_list_as_it_was(browser: Browser, night: Night) -> None:
    with looking(browser) as watched:
        page = watched.page
        page.goto(f"{night.url}/?status=completed")
        page.keyboard.press("/")
        page.keyboard.type("mmlu")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="mmlu-pro-nightly.jsonl").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("mmlu-pro-nightly.jsonl")
        page.go_back()
        expect(page).to_have_url(f"{night.url}/?q=mmlu&status=completed")
        expect(page.get_by_role("searchbox")).to_have_value("mmlu")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.go_forward()
        expect(page.get_by_role("heading", level=1)).to_have_text("mmlu-pro-nightly.jsonl")


def test_list_changes_without_a_reload(browser: Browser, night: Night) -> None:
    with looking(browser) as watched:
        page = watched.page
        page.clock.install()
        page.goto(night.url)
        row = page.locator(f"#{night.jobs['at_risk']}")
        expect(row).to_contain_text("40 / 900")
        page.evaluate(_SHIFTS)
        answer_more(night.deployment, night.jobs["at_risk"], failed=2)
        look_again(page)
        expect(row).to_contain_text("80 / 900")
        expect(row).to_contain_text("2 failed")
        assert page.evaluate("window.isTheSamePage")
        assert page.evaluate("window.shifted") < MAX_SHIFT
        added = create_job(night.deployment, "file-new")
        look_again(page)
        expect(page.locator(f"#{added}")).to_be_visible()


def test_search_narrows_the_list_as_it_is_typed(browser: Browser, night: Night) -> None:
    with looking(browser) as watched:
        page = watched.page
        page.goto(night.url)
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type("mmlu")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page).to_have_url(f"{night.url}/?q=mmlu")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.reload()
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.get_by_role("searchbox")).to_have_value("mmlu")


def test_pages_lead_through_all_jobs(browser: Browser, night: Night) -> None:
    with looking(browser, Form(size="phone")) as watched:
        page = watched.page
        page.goto(f"{night.url}/?status=cancelled")
        page.get_by_role("link", name="All 2").click()
        first = page.locator("tbody tr").first.get_attribute("id")
        page.get_by_role("link", name="Older").click()
        expect(page.locator(f"#{first}")).to_have_count(0)
        page.get_by_role("link", name="Newer").click()
        expect(page.locator(f"#{first}")).to_be_visible()


def test_job_is_cancelled_by_keyboard(browser: Browser, night: Night) -> None:
    job_id = night.jobs["waiting"]
    with looking(browser) as watched:
        page = watched.page
        page.goto(night.url)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("Enter")
        target = page.locator(f"#{job_id} a")
        for _ in range(40):
            page.keyboard.press("Tab")
            if target.evaluate("element => element === document.activeElement"):
                break
        expect(target).to_be_focused()
        assert target.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        cancel = page.get_by_role("link", name="Cancel job")
        cancel.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(cancel).to_be_focused()
        assert load_job(night.deployment, job_id).status == JobState.IN_PROGRESS
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Cancel the job")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator(".head .badge")).to_have_text(re.compile("cancelling|cancelled"))
        assert load_job(night.deployment, job_id).status != JobState.IN_PROGRESS


def test_job_is_cancelled_without_scripts(browser: Browser, night: Night) -> None:
    job_id = create_job(night.deployment, "file-none")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{night.url}/jobs/{night.jobs['at_risk']}")
    page.get_by_role("link", name="Cancel job").click()
    expect(page.get_by_role("heading", name="Cancel this job?")).to_be_visible()
    page.get_by_role("link", name="Back to the job").click()
    page.goto(night.url)
    page.get_by_role("searchbox").fill(job_id)
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(f"{night.url}/evals/suites/arithmetic")
    expect(page.locator(".chart").first).to_be_hidden()
    page.get_by_text("The same as a table").first.click()
    expect(page.locator("#trend-1 tbody tr").first).to_be_visible()
    context.close()


def test_chart_is_drawn_and_follows_the_scheme(browser: Browser, night: Night) -> None:
    with looking(browser) as watched:
        page = watched.page
        page.clock.install()
        page.goto(f"{night.url}/workers")
        expect(page.locator("#chart canvas")).to_be_visible()
        assert page.evaluate(_COLOURS_OF_CHART) > 10
        page.get_by_text("The same as a table").click()
        expect(page.locator("#rates tbody tr")).to_have_count(60)
        light = page.evaluate(_PICTURE)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"light => ({_PICTURE})() !== light", arg=light)
        answered = page.expect_response(re.compile("/workers$"))
        with answered:
            look_again(page)
        expect(page.locator("#rates")).to_be_visible()
        expect(page.locator("#chart canvas")).to_have_count(1)


def test_schedule_is_run_paused_and_removed_by_keyboard(browser: Browser, night: Night) -> None:
    with looking(browser) as watched:
        page = watched.page
        page.goto(f"{night.url}/schedules")
        page.get_by_role("link", name="weekly-report").focus()
        page.keyboard.press("Enter")
        badge = page.locator(".head .badge")
        expect(badge).to_have_text("paused")
        page.get_by_role("button", name="Resume").press("Enter")
        expect(badge).to_have_text("not run yet")
        page.get_by_role("button", name="Pause").press("Enter")
        expect(badge).to_have_text("paused")
        remove = page.get_by_role("link", name="Remove")
        remove.press("Enter")
        expect(page.get_by_role("dialog")).to_contain_text("Remove this schedule?")
        page.keyboard.press("Escape")
        expect(remove).to_be_focused()
        local = page.locator(".facts time[data-local], .dues time[data-local]")
        expect(local).to_have_count(0)
        remove.press("Enter")
        expect(page.get_by_role("button", name="Remove the schedule")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{night.url}/schedules")
        expect(page.get_by_role("link", name="weekly-report")).to_have_count(0)


def test_slot_keeps_its_own_clock(browser: Browser, night: Night) -> None:
    with looking(browser, Form(size="phone")) as watched:
        page = watched.page
        page.clock.install()
        page.goto(f"{night.url}/schedules/nightly-evals")
        slot = page.locator(".slots .t-slot time").first
        said = slot.inner_text()
        assert said.endswith(" 02:00")
        with page.expect_response(re.compile("/schedules/nightly-evals$")):
            look_again(page)
        expect(slot).to_have_text(said)
        expect(slot).to_have_attribute("title", re.compile(r" 18:00:00 UTC$"))


def test_way_from_a_suite_to_the_items_that_broke(browser: Browser, night: Night) -> None:
    with looking(browser) as watched:
        page = watched.page
        page.goto(f"{night.url}/evals")
        page.get_by_role("link", name="arithmetic").last.click()
        expect(page.locator("#chart-1 canvas")).to_be_visible()
        light = page.evaluate(_TREND)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"light => {_TREND} !== light", arg=light)
        page.get_by_text("The same as a table").click()
        expect(page.locator("#trend-1 tbody tr")).to_have_count(16)
        newest = page.locator("#trend-1 tbody tr").last.locator("td").nth(2).inner_text()
        expect(page.locator("#chart-1 .u-legend tr").last).to_contain_text(newest)
        before, after = night.runs["worse"][0], night.runs["worse"][-1]
        page.locator(f"input[name=before][value={before}]").check()
        page.locator(f"input[name=after][value={after}]").check()
        page.get_by_role("button", name="Compare").click()
        expect(page.locator(".flips > li")).to_have_count(20)
        page.get_by_label("Tag", exact=True).select_option("kind=add")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page).to_have_url(re.compile("tag=kind%3Dadd"))
        more = page.locator(".flips summary").first
        more.press("Enter")
        expect(page.locator(".flips details[open] .text")).to_be_visible()


def test_server_that_is_away_is_told_until_it_answers(browser: Browser, night: Night) -> None:
    with looking(browser) as watched:
        page = watched.page
        page.clock.install()
        page.goto(night.url)
        page.route("**/*", lambda route: route.abort())
        look_again(page)
        expect(page.get_by_role("alert")).to_contain_text("Not up to date")
        page.unroute("**/*")
        look_again(page)
        expect(page.get_by_role("alert")).to_be_hidden()
        assert watched.complaints
        assert all("net::ERR_FAILED" in each or "htmx" in each for each in watched.complaints)
        watched.complaints.clear()


def test_key_signs_in_and_out(browser: Browser, night: Night) -> None:
    secret = new_secret(night.deployment, "research")
    with looking(browser, Form(size="phone")) as watched:
        page = watched.page
        page.goto(f"{night.closed_url}/?status=open")
        expect(page.get_by_label("API key")).to_be_focused()
        page.keyboard.type(secret)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{night.closed_url}/?status=open")
        expect(page.get_by_text("No jobs yet.")).to_be_visible()
        expect(page.get_by_text("research")).to_be_visible()
        expect(page.get_by_role("link", name="Workers")).to_have_count(0)
        [cookie] = page.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Lax")
        assert secret not in str(page.evaluate("[document.cookie, JSON.stringify(localStorage)]"))
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        page.goto(night.closed_url)
        expect(page.get_by_label("API key")).to_be_visible()
