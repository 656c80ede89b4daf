"""`batchjobs evals …`, on runs that were answered before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from batchjobs.cli.exits import Exit
from batchjobs.evals.states import Purpose
from batchjobs.evals.workplace import Workplace
from tests.support.cli import run, run_json
from tests.support.engines import add_models
from tests.support.evals import MODEL, place_of, rows, run_suite, start_suite, write_suite
from tests.support.jobs import open_deployment

ITEMS = 40


@pytest.fixture
def place(home: Path) -> Iterator[Workplace]:
    with open_deployment(home) as deployment:
        add_models(deployment, MODEL)
        yield place_of(deployment)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path, rows(ITEMS), description="Numbers & <so on>.")


def broken(text: str) -> str:
    return text if int(text) >= ITEMS // 2 else "<b>1000</b>"


@pytest.fixture
def worse(place: Workplace, suite: Path) -> tuple[str, str]:
    """A run that is pinned, and one that is worse."""
    pinned = run_suite(place, suite, purpose=Purpose.BASELINE)
    assert run("evals", "pin", pinned.id).exit_code == 0
    return pinned.id, run_suite(place, suite, broken).id


def test_check_shows_the_first_request_and_the_cost(place: Workplace, suite: Path) -> None:
    shown = run("evals", "check", str(suite)).stdout
    assert "── item item-0 (kind=even)\n0\n" in shown
    assert "numbers: 40 items, 40 requests to tiny; metrics: numeric (numeric decides)" in shown
    assert "at most 10,240 out, by the length of the texts" in shown
    assert "time: not known" in shown


def test_check_knows_what_a_run_took(place: Workplace, suite: Path) -> None:
    run_suite(place, suite)
    cost = run_json("evals", "check", str(suite))["estimate"]
    assert cost["is_counted"]
    assert cost["prompt_tokens"] == cost["completion_tokens"] > 0


def test_check_tells_every_mistake_with_its_line(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("suite: a\ndataset: {source: a.jsonl}\nrequest: {}\nscorers: []\nx: 1\n")
    done = run("evals", "check", str(path))
    assert done.exit_code == Exit.INVALID
    assert [line.partition("bad.yaml ")[2][:7] for line in done.stderr.splitlines()] == [
        "line 3:",
        "line 4:",
        "line 5:",
    ]


def test_a_run_that_is_left_is_listed(place: Workplace, suite: Path) -> None:
    done = run("evals", "run", str(suite), "--detach")
    run_id, sentence = done.stdout.splitlines()
    assert sentence == f"Waiting. Go on with: batchjobs evals resume {run_id}"
    assert run("evals", "list").stdout.splitlines()[1].split()[:3] == [run_id, "numbers", "tiny"]


def test_the_exit_code_is_the_verdicts(
    place: Workplace, suite: Path, worse: tuple[str, str]
) -> None:
    first = run_suite(place, write_suite(suite.parent / "new", rows(3), suite="new"))
    again = run_suite(place, suite)
    assert run("evals", "resume", worse[1]).exit_code == Exit.WORSE
    assert run("evals", "resume", again.id).exit_code == Exit.DONE
    assert run("evals", "resume", first.id).exit_code == Exit.NO_VERDICT
    assert run("evals", "resume", again.id, worse[1], first.id).exit_code == Exit.WORSE


def test_show_tells_scores_tags_and_the_worst_answers(worse: tuple[str, str]) -> None:
    shown = run("evals", "show", worse[1], "--items", "1").stdout
    assert "verdict  worse" in shown
    assert "numeric *  0.5 " in shown
    assert "kind=even" in shown
    assert "item-0: score 0, extracted '1000'\n  asked:    0\n  answered: <b>1000</b>\n" in shown


def test_compare_lists_what_broke_with_both_answers(worse: tuple[str, str]) -> None:
    shown = run("evals", "compare", *worse, "--limit", "1").stdout
    assert "broken item-0: 1 → 0  (kind=even)\n  asked:  0\n  before: 0  [score 1]\n" in shown
    assert "… and 19 more items that differ: --limit N" in shown
    wire = run_json("evals", "compare", *worse, "--tag", "kind=odd")
    assert [flip["item"] for flip in wire["flips"]][:2] == ["item-1", "item-3"]
    assert wire["verdict"]["word"] == "worse"


def test_pin_refuses_what_has_no_scores(place: Workplace, suite: Path) -> None:
    done = run("evals", "pin", start_suite(place, suite))
    assert (done.exit_code, "is not finished" in done.stderr) == (Exit.ERROR, True)


def test_simulate_needs_a_baseline_and_its_noise(place: Workplace, suite: Path) -> None:
    done = run("evals", "simulate", str(suite))
    assert "has no baseline on tiny to tell its noise by" in done.stderr
    pinned = [run_suite(place, suite, purpose=Purpose.BASELINE).id for _ in range(2)]
    run("evals", "pin", *pinned)
    shown = run_json("evals", "simulate", str(suite), "--nights", "100")
    assert shown["rows"][0]["alarmed"] == 0
    assert shown["items"] == ITEMS


def test_an_unknown_metric_is_named(worse: tuple[str, str]) -> None:
    done = run("evals", "show", worse[0], "--metric", "acc")
    assert done.stderr == f"Error: The run {worse[0]} has no metric 'acc'; it has: numeric.\n"


def test_an_unknown_run_is_named(home: Path) -> None:
    done = run("evals", "show", "run_none")
    assert done.stderr == (
        "Error: No eval run found with id 'run_none'; see: batchjobs evals list\n"
    )


def test_the_html_report_stands_alone_and_escapes_answers(
    worse: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    assert run("evals", "report", worse[1], "-o", str(path)).exit_code == 0
    text = path.read_text()
    assert "<b>worse</b>" in text
    assert "&lt;b&gt;1000&lt;/b&gt;" in text
    assert "Numbers &amp; &lt;so on&gt;." in text
    assert '<svg class="trend"' in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_the_junit_report_fails_what_broke(worse: tuple[str, str]) -> None:
    done = run("evals", "report", worse[1], "-o", "-", "--format", "junit")
    root = ElementTree.fromstring(done.stdout)  # it is ours
    assert root.attrib["tests"] == str(ITEMS + 1)
    assert root.attrib["failures"] == str(ITEMS // 2 + 1)
    verdict, first, *_ = root
    assert "worse" in verdict[0].attrib["message"]
    assert (first.attrib["name"], first[0].attrib["message"]) == ("item-0", "broken: 1 → 0")


def test_the_other_reports_say_the_same(worse: tuple[str, str]) -> None:
    markdown = run("evals", "report", worse[1], "-o", "-", "--format", "md").stdout
    assert markdown.startswith("# numbers on tiny: worse\n")
    assert "- this run: \\<b\\>1000\\</b\\> — score 0, extracted '1000'\n" in markdown
    report = json.loads(run("evals", "report", worse[1], "-o", "-", "--format", "json").stdout)
    assert (report["run"]["verdict"]["word"], len(report["flips"])) == ("worse", ITEMS // 2)
    assert report["baseline"] == [worse[0]]


def test_rescore_with_its_baseline_leaves_a_verdict(
    place: Workplace, suite: Path, worse: tuple[str, str]
) -> None:
    refused = run("evals", "rescore", worse[1], "--baseline")
    assert (refused.exit_code, "would change nothing" in refused.stderr) == (Exit.ERROR, True)
    scorers = [{"type": "exact", "target": "{{ n }}"}]
    write_suite(suite.parent, rows(ITEMS), scorers=scorers)
    done = run("evals", "rescore", *worse, "--baseline")
    assert done.exit_code == Exit.WORSE
    assert "The baseline of numbers on tiny is now this run." in done.stdout
    first = done.stdout.splitlines()[0]
    assert first.endswith(f" scores {worse[0]} again")
    listed = {one["id"]: one for one in run_json("evals", "list")}
    assert not listed[worse[0]]["is_pinned"]
    assert listed[first.split()[0]]["is_pinned"]
    assert listed[first.split()[0]]["rescores"] == worse[0]
    assert f"those of {worse[0]}, scored again" in run("evals", "show", first.split()[0]).stdout
    assert run("evals", "unpin", first.split()[0]).exit_code == Exit.DONE
    assert not any(one["is_pinned"] for one in run_json("evals", "list"))
