"""Cron expressions of five fields, and the next minute of local time that matches one."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from msgspec import Struct

from shoal.core.core_texts import format_core_notice
from shoal.core.errors import InvalidCronExpression

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MINUTE = 60
_QUARTER = 15 * _MINUTE
_SEARCH_LIMIT = timedelta(days=8 * 366)
"""A leap day may be eight years away."""


class _CronFieldSpec(Struct, frozen=True, kw_only=True):
    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()
    """Names of the values, starting with the lowest."""


_FIELDS = (
    _CronFieldSpec(name="minute", lowest=0, highest=59),
    _CronFieldSpec(name="hour", lowest=0, highest=23),
    _CronFieldSpec(name="day of month", lowest=1, highest=31),
    _CronFieldSpec(name="month", lowest=1, highest=12, names=_MONTHS),
    _CronFieldSpec(name="day of week", lowest=0, highest=7, names=_DAYS),
)


class CronExpression(Struct, frozen=True, kw_only=True):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    either: bool
    """True if a day matches by number or by weekday, which applies if both are given."""

    def matches_time(self, at: datetime) -> bool:
        return at.minute in self.minutes and at.hour in self.hours and self._matches_day(at)

    def next_time_after(self, ms: int, zone: tzinfo | None = None) -> int | None:
        """Return the first whole minute after a Unix time that matches in this zone (local time if None).

        A time that the clock skips does not occur that day; one that it shows twice occurs twice.
        """
        seconds = ms // 1000 // _MINUTE * _MINUTE + _MINUTE
        search_end = seconds + _SEARCH_LIMIT.total_seconds()
        while seconds < search_end:
            local_time = datetime.fromtimestamp(seconds, zone)
            if self.matches_time(local_time):
                return seconds * 1000
            seconds = self._find_next_candidate_time(seconds, local_time)
        return None

    def _matches_day(self, local_time: datetime) -> bool:
        if local_time.month not in self.months:
            return False
        day_matches, weekday_matches = (
            local_time.day in self.days,
            local_time.isoweekday() % 7 in self.weekdays,
        )
        return day_matches or weekday_matches if self.either else day_matches and weekday_matches

    def _find_next_candidate_time(self, seconds: int, local_time: datetime) -> int:
        """Return the next time to check. Clocks change by whole quarters of an hour, three hours at most."""
        if not self._matches_day(local_time):
            minutes_left = (24 - local_time.hour) * 60 - local_time.minute
            if minutes_left > 3 * 60:
                return seconds + (minutes_left - 3 * 60) * _MINUTE
            return seconds // _QUARTER * _QUARTER + _QUARTER
        if local_time.hour not in self.hours:
            return seconds // _QUARTER * _QUARTER + _QUARTER
        return seconds + _MINUTE


def parse_cron(text: str) -> CronExpression:
    """Parse `*`, numbers, ranges `a-b`, steps `/n` and lists of those; months and weekdays also by name.

    Raises `InvalidCronExpression`, which names the field.
    """
    words = text.split()
    if len(words) != len(_FIELDS):
        raise InvalidCronExpression(
            format_core_notice("cron_fields", cron=repr(text), count=len(words)),
            field="",
        )
    minutes, hours, days, months, weekdays = (
        _parse_cron_field(word, field) for word, field in zip(words, _FIELDS, strict=True)
    )
    return CronExpression(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        either=not words[2].startswith("*") and not words[4].startswith("*"),
    )


def _parse_cron_field(word: str, field: _CronFieldSpec) -> frozenset[int]:
    return frozenset(value for part in word.split(",") for value in _parse_cron_list_item(part, field))


def _parse_cron_list_item(part: str, field: _CronFieldSpec) -> range:
    span, slash, step_text = part.partition("/")
    step = _parse_cron_number(step_text, field, part) if slash else 1
    if step < 1:
        raise _build_cron_field_error("cron_step", part, field)
    if span == "*":
        # Weekday 7 is another name for 0.
        return range(field.lowest, min(field.highest, 6 if field.names == _DAYS else field.highest) + 1, step)
    first_text, dash, last_text = span.partition("-")
    first = _parse_cron_value(first_text, field, part)
    last = _parse_cron_value(last_text, field, part) if dash else field.highest if slash else first
    if last < first:
        raise _build_cron_field_error("cron_range", part, field)
    return range(first, last + 1, step)


def _parse_cron_value(text: str, field: _CronFieldSpec, part: str) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.lowest
    value = _parse_cron_number(text, field, part)
    if not field.lowest <= value <= field.highest:
        raise _build_cron_field_error("cron_value", part, field, lowest=field.lowest, highest=field.highest)
    return value


def _parse_cron_number(text: str, field: _CronFieldSpec, part: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise _build_cron_field_error("cron_number", part, field, text=repr(text))
    return int(text)


def _build_cron_field_error(
    key: str, part: str, field: _CronFieldSpec, **values: object
) -> InvalidCronExpression:
    text = format_core_notice(key, field=field.name, part=repr(part), **values)
    return InvalidCronExpression(text, field=field.name)
