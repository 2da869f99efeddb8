"""Activity and usage of an agent in a few words."""

from __future__ import annotations

from shoal.app.picture.standing import Standing
from shoal.core.wording import count, many, one_line, seconds
from shoal.surfaces.terminal.question_words import wanted


def doing_words(each: Standing) -> str:
    if each.question is not None:
        return f"asks: {one_line(wanted(each.question))}"
    return each.doing or each.state


def numbers(each: Standing, now: float) -> str:
    took = seconds(max(now - each.since, 0.0))
    return f"{many(each.tool_calls, 'call')} · {count(each.tokens)} tokens · {took}"
