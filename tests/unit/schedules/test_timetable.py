"""Slots through the nights on which clocks change, against what was measured of cronsim."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice, takewhile

import pytest

from batchjobs.errors import UsageError
from batchjobs.schedules.timetable import Timetable, deadline_of, read_clock
from tests.unit.schedules.nights import utc

CHANGES = [
    ("30 2 * * *", "America/New_York", "2026-03-08T00:00", "2026-03-08T07:00"),
    ("0 2 * * *", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T01:00"),
    ("0 0 * * *", "America/Santiago", "2026-09-06T00:00", "2026-09-06T04:00"),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", "2026-10-03T15:30"),
    ("30 1 * * *", "America/New_York", "2026-11-01T00:00", "2026-11-01T05:30"),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T00:30"),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00", "2026-04-04T14:45"),
]


@pytest.mark.parametrize(("cron", "zone", "before", "slot"), CHANGES)
def test_fixed_slot_runs_once_on_a_night_of_change(
    cron: str, zone: str, before: str, slot: str
) -> None:
    table = Timetable.read(cron, zone)
    begin = utc(before)
    end = begin + timedelta(hours=23)
    assert list(takewhile(lambda each: each < end, table.after(begin))) == [utc(slot)]
    assert table.missed(begin, end, limit=10) == [utc(slot)]
    assert table.oddity(utc(slot)) is not None


def test_slots_of_every_half_hour_follow_the_real_time() -> None:
    table = Timetable.read("*/30 * * * *", "Europe/Berlin")
    begin = utc("2026-10-24T23:50")
    found = list(islice(table.after(begin), 6))
    assert found == [
        utc("2026-10-25T00:00") + number * timedelta(minutes=30) for number in range(6)
    ]
    assert table.missed(begin, found[-1], limit=10) == found[::-1]
    assert table.oddity(found[0]) is None


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "cron", ["30 1 * * *", "30 2 * * *", "0 * * * *", "5 2 * * 0", "*/20 * * * *"]
)
def test_looking_back_finds_what_was_ahead(cron: str, zone: str) -> None:
    """A whole year, in looks of every 37 minutes: nothing twice, nothing left out."""
    table = Timetable.read(cron, zone)
    for night in (
        "2026-03-07",
        "2026-03-28",
        "2026-04-04",
        "2026-10-03",
        "2026-10-24",
        "2026-10-31",
    ):
        begin = utc(f"{night}T06:00")
        end = begin + timedelta(hours=48)
        ahead = [each for each in islice(table.after(begin), 200) if each <= end]
        seen, at = [], begin
        while at < end:
            later = min(at + timedelta(minutes=37), end)
            seen += table.missed(at, later, limit=100)[::-1]
            at = later
        assert seen == ahead


def test_sunday_is_sunday() -> None:
    assert next(Timetable.read("0 2 * * 0", "UTC").after(utc("2026-11-26T00:00"))).weekday() == 6


def test_slot_is_not_due_before_its_moment() -> None:
    table = Timetable.read("0 2 * * *", "UTC")
    begin, slot = utc("2026-11-30T00:00"), utc("2026-11-30T02:00")
    assert table.missed(begin, slot - timedelta(milliseconds=1), limit=5) == []
    assert table.missed(begin, slot, limit=5) == [slot]
    assert table.missed(slot, slot + timedelta(seconds=30), limit=5) == []


def test_oddities_are_said_in_words() -> None:
    table = Timetable.read("30 2 * * *", "America/New_York")
    assert table.oddity(utc("2026-03-08T07:00")) == "02:30 does not exist that day"
    assert table.oddity(utc("2026-03-09T06:30")) is None
    fold = Timetable.read("30 1 * * *", "America/New_York")
    assert fold.oddity(utc("2026-11-01T05:30")) == "comes twice that day; runs the first time"


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("0 2 * *", "UTC", "expected five fields"),
        ("@daily", "UTC", "expected five fields"),
        ("0 0 2 * * *", "UTC", "expected five fields"),
        ("0 25 * * *", "UTC", "Bad hour"),
        ("0 2 * * *", "Mars/Olympus", "There is no time zone 'Mars/Olympus'"),
        ("0 2 * * *", "../../etc/passwd", "There is no time zone"),
        ("0 2 * * *", "", "There is no time zone ''"),
    ],
)
def test_mistake_is_one_sentence(cron: str, zone: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]*$") as wrong:
        Timetable.read(cron, zone)
    assert said in wrong.value.message


def test_deadline_is_the_next_time_the_clock_shows_it() -> None:
    slot = utc("2026-11-30T01:00")
    assert deadline_of(slot, "07:00", "Europe/Berlin") == utc("2026-11-30T06:00")
    assert deadline_of(slot, "01:30", "Europe/Berlin") == utc("2026-12-01T00:30")


def test_deadline_keeps_to_the_clock_on_a_night_of_change() -> None:
    assert deadline_of(utc("2026-03-28T22:00"), "07:00", "Europe/Berlin") == utc("2026-03-29T05:00")


def test_time_of_day_is_read() -> None:
    assert read_clock("7:05") == "07:05"
    for wrong in ("24:00", "7", "07:60", "noon", "-1:00"):
        with pytest.raises(UsageError, match="no time of day"):
            read_clock(wrong)
