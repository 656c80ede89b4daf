from __future__ import annotations

from batchjobs.worker.rate import WINDOW_SECONDS, RateMeter


def test_nothing_is_known_before_work_was_seen_to_be_done() -> None:
    rate = RateMeter()
    rate.observe(0, 0, is_busy=False)
    rate.observe(1, 0, is_busy=True)
    assert rate.per_second is None


def test_rate_is_that_of_the_last_minute() -> None:
    rate = RateMeter()
    for second in range(10):
        rate.observe(second, 5 * second, is_busy=True)
    assert rate.per_second == 5
    end = 10 + 2 * int(WINDOW_SECONDS)
    for second in range(10, end):
        rate.observe(second, 50 + 20 * (second - 10), is_busy=True)
    assert rate.per_second == 20


def test_time_without_work_does_not_count() -> None:
    rate = RateMeter()
    rate.observe(0, 0, is_busy=True)
    rate.observe(1, 10, is_busy=True)
    rate.observe(2, 10, is_busy=False)
    rate.observe(1000, 10, is_busy=True)
    rate.observe(1001, 20, is_busy=True)
    assert rate.per_second == 10


def test_work_that_was_done_between_two_looks_counts_only_for_want_of_better() -> None:
    rate = RateMeter()
    rate.observe(0, 0, is_busy=False)
    rate.observe(1, 4, is_busy=False)
    assert rate.per_second == 4
    rate.observe(2, 5, is_busy=False)
    assert rate.per_second == 4
