"""Handlers of the control requests that a driving program sends between its prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, get_args

from shoal.app.session.adjusting import rewind_files, set_thinking
from shoal.app.session.session import Session
from shoal.core.decisions import Mode
from shoal.core.definitions import INHERIT, Definition
from shoal.core.skills import Skill, TypedPrompt
from shoal.surfaces.cli.headless.context_usage import context_usage
from shoal.surfaces.terminal.sentences import named
from shoal.wire.stream_incoming import BadLine

_Body: TypeAlias = Mapping[str, Any]
_Answer: TypeAlias = dict[str, Any] | None


async def carry_out(session: Session, subtype: str, body: _Body) -> _Answer:
    """Handle a request and return the response body. Raises a `ShoalError` if it cannot be done."""
    known = _REQUESTS.get(subtype)
    if known is None:
        raise BadLine(f"{subtype!r} is not a request known here; known are {named(_REQUESTS)}")
    return await known(session, body)


def beginning(session: Session) -> dict[str, Any]:
    """Build the response to `initialize`: the commands and agents of the session."""
    return {
        "commands": [_command(each) for each in session.parts.knowledge.commands()],
        "agents": [_agent(definition) for definition in session.parts.definitions.all()],
        "output_style": "default",
        "available_output_styles": ["default"],
        "models": [],
        "account": {},
        "hook_on_failure_supported": True,
    }


def _command(command: Skill | TypedPrompt) -> dict[str, str]:
    return {
        "name": command.name,
        "description": command.description,
        "argumentHint": command.argument_hint,
    }


async def _initialize(session: Session, body: _Body) -> _Answer:
    """Handle a repeated or late `initialize`: agents and hooks can only be set before the session opens."""
    if body.get("agents"):
        raise BadLine("this session has begun: agents are given with the first line, or with --agents")
    return {**beginning(session), "hooks_applied": not body.get("hooks")}


async def _interrupt(session: Session, body: _Body) -> _Answer:
    await session.interrupt()
    return None


async def _set_permission_mode(session: Session, body: _Body) -> _Answer:
    mode = _mode(body.get("mode"))
    session.set_mode(mode)
    return {"mode": mode}


async def _set_model(session: Session, body: _Body) -> _Answer:
    name = body.get("model")
    if name is not None and (not isinstance(name, str) or not name):
        raise BadLine('set_model needs "model": a name, or null for the one the session began with')
    await session.set_model(name)
    return None


async def _set_thinking(session: Session, body: _Body) -> _Answer:
    tokens = body.get("max_thinking_tokens")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0):
        raise BadLine('it needs "max_thinking_tokens": a number, or null for the usual')
    set_thinking(session, tokens)
    return None


async def _set_delegate(session: Session, body: _Body) -> _Answer:
    wanted = body.get("on")
    if not isinstance(wanted, bool):
        raise BadLine('set_delegate needs "on": true or false')
    session.delegate(on=wanted)
    return None


async def _stop_task(session: Session, body: _Body) -> _Answer:
    await session.stop_task(_task(body.get("task_id")))
    return None


async def _background_task(session: Session, body: _Body) -> _Answer:
    task = body.get("task_id")
    return {"moved": list(session.move_to_background(None if task is None else _task(task)))}


async def _get_context_usage(session: Session, body: _Body) -> _Answer:
    return context_usage(session)


async def _mcp_status(session: Session, body: _Body) -> _Answer:
    servers = []
    for each in session.parts.servers.standings():
        server: dict[str, Any] = {
            "name": each.name,
            "status": each.status,
            "config": {"type": each.kind, "name": each.name},
            "scope": each.origin,
            "tools": [{"name": name} for name in each.tools],
        }
        servers.append(server | ({"error": each.detail} if each.detail else {}))
    return {"mcpServers": servers}


async def _rewind_files(session: Session, body: _Body) -> _Answer:
    said = body.get("user_message_id")
    if not isinstance(said, str) or not said:
        raise BadLine('it needs "user_message_id": the uuid of something that was said to the agent')
    report = await rewind_files(session, said)
    changed = [str(path) for path in (*report.restored, *report.removed)]
    return {"canRewind": True, "filesChanged": changed}


_REQUESTS: dict[str, Callable[[Session, _Body], Awaitable[_Answer]]] = {
    "initialize": _initialize,
    "interrupt": _interrupt,
    "set_permission_mode": _set_permission_mode,
    "set_model": _set_model,
    "set_max_thinking_tokens": _set_thinking,
    "set_delegate": _set_delegate,
    "stop_task": _stop_task,
    "background_task": _background_task,
    "get_context_usage": _get_context_usage,
    "mcp_status": _mcp_status,
    "rewind_files": _rewind_files,
}


def _task(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadLine('it needs "task_id": the id of an agent or of a background shell')
    return name


def _agent(definition: Definition) -> dict[str, str]:
    model = definition.model or INHERIT
    return {"name": definition.name, "description": definition.description, "model": model}


def _mode(name: object) -> Mode:
    known: tuple[Mode, ...] = get_args(Mode)
    for mode in known:
        if mode == name:
            return mode
    raise BadLine(f"{name!r} is not a permission mode; they are {named(known)}")
