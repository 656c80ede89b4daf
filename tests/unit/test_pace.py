from __future__ import annotations

import pytest

from batchjobs.pace import WINDOW_SECONDS, Pace


def test_pace_is_what_was_done_since_the_first_look() -> None:
    pace = Pace()
    pace.observe(0, {"a": 100, "b": 0})
    assert pace.per_second() == {}
    pace.observe(10, {"a": 200, "b": 0})
    assert pace.per_second() == {"a": 10.0, "b": 0.0}


def test_pace_is_of_the_last_minute_however_often_it_is_looked() -> None:
    pace = Pace()
    for second in range(200):
        pace.observe(second, {"a": 0 if second < 100 else 5 * (second - 100)})
    assert pace.per_second()["a"] == pytest.approx(5.0)
    for second in range(200, 200 + int(WINDOW_SECONDS) + 1):
        pace.observe(second, {"a": 495})
    assert pace.per_second()["a"] == 0.0


def test_looks_that_are_far_apart_count_from_one_to_the_next() -> None:
    pace = Pace()
    for second in (0, 1000, 2000):
        pace.observe(second, {"a": second})
    assert pace.per_second() == {"a": 1.0}


def test_job_that_is_not_open_any_more_is_forgotten() -> None:
    pace = Pace()
    for second in (0, 10):
        pace.observe(second, {"a": second})
    pace.observe(20, {})
    assert pace.per_second() == {}
    pace.observe(30, {"a": 0})
    assert pace.per_second() == {}
