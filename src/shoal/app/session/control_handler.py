"""Handles commands that programs send to a live run through its control socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shoal.app.model_notices import format_session_notice
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentRequestRefused
from shoal.wire.control_codec import (
    InterruptTurnControlCommand,
    ListAgentsControlCommand,
    MoveAgentsToBackgroundControlCommand,
    RelayAgentMessageControlCommand,
    RestartMemberControlCommand,
    RunControlCommand,
    SendUserTextControlCommand,
    SetDelegateModeControlCommand,
    SetModelControlCommand,
    SetPermissionModeControlCommand,
    ShutDownMemberControlCommand,
    StopAgentOrShellControlCommand,
    StopAllAgentsControlCommand,
    StopRunControlCommand,
)

if TYPE_CHECKING:
    from shoal.app.session.session import Session


async def handle_control_command(session: Session, command: RunControlCommand) -> Any:
    match command:
        case (
            StopAgentOrShellControlCommand()
            | StopAllAgentsControlCommand()
            | MoveAgentsToBackgroundControlCommand()
            | ListAgentsControlCommand()
            | SendUserTextControlCommand()
        ):
            return await _handle_agent_command(session, command)
        case ShutDownMemberControlCommand(name=name, reason=reason):
            return await _shut_down_member(session, name, reason)
        case RestartMemberControlCommand(name=name):
            return _restart_members(session, name)
        case RelayAgentMessageControlCommand(sender=sender, text=text, summary=summary):
            session.queue_message_from_other_session(sender, text, summary)
            return {"queued": True}
        case InterruptTurnControlCommand(task_id=name):
            from shoal.app.session.session_changes import interrupt_agent

            was_working = await (interrupt_agent(session, name) if name else session.interrupt())
            return {"interrupted": was_working}
        case SetModelControlCommand() | SetPermissionModeControlCommand() | SetDelegateModeControlCommand():
            return await _handle_setting_command(session, command)
        case StopRunControlCommand():
            session.stop_requested.set()
            await session.interrupt()
            return {"stopping": True}
        case _:
            usd = session.agent.budget.budget.usd
            return {"session": session.id, "busy": session.is_busy, "turn": session.turn, "usd": usd}


async def _shut_down_member(session: Session, name: str, reason: str) -> Any:
    teams = session.led_teams
    was_shut_down = teams is not None and await teams.shut_down_member(
        name, reason or format_end_reason("ended_by_user")
    )
    if not was_shut_down:
        raise AgentRequestRefused(format_session_notice("unknown_teammate", name=repr(name)))
    return {"stopped": name}


def _restart_members(session: Session, name: str) -> Any:
    teams = session.led_teams
    if teams is None:
        raise AgentRequestRefused(format_session_notice("lead_restarts_teammates"))
    names = [name] if name else [each.name for each in teams.list_down_members()]
    for each in names:
        is_restarting = teams.restart_member(each)
        if is_restarting is None:
            raise AgentRequestRefused(format_session_notice("unknown_teammate", name=repr(each)))
        if not is_restarting:
            raise AgentRequestRefused(format_session_notice("teammate_not_down", name=each))
    return {"restarting": names}


async def _handle_agent_command(
    session: Session,
    command: StopAgentOrShellControlCommand
    | StopAllAgentsControlCommand
    | MoveAgentsToBackgroundControlCommand
    | ListAgentsControlCommand
    | SendUserTextControlCommand,
) -> Any:
    match command:
        case StopAgentOrShellControlCommand(task_id=task_id):
            return {"stopped": task_id, "description": await session.stop_task(task_id)}
        case StopAllAgentsControlCommand():
            return {"stopped": (await session.stop_all()).ids}
        case MoveAgentsToBackgroundControlCommand(task_id=task_id):
            return {"moved": session.move_to_background(task_id)}
        case ListAgentsControlCommand():
            return {"agents": [msgspec.to_builtins(each) for each in session.supervisor.list_agents()]}
        case SendUserTextControlCommand(to=to, text=text):
            return msgspec.to_builtins(await session.send(to, text))


async def _handle_setting_command(
    session: Session,
    command: SetModelControlCommand | SetPermissionModeControlCommand | SetDelegateModeControlCommand,
) -> Any:
    match command:
        case SetModelControlCommand(model=name):
            await session.set_model(name)
            return {"model": session.agent.current_model.card.id}
        case SetPermissionModeControlCommand(mode=mode):
            session.set_mode(mode)
            return {"mode": mode}
        case SetDelegateModeControlCommand(on=enabled):
            session.set_delegate_mode(enabled=enabled)
            return {"on": enabled}
