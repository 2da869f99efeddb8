"""Cron expressions, checked against a search minute by minute, and their errors."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.core.agents.cron import CronExpression, parse_cron
from shoal.core.errors import InvalidCronExpression

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = (
    BERLIN,
    ZoneInfo("America/New_York"),
    ZoneInfo("Australia/Lord_Howe"),  # its summer is half an hour
    ZoneInfo("Asia/Kathmandu"),
    ZoneInfo("UTC"),
)
WALKED = 2 * 24 * 60


def to_milliseconds(text: str, zone: ZoneInfo = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * 1000


def format_time(ms: int | None, zone: ZoneInfo = BERLIN) -> str:
    assert ms is not None
    return datetime.fromtimestamp(ms / 1000, zone).isoformat(timespec="minutes")


def cron_fields(lowest: int, highest: int) -> st.SearchStrategy[str]:
    number = st.integers(lowest, highest)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.integers(1, 40)
    part = st.one_of(
        number.map(str),
        span,
        st.builds("{}/{}".format, span, step),
        st.builds("*/{}".format, step),
    )
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


expressions = st.tuples(
    cron_fields(0, 59), cron_fields(0, 23), cron_fields(1, 31), cron_fields(1, 12), cron_fields(0, 7)
).map(" ".join)
# Days around which clocks change, and any other minute of 2026.
moments = st.one_of(
    st.sampled_from(["2026-03-28T20:00", "2026-10-24T20:00", "2026-03-07T20:00", "2026-10-03T10:00"]).map(
        to_milliseconds
    ),
    st.integers(to_milliseconds("2026-01-01T00:00"), to_milliseconds("2026-12-31T23:59")),
)


def matches_expression(expression: str, when: datetime) -> bool:
    """Check the five fields without the parser under test."""
    minute, hour, day, month, weekday = expression.split()
    in_day, in_week = (
        matches_field(day, when.day, 1, 31),
        any(matches_field(weekday, number, 0, 7) for number in {when.isoweekday() % 7, when.isoweekday()}),
    )
    both = day.startswith("*") or weekday.startswith("*")
    return (
        matches_field(minute, when.minute, 0, 59)
        and matches_field(hour, when.hour, 0, 23)
        and matches_field(month, when.month, 1, 12)
        and ((in_day and in_week) if both else (in_day or in_week))
    )


def matches_field(word: str, value: int, lowest: int, highest: int) -> bool:
    for part in word.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        start, end = (lowest, highest) if span == "*" else (int(first), int(last or first))
        if span == "*" and highest == 7:
            end = 6
        if start <= value <= end and (value - start) % int(step or 1) == 0:
            return True
    return False


@pytest.mark.slow
@given(expression=expressions, moment=moments, zone=st.sampled_from(ZONES))
@example(expression="30 2 * * *", moment=to_milliseconds("2026-03-28T20:00"), zone=BERLIN)
@example(expression="30 2 * * *", moment=to_milliseconds("2026-10-25T01:00"), zone=BERLIN)
@example(expression="0 0 1,15 * 1", moment=to_milliseconds("2026-06-12T00:00"), zone=BERLIN)
def test_the_next_time_is_the_first_matching_minute(expression: str, moment: int, zone: ZoneInfo) -> None:
    found = parse_cron(expression).next_time_after(moment, zone)
    start = moment // 60_000 * 60
    walk = range(start + 60, start + WALKED * 60, 60)
    walked = next((s for s in walk if matches_expression(expression, datetime.fromtimestamp(s, zone))), None)
    if walked is None:
        assert found is None or found >= walk[-1] * 1000
    else:
        assert found == walked * 1000


def test_daylight_saving_skips_missing_times_and_repeats_double_ones() -> None:
    nightly = parse_cron("30 2 * * *")
    assert (
        format_time(nightly.next_time_after(to_milliseconds("2026-03-28T12:00"), BERLIN))
        == "2026-03-30T02:30+02:00"
    )
    first = nightly.next_time_after(to_milliseconds("2026-10-24T12:00"), BERLIN)
    assert first is not None
    assert format_time(first) == "2026-10-25T02:30+02:00"
    assert format_time(nightly.next_time_after(first, BERLIN)) == "2026-10-25T02:30+01:00"


def test_local_time_is_the_default_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        zone = ZoneInfo("Asia/Kathmandu")
        assert format_time(
            parse_cron("0 9 * * *").next_time_after(to_milliseconds("2026-05-01T10:00", zone)), zone
        ) == ("2026-05-02T09:00+05:45")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_rare_times_are_found_and_impossible_ones_are_none() -> None:
    leap = parse_cron("0 12 29 feb *").next_time_after(to_milliseconds("2096-03-01T00:00"), BERLIN)
    assert format_time(leap) == "2104-02-29T12:00+01:00"
    assert parse_cron("0 0 30 2 *").next_time_after(to_milliseconds("2026-01-01T00:00"), BERLIN) is None


@pytest.mark.parametrize(
    ("one", "other"), [("0 0 * * 7", "0 0 * * sun"), ("0 0 1 JAN mon-fri", "0 0 1 1 1-5")]
)
def test_names_and_sunday_as_seven_are_equivalent(one: str, other: str) -> None:
    assert parse_cron(one) == parse_cron(other)
    assert isinstance(parse_cron(one), CronExpression)


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("* , * * *", "hour"),
        ("* * * foo *", "month"),
        ("-1 * * * *", "minute"),
        ("٣ * * * *", "minute"),
        ("1/2/3 * * * *", "minute"),
        ("99999999999999999999 * * * *", "minute"),
    ],
)
def test_an_invalid_expression_is_refused_with_the_name_of_its_field(expression: str, named: str) -> None:
    with pytest.raises(InvalidCronExpression, match=f"The field {named} cannot be") as refused:
        parse_cron(expression)
    assert refused.value.field == named


@pytest.mark.parametrize("expression", ["", "* * * *", "* * * * * *", "@daily"])
def test_an_expression_without_five_fields_is_refused_with_their_names(expression: str) -> None:
    with pytest.raises(
        InvalidCronExpression, match=r"Write five, .*: minute, hour, day of month, month, day of week"
    ):
        parse_cron(expression)
