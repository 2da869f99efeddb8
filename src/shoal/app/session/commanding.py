"""What a person types with a slash in front: what it names, and the turn that comes of it."""

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
    """A command with what follows it."""

    what: Skill | TypedPrompt
    arguments: str
    text: str
    """As it was typed."""


def names_command(parts: Parts, prompt: str | Message) -> bool:
    """Whether it begins with a name behind a slash that is a command, or at least no path at the root."""
    name, _ = _parted(prompt)
    if not name:
        return False
    known = any(named_alike(name, each.name) for each in parts.knowledge.commands())
    return known or not os.path.lexists(f"/{name}")


def typed(parts: Parts, prompt: str | Message) -> str | Message | Invocation:
    """The prompt, or what a command in it calls for. Raises `UnknownSkill` and `BadDefinition`."""
    if not names_command(parts, prompt):
        return prompt
    name, arguments = _parted(prompt)
    offered = (each for source in parts.knowledge.prompts for each in source.list())
    other = next((each for each in offered if each.name == name), None)
    what = other or parts.knowledge.skills.typed(name)
    text = prompt if isinstance(prompt, str) else prompt.text
    return Invocation(what=what, arguments=arguments, text=text.strip())


def _parted(prompt: str | Message) -> tuple[str, str]:
    """The name behind a slash and what follows it; no name where the prompt is something else."""
    if isinstance(prompt, Message) and not all(isinstance(block, Text) for block in prompt.content):
        return "", ""
    match = _TYPED.fullmatch(prompt if isinstance(prompt, str) else prompt.text)
    return ("", "") if match is None else (match[1], (match[2] or "").strip())


async def understood(parts: Parts, prompt: str | Message) -> str | Message | Invocation:
    """As `typed`, for a prompt that may come before the servers whose command it names."""
    text = prompt if isinstance(prompt, str) else prompt.text
    if text.lstrip().startswith(f"/{PREFIX}"):
        await parts.servers.ready()
    return typed(parts, prompt)


async def work(session: Session, prompt: Message | Invocation | None) -> Ended:
    """One turn: the agent hears what is new here, and works on the prompt or on what a command says."""
    agent, parts = session.agent, session.parts
    if news := parts.knowledge.news.fresh(agent.tools):
        await agent.hear(user(news), by="runtime")
    if not isinstance(prompt, Invocation):
        return await run(agent, prompt)
    try:
        return await _invoked(session, prompt)
    finally:
        # What the command allows was lent before the agent's turn began, which may never have come.
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
    """What is offered may have changed since it was typed. Raises a `ShoalError`, and `TimeoutError`."""
    for source in parts.knowledge.prompts:
        if any(each.name == name for each in source.list()):
            return await source.text(name, arguments)
    raise ShoalError("it is not offered any more")


async def _by_an_agent(session: Session, prompt: Invocation, skill: Skill) -> Ended:
    """The agent's report is the answer: the lead knows of it, and is not asked about it."""
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
        # Unless a person has chosen another one meanwhile.
        if agent.model is model:
            agent.model = usual


def _named(prompt: Invocation) -> str:
    given = f"\n<command-args>{neutral(prompt.arguments)}</command-args>" if prompt.arguments else ""
    return f"<command-name>/{prompt.what.name}</command-name>{given}"
