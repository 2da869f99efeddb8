"""Model of the demo: its answers are scripted, and it streams at reading speed."""

from __future__ import annotations

import asyncio
import re
from importlib.resources import as_file, files

from shoal.core.clock import SystemClock
from shoal.core.requests import Request
from shoal.core.usage import ModelCard, Price
from shoal.models.scripted import Line, Sayable, ScriptedModel, asked
from shoal.wire.script import Step, Steps, read_script

PACE = 0.06
"""Seconds per word."""
CARD = ModelCard(
    id="scripted", provider="scripted", price=Price(input=3.0, output=15.0), window=200_000, max_output=8_192
)
"""Model card with an invented price, so that the demo shows costs."""
_ENDED = re.compile(r"<status>(\w+)</status>\s*<summary>Agent .*?\((\w+)\)")


class _NoWaiting(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def mind(agents: tuple[str, ...], *, fast: bool) -> ScriptedModel:
    """Create the model. `agents` are the agents that the script starts."""
    with as_file(files("shoal.app.demo") / "script.toml") as script:
        steps = Steps(read_script(script, Step))

    def think(request: Request) -> Sayable:
        step = steps.take(asked(request))
        if step is None:
            return _of_the_ended(request, agents)
        return Line(content=step.content, delay=step.delay)

    if fast:
        return ScriptedModel(think, card=CARD, clock=_NoWaiting())
    return ScriptedModel(think, card=CARD, pace=PACE)


def _of_the_ended(request: Request, agents: tuple[str, ...]) -> str:
    """Return the lead's answer to the notifications it has received so far."""
    told = {kind: status for message in request.messages for status, kind in _ENDED.findall(message.text)}
    if not told:
        return "Something is not as I was told it would be, so I stop."
    if lost := [name for name in told if told[name] != "completed"]:
        return f"{_named(lost)} did not get through."
    at_work = [name for name in agents if name not in told]
    if not at_work:
        return "All three are repaired, tested and committed, each on its own branch."
    newest = [kind for _, kind in _ENDED.findall(request.messages[-1].text)]
    return f"{_named(newest)} done, {' and '.join(at_work)} still at work."


def _named(agents: list[str]) -> str:
    return " and ".join(agents).capitalize()
