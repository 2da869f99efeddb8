"""What an agent does and took so far, in a few words."""

from __future__ import annotations

from shoal.app.picture.standing import Standing
from shoal.core.wording import count, one_line, seconds
from shoal.surfaces.terminal.question_words import wanted


def doing_words(each: Standing) -> str:
    if each.question is not None:
        return f"asks: {one_line(wanted(each.question))}"
    return each.doing or each.state


def numbers(each: Standing, now: float) -> str:
    calls = f"{each.tool_calls} call{'' if each.tool_calls == 1 else 's'}"
    return f"{calls} · {count(each.tokens)} tokens · {seconds(max(now - each.since, 0.0))}"
