"""Slash commands: parsing a typed command and running its turn."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.agent.loop import Ended, run
from shoal.core.errors import BudgetError, ModelError, NoModel, SettingsError, ShoalError
from shoal.core.mcp import PREFIX
from shoal.core.messages import Message, Text, user
from shoal.core.neutral import neutral
from shoal.core.skills import Skill, TypedPrompt, named_alike

if TYPE_CHECKING:
    from shoal.app.session.build import Parts
    from shoal.app.session.session import Session

_TYPED = re.compile(r"\s*/(\w[^\s/\\]*)(?:\s+(.*))?", re.DOTALL)


class Invocation(Struct, frozen=True, kw_only=True):
    """A slash command with its arguments."""

    what: Skill | TypedPrompt
    arguments: str
    text: str
    """Text as it was typed."""


def names_command(parts: Parts, prompt: str | Message) -> bool:
    """Return True if the prompt starts with a slash and a known command, or a name that is no root path."""
    name, _ = _parted(prompt)
    if not name:
        return False
    known = any(named_alike(name, each.name) for each in parts.knowledge.commands())
    return known or not os.path.lexists(f"/{name}")


def typed(parts: Parts, prompt: str | Message) -> str | Message | Invocation:
    """Return the prompt, or the invocation of its command. Raises `UnknownSkill` and `BadDefinition`."""
    if not names_command(parts, prompt):
        return prompt
    name, arguments = _parted(prompt)
    offered = (each for source in parts.knowledge.prompts for each in source.list())
    other = next((each for each in offered if each.name == name), None)
    what = other or parts.knowledge.skills.typed(name)
    text = prompt if isinstance(prompt, str) else prompt.text
    return Invocation(what=what, arguments=arguments, text=text.strip())


def _parted(prompt: str | Message) -> tuple[str, str]:
    """Split a prompt into command name and arguments; the name is empty if it is no command."""
    if isinstance(prompt, Message) and not all(isinstance(block, Text) for block in prompt.content):
        return "", ""
    match = _TYPED.fullmatch(prompt if isinstance(prompt, str) else prompt.text)
    return ("", "") if match is None else (match[1], (match[2] or "").strip())


async def understood(parts: Parts, prompt: str | Message) -> str | Message | Invocation:
    """Parse a prompt, waiting first for the servers if it names a command of one."""
    text = prompt if isinstance(prompt, str) else prompt.text
    if text.lstrip().startswith(f"/{PREFIX}"):
        await parts.servers.ready()
    return typed(parts, prompt)


async def work(session: Session, prompt: Message | Invocation | None) -> Ended:
    """Run one turn: add catalog changes, then run the prompt or the command."""
    agent, parts = session.agent, session.parts
    if news := parts.knowledge.news.fresh(agent.tools):
        await agent.hear(user(news), by="runtime")
    if not isinstance(prompt, Invocation):
        return await run(agent, prompt)
    try:
        return await _invoked(session, prompt)
    finally:
        # The command's permissions were granted before the agent's turn, which may never have started.
        agent.permissions.turn_over()


async def _invoked(session: Session, prompt: Invocation) -> Ended:
    agent, parts, what = session.agent, session.parts, prompt.what
    if isinstance(what, Skill) and what.forks:
        return await _by_an_agent(session, prompt, what)
    if isinstance(what, TypedPrompt):
        try:
            said = neutral(await _offered_text(parts, what.name, prompt.arguments))
        except ShoalError as error:
            return Ended(reason="done", detail=f"/{what.name} was not to be had: {error}")
        except TimeoutError:
            return Ended(reason="done", detail=f"/{what.name} was not to be had: no answer came in time")
    else:
        said = await parts.knowledge.invoking.text(what, prompt.arguments, agent)
    message = Message(role="user", content=(Text(text=_named(prompt)), Text(text=said)))
    model = what.model if isinstance(what, Skill) else None
    return await run(agent, message) if model is None else await _with_model(session, model, message)


async def _offered_text(parts: Parts, name: str, arguments: str) -> str:
    """Fetch a prompt text, which may be gone since it was typed. Raises `ShoalError` and `TimeoutError`."""
    for source in parts.knowledge.prompts:
        if any(each.name == name for each in source.list()):
            return await source.text(name, arguments)
    raise ShoalError("it is not offered any more")


async def _by_an_agent(session: Session, prompt: Invocation, skill: Skill) -> Ended:
    """Run the skill in an agent; its report is the answer and is added to the lead's conversation."""
    outcome = await session.parts.knowledge.invoking.typed_fork(skill, prompt.arguments, session.agent)
    said = outcome.text
    told = f"{_named(prompt)}\n<local-command-stdout>{neutral(said)}</local-command-stdout>"
    await session.agent.hear(user(told), by="person")
    return Ended(reason="done", text=said, detail="it could not be done" if outcome.is_error else "")


async def _with_model(session: Session, name: str, message: Message) -> Ended:
    agent = session.agent
    usual = agent.model
    try:
        model = await session.parts.choose(name)
        agent.purse.admit(model.card)
    except (BudgetError, ModelError, NoModel, SettingsError) as error:
        session.note(f"The command's model {name} is not to be had, and the usual one is asked: {error}")
        return await run(agent, message)
    agent.model = model
    try:
        return await run(agent, message)
    finally:
        # Unless a person has set another model in the meantime.
        if agent.model is model:
            agent.model = usual


def _named(prompt: Invocation) -> str:
    given = f"\n<command-args>{neutral(prompt.arguments)}</command-args>" if prompt.arguments else ""
    return f"<command-name>/{prompt.what.name}</command-name>{given}"
