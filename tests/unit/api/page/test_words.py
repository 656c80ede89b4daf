from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from batchjobs.api.page import eval_words, words

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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n b\t\u3000c ", "a b c"),
        ("invoice-\u202elnosj.exe", "invoice-\ufffdlnosj.exe"),
        ("a\0b\u200bc\ufeff", "a\ufffdb\ufffdc\ufffd"),
        ("می\u200cخواهم 👩\u200d💻 名前", "می\u200cخواهم 👩\u200d💻 名前"),
    ],
)
def test_name_hides_and_turns_around_nothing(text: str, shown: str) -> None:
    assert words.line(text) == shown


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (-0.271, "−27.1"),
        (0.00049, "0.0"),
        (-0.00049, "0.0"),
        (1e9, "+1e+11"),
        (-math.inf, "−∞"),
        (math.inf, "+∞"),
    ],
)
def test_change_is_told_in_points(points: float, said: str) -> None:
    assert eval_words.points(points) == said


def test_figures_without_an_end_are_told_and_not_drawn() -> None:
    assert [eval_words.smallest(drop) for drop in (0.121, 12.0, math.inf)] == [
        "12.1",
        "1200.0",
        "–",
    ]
    assert eval_words.sight(0.121) == "sees drops of 12.1 points"
    assert eval_words.sight(math.inf) == "sees no drop"
    assert eval_words.span((-math.inf, math.inf)) == "−∞ to ∞"
    assert eval_words.score(-0.0011) == "−0.0011"
    assert [eval_words.figure(each) for each in (None, math.inf, -0.5, 1.05e13)] == [
        "",
        "",
        "-0.5",
        "1.05e+13",
    ]


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
