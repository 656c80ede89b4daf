"""What is compared between ways, and how they are drawn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from PIL import Image

from batchjobs.errors import UsageError
from batchjobs.worker.bench.picture import check_can_draw, draw
from batchjobs.worker.bench.run import BenchPlan, check_plan
from batchjobs.worker.bench.ways import WayResult, answer_key, same_answers
from batchjobs.worker.run_figures import RunFigures
from executor.recorder import Moment


def way(name: str) -> WayResult:
    figures = RunFigures(
        requests=2,
        prompt_tokens=10,
        output_tokens=20,
        wall_seconds=2.0,
        slots=2,
        occupancy=0.75,
        computed_positions=30,
        useful_share=1.0,
        first_token_p50=1.0,
        first_token_p99=1.0,
        steps=2,
        step_p50=1.0,
        step_p99=1.0,
    )
    course = (Moment(0.0, 2), Moment(1.0, 1), Moment(2.0, 0))
    return WayResult(name=name, title=name, figures=figures, course=course, answers={}, lengths={})


def plan(**changes: object) -> BenchPlan:
    values = {"workload": "mixed", "against": ("static",), "requests": None, **changes}
    return BenchPlan(**values)  # type: ignore[arg-type]


def test_answers_that_go_on_where_ours_ended_are_the_same() -> None:
    ours = {"a": (1, 2), "b": (3,), answer_key("b", 1): (4,)}
    assert same_answers(ours, {"a": (1, 2, 9), "b": (3,), "b#1": (5,)}) == 2


def test_a_picture_has_a_strip_for_each_way(tmp_path: Path) -> None:
    heights = []
    for count in (1, 3):
        draw([way(str(n)) for n in range(count)], tmp_path / "slots.png", heading="a model")
        with Image.open(tmp_path / "slots.png") as image:
            assert image.format == "PNG"
            heights.append(image.height)
    assert heights[1] > 2 * heights[0]


def test_without_matplotlib_a_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'batchjobs\[bench\]'.*--no-picture"):
        check_can_draw()


def test_a_plan_names_ways_that_there_are() -> None:
    check_plan(plan(against=("static", "sorted", "unchunked")))
    with pytest.raises(UsageError, match="--against 'vllm' is none of static, sorted, unchunked"):
        check_plan(plan(against=("static", "vllm")))


def test_a_plan_names_a_workload_that_there_is(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    with pytest.raises(UsageError, match="is neither a file nor one of mixed, prefix, templated"):
        check_plan(plan(workload=str(file)))
    file.touch()
    check_plan(plan(workload=str(file)))
