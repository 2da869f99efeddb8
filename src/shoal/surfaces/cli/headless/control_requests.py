"""Handlers of the control requests that a driving program sends between its prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from shoal.app.session.lead_facts import compute_context_usage
from shoal.app.session.session import Session
from shoal.app.session.session_changes import rewind_files_to_before_message, set_thinking_tokens
from shoal.core.agents.agent_definitions import INHERIT_MODEL, AgentDefinition
from shoal.core.extensions.skills import TypedCommand
from shoal.core.permissions.permission_changes import (
    PERMISSION_MODES,
    PermissionMode,
    resolve_permission_mode,
)
from shoal.surfaces.terminal.user_messages import join_names
from shoal.wire.stream_input_codec import InvalidInputStreamLineError

if TYPE_CHECKING:
    from shoal.app.session.lead_facts import compute_context_usage

_RequestBody: TypeAlias = Mapping[str, Any]
_ResponseBody: TypeAlias = dict[str, Any] | None


async def handle_control_request(session: Session, subtype: str, body: _RequestBody) -> _ResponseBody:
    """Handle a request and return the response body. Raises a `ShoalError` if it cannot be done."""
    handler = _HANDLERS.get(subtype)
    if handler is None:
        raise InvalidInputStreamLineError(
            f"unknown request {subtype!r}; known requests: {join_names(_HANDLERS)}"
        )
    return await handler(session, body)


def build_initialize_response(session: Session) -> dict[str, Any]:
    """Build the response to `initialize`: the commands and agents of the session."""
    return {
        "commands": [_slash_command_to_dict(each) for each in session.list_slash_commands()],
        "agents": [_agent_definition_to_dict(definition) for definition in session.list_agent_definitions()],
        "output_style": session.output_style,
        "available_output_styles": session.list_output_styles(),
        "models": [],
        "account": {},
        "hook_on_failure_supported": True,
    }


def _slash_command_to_dict(command: TypedCommand) -> dict[str, str]:
    return {
        "name": command.name,
        "description": command.description,
        "argumentHint": command.argument_hint,
    }


async def _handle_initialize(session: Session, body: _RequestBody) -> _ResponseBody:
    """Handle a repeated or late `initialize`: agents and hooks can only be set before the session opens."""
    if body.get("agents"):
        raise InvalidInputStreamLineError(
            "the session has already started; pass agents in the first line, or with --agents"
        )
    return {**build_initialize_response(session), "hooks_applied": not body.get("hooks")}


async def _handle_interrupt(session: Session, body: _RequestBody) -> _ResponseBody:
    await session.interrupt()
    return None


async def _set_permission_mode(session: Session, body: _RequestBody) -> _ResponseBody:
    mode = _parse_permission_mode(body.get("mode"))
    session.set_mode(mode)
    return {"mode": mode}


async def _set_model(session: Session, body: _RequestBody) -> _ResponseBody:
    name = body.get("model")
    if name is not None and (not isinstance(name, str) or not name):
        raise InvalidInputStreamLineError('set_model needs "model": a name, or null for the initial model')
    await session.set_model(name)
    return None


async def _set_max_thinking_tokens(session: Session, body: _RequestBody) -> _ResponseBody:
    tokens = body.get("max_thinking_tokens")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0):
        raise InvalidInputStreamLineError(
            'set_max_thinking_tokens needs "max_thinking_tokens": a number, or null for the default'
        )
    set_thinking_tokens(session, tokens)
    return None


async def _set_delegate(session: Session, body: _RequestBody) -> _ResponseBody:
    enabled = body.get("on")
    if not isinstance(enabled, bool):
        raise InvalidInputStreamLineError('set_delegate needs "on": true or false')
    session.set_delegate_mode(enabled=enabled)
    return None


async def _stop_task(session: Session, body: _RequestBody) -> _ResponseBody:
    await session.stop_task(_parse_task_id(body.get("task_id")))
    return None


async def _move_tasks_to_background(session: Session, body: _RequestBody) -> _ResponseBody:
    task = body.get("task_id")
    return {"moved": list(session.move_to_background(None if task is None else _parse_task_id(task)))}


async def _get_context_usage(session: Session, body: _RequestBody) -> _ResponseBody:
    return compute_context_usage(session)


async def _list_mcp_statuses(session: Session, body: _RequestBody) -> _ResponseBody:
    servers = []
    for status in session.list_mcp_servers():
        server: dict[str, Any] = {
            "name": status.name,
            "status": status.status,
            "config": {"type": status.kind, "name": status.name},
            "scope": status.scope,
            "tools": [{"name": name} for name in status.tools],
        }
        servers.append(server | ({"error": status.detail} if status.detail else {}))
    return {"mcpServers": servers}


async def _rewind_files(session: Session, body: _RequestBody) -> _ResponseBody:
    message_id = body.get("user_message_id")
    if not isinstance(message_id, str) or not message_id:
        raise InvalidInputStreamLineError(
            'rewind_files needs "user_message_id": the uuid of a message to the agent'
        )
    report = await rewind_files_to_before_message(session, message_id)
    changed_paths = [str(path) for path in (*report.restored, *report.removed)]
    return {"canRewind": True, "filesChanged": changed_paths}


_HANDLERS: dict[str, Callable[[Session, _RequestBody], Awaitable[_ResponseBody]]] = {
    "initialize": _handle_initialize,
    "interrupt": _handle_interrupt,
    "set_permission_mode": _set_permission_mode,
    "set_model": _set_model,
    "set_max_thinking_tokens": _set_max_thinking_tokens,
    "set_delegate": _set_delegate,
    "stop_task": _stop_task,
    "background_task": _move_tasks_to_background,
    "get_context_usage": _get_context_usage,
    "mcp_status": _list_mcp_statuses,
    "rewind_files": _rewind_files,
}


def _parse_task_id(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInputStreamLineError(
            'stop_task needs "task_id": the id of an agent or a background shell'
        )
    return name


def _agent_definition_to_dict(definition: AgentDefinition) -> dict[str, str]:
    model = definition.model or INHERIT_MODEL
    return {"name": definition.name, "description": definition.description, "model": model}


def _parse_permission_mode(name: object) -> PermissionMode:
    mode = resolve_permission_mode(name)
    if mode is None:
        known = join_names(PERMISSION_MODES)
        raise InvalidInputStreamLineError(f"{name!r} is not a permission mode; use one of {known}")
    return mode
