"""Model of the demo: its answers are scripted, and it streams at reading speed."""

from __future__ import annotations

import asyncio
import re
from importlib.resources import as_file, files

from shoal.core.clock import SystemClock
from shoal.core.model_requests import ModelRequest
from shoal.core.usage import ModelCard, TokenPrice
from shoal.models.scripted_model import ReplyLike, ScriptedModel, ScriptedReply, build_script_match_context
from shoal.wire.model_script_codec import ModelScriptStep, RemainingModelScriptSteps, read_model_script

SECONDS_PER_WORD = 0.06
DEMO_CARD = ModelCard(
    id="scripted",
    provider="scripted",
    price=TokenPrice(input=3.0, output=15.0),
    window=200_000,
    max_output=8_192,
)
"""Model card with an invented price, so that the demo shows costs."""
_END_NOTIFICATION = re.compile(r"<status>(\w+)</status>\s*<summary>Agent .*?\((\w+)\)")


class _DemoInstantClock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def create_demo_model(agents: tuple[str, ...], *, fast: bool) -> ScriptedModel:
    """Create the model. `agents` are the agents that the script starts."""
    with as_file(files("shoal.app.demo") / "script.toml") as script:
        steps = RemainingModelScriptSteps(read_model_script(script, ModelScriptStep))

    def reply_to_request(request: ModelRequest) -> ReplyLike:
        step = steps.take_matching_step(build_script_match_context(request))
        if step is None:
            return _compose_demo_lead_answer(request, agents)
        return ScriptedReply(content=step.content, delay=step.delay)

    if fast:
        return ScriptedModel(reply_to_request, card=DEMO_CARD, clock=_DemoInstantClock())
    return ScriptedModel(reply_to_request, card=DEMO_CARD, pace=SECONDS_PER_WORD)


def _compose_demo_lead_answer(request: ModelRequest, agents: tuple[str, ...]) -> str:
    """Return the lead's answer to the notifications it has received so far."""
    statuses = {
        kind: status
        for message in request.messages
        for status, kind in _END_NOTIFICATION.findall(message.text)
    }
    if not statuses:
        return "Something is not as I was told it would be, so I stop."
    if failed := [name for name in statuses if statuses[name] != "completed"]:
        return f"{_join_names(failed)} did not get through."
    working = [name for name in agents if name not in statuses]
    if not working:
        return "All three are repaired, tested and committed, each on its own branch."
    newest = [kind for _, kind in _END_NOTIFICATION.findall(request.messages[-1].text)]
    return f"{_join_names(newest)} done, {' and '.join(working)} still at work."


def _join_names(agents: list[str]) -> str:
    return " and ".join(agents).capitalize()
