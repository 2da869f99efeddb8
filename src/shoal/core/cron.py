"""Cron expressions of five fields, and the next minute of local time that matches one."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from msgspec import Struct

from shoal.core.errors import BadCron

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MINUTE = 60
_QUARTER = 15 * _MINUTE
_FARTHEST = timedelta(days=8 * 366)
"""A leap day may be eight years away."""


class _Field(Struct, frozen=True, kw_only=True):
    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()
    """Names of the values, from the lowest on."""


_FIELDS = (
    _Field(name="minute", lowest=0, highest=59),
    _Field(name="hour", lowest=0, highest=23),
    _Field(name="day of month", lowest=1, highest=31),
    _Field(name="month", lowest=1, highest=12, names=_MONTHS),
    _Field(name="day of week", lowest=0, highest=7, names=_DAYS),
)


class Cron(Struct, frozen=True, kw_only=True):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    either: bool
    """True if a day matches by number or by weekday, which applies if both are given."""

    def fits(self, at: datetime) -> bool:
        return at.minute in self.minutes and at.hour in self.hours and self._fits_day(at)

    def next_after(self, ms: int, zone: tzinfo | None = None) -> int | None:
        """Return the first whole minute after a Unix time that matches in this zone (local time if None).

        A time that the clock skips does not occur that day; one that it shows twice occurs twice.
        """
        seconds = ms // 1000 // _MINUTE * _MINUTE + _MINUTE
        last = seconds + _FARTHEST.total_seconds()
        while seconds < last:
            at = datetime.fromtimestamp(seconds, zone)
            if self.fits(at):
                return seconds * 1000
            seconds = self._skipped(seconds, at)
        return None

    def _fits_day(self, at: datetime) -> bool:
        if at.month not in self.months:
            return False
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return day or weekday if self.either else day and weekday

    def _skipped(self, seconds: int, at: datetime) -> int:
        """Return the next time to check. Clocks change by whole quarters of an hour, three hours at most."""
        if not self._fits_day(at):
            rest = (24 - at.hour) * 60 - at.minute
            if rest > 3 * 60:
                return seconds + (rest - 3 * 60) * _MINUTE
            return seconds // _QUARTER * _QUARTER + _QUARTER
        if at.hour not in self.hours:
            return seconds // _QUARTER * _QUARTER + _QUARTER
        return seconds + _MINUTE


def parse_cron(text: str) -> Cron:
    """Parse `*`, numbers, ranges `a-b`, steps `/n` and lists of those; months and weekdays also by name.

    Raises `InvalidCronExpression`, which names the field.
    """
    words = text.split()
    if len(words) != len(_FIELDS):
        raise BadCron(
            f"{text!r} has {len(words)} fields and needs five: minute, hour, day of month, month, day of "
            "week, as in `*/5 * * * *`.",
            field="",
        )
    minutes, hours, days, months, weekdays = (
        _values(word, field) for word, field in zip(words, _FIELDS, strict=True)
    )
    return Cron(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        either=not words[2].startswith("*") and not words[4].startswith("*"),
    )


def _values(word: str, field: _Field) -> frozenset[int]:
    return frozenset(value for part in word.split(",") for value in _part(part, field))


def _part(part: str, field: _Field) -> range:
    span, slash, step_text = part.partition("/")
    step = _number(step_text, field, part) if slash else 1
    if step < 1:
        raise _bad(part, field, "a step is at least 1")
    if span == "*":
        # Weekday 7 is another name for 0.
        return range(field.lowest, min(field.highest, 6 if field.names == _DAYS else field.highest) + 1, step)
    first_text, dash, last_text = span.partition("-")
    first = _value(first_text, field, part)
    last = _value(last_text, field, part) if dash else field.highest if slash else first
    if last < first:
        raise _bad(part, field, "a range runs from the lower to the higher")
    return range(first, last + 1, step)


def _value(text: str, field: _Field, part: str) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.lowest
    value = _number(text, field, part)
    if not field.lowest <= value <= field.highest:
        raise _bad(part, field, f"it goes from {field.lowest} to {field.highest}")
    return value


def _number(text: str, field: _Field, part: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise _bad(part, field, f"{text!r} is no number")
    return int(text)


def _bad(part: str, field: _Field, why: str) -> BadCron:
    return BadCron(f"The field {field.name} cannot be {part!r}: {why}.", field=field.name)
