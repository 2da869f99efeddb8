"""A turn whose answer has to have a form: the lead is sent back until it has given one that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.agent.loop import Ended, run
from shoal.app.options import Options
from shoal.app.session.commanding import Invocation, work
from shoal.core.errors import SettingsError
from shoal.core.messages import Message, user
from shoal.tools.structured import STRUCTURED_OUTPUT, StructuredOutput

if TYPE_CHECKING:
    from shoal.app.session.session import Session

TIMES_REMINDED = 3
_ASKED = f"Give your final answer with the tool {STRUCTURED_OUTPUT}: programs read that, not your text."
_REMINDER = (
    f"Your answer is not given yet: call {STRUCTURED_OUTPUT} with it, in the form that the tool describes."
)


def with_form(options: Options) -> tuple[Options, StructuredOutput | None]:
    """The options of a session that asks for a form, and the tool that takes it."""
    form = options.output_schema
    if form is None:
        return options, None
    if any(tool.schema.name == STRUCTURED_OUTPUT for tool in options.tools):
        raise SettingsError(f"A tool of the caller's is named {STRUCTURED_OUTPUT}: rename it.")
    tool = StructuredOutput(form)
    available = options.available_tools
    also = f"{options.append_system_prompt}\n\n{_ASKED}" if options.append_system_prompt else _ASKED
    options = replace(
        options,
        tools=(*options.tools, tool),
        available_tools=None if available is None else (*available, STRUCTURED_OUTPUT),
        append_system_prompt=also,
    )
    return options, tool


async def run_to_form(session: Session, prompt: Message | Invocation | None) -> Ended:
    """Agents in the background bring another turn, which can still give the answer."""
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
