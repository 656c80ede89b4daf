from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from batchjobs.api.page import words

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (0.9, "now"),
        (-0.9, "now"),
        (-1, "1 s ago"),
        (-59.9, "59 s ago"),
        (-60, "1 min ago"),
        (-3599, "59 min ago"),
        (7200, "in 2 h"),
        (86399, "in 23 h"),
        (-86400 * 40, "40 d ago"),
    ],
)
def test_moment_is_told_by_its_distance(seconds: float, text: str) -> None:
    assert words.relative(NOW + timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "< 1 s"),
        (0.4, "< 1 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (3659, "1 h"),
        (90061, "1 d 1 h"),
        (86400, "1 d"),
    ],
)
def test_duration_is_told_by_two_units(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.0 %"), (0.9999, "99.9 %"), (1, "100.0 %"), (0.289, "28.9 %")]
)
def test_only_the_whole_is_a_hundred_percent(share: float, text: str) -> None:
    assert words.percent(share) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2e15, "2,000.0 TB")]
)
def test_size_is_told_in_its_unit(number: float, text: str) -> None:
    assert words.size(number) == text


def test_rates_and_counts_are_told_with_as_many_digits_as_they_need() -> None:
    assert [words.rate(value) for value in (None, 0, 0.26, 9.96, 1234.5)] == [
        "–",
        "0",
        "0.3",
        "10.0",
        "1,234",
    ]
    assert (words.plural(1, "line"), words.plural(1200, "line")) == ("1 line", "1,200 lines")
    assert (words.cut("abc", 3), words.cut("abcd", 3), words.cut("a bc", 3)) == ("abc", "ab…", "a…")
