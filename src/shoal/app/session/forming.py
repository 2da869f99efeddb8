"""Turns with structured output: the lead is reminded until its answer matches the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.agent.loop import Ended, run
from shoal.app.session.commanding import Invocation, work
from shoal.core.messages import Message, user
from shoal.tools.structured import STRUCTURED_OUTPUT

if TYPE_CHECKING:
    from shoal.app.session.session import Session

TIMES_REMINDED = 3
_REMINDER = (
    f"Your answer is not given yet: call {STRUCTURED_OUTPUT} with it, in the form that the tool describes."
)


async def run_to_form(session: Session, prompt: Message | Invocation | None) -> Ended:
    """Run a turn and require its structured output, unless background agents will trigger another turn."""
    agent, form = session.agent, session.parts.form
    if form is None:
        return await work(session, prompt)

    def is_missing(ended: Ended) -> bool:
        return ended.reason == "done" and not form.filled and not session.any_working

    form.forget()
    ended = await work(session, prompt)
    for _ in range(TIMES_REMINDED):
        if is_missing(ended):
            ended = await run(agent, user(_REMINDER), by="runtime")
    if is_missing(ended):
        told = f"no answer in the form that was asked for, after {TIMES_REMINDED} reminders"
        return replace(ended, reason="no_output", detail=told)
    return ended
