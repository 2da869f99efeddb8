"""Handles commands that programs send to a live run through its control socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shoal.core.errors import AgentRefused
from shoal.wire.control import (
    Agents,
    Background,
    Command,
    Interrupt,
    Relay,
    Send,
    SetDelegate,
    SetModel,
    SetPermissionMode,
    ShutDown,
    Stop,
    StopAgents,
    StopTask,
)

if TYPE_CHECKING:
    from shoal.app.session.session import Session


WISH_OF_THE_PERSON = "the person ends it"


async def obey(session: Session, command: Command) -> Any:
    match command:
        case StopTask() | StopAgents() | Background() | Agents() | Send():
            return await _with_agents(session, command)
        case ShutDown(name=name, reason=reason):
            return await _shut_down(session, name, reason)
        case Relay(sender=sender, text=text, summary=summary):
            session.relay(sender, text, summary)
            return {"queued": True}
        case Interrupt(task_id=name):
            from shoal.app.session.adjusting import interrupt_agent

            worked = await (interrupt_agent(session, name) if name else session.interrupt())
            return {"interrupted": worked}
        case SetModel() | SetPermissionMode() | SetDelegate():
            return await _set(session, command)
        case Stop():
            session.stopping.set()
            await session.interrupt()
            return {"stopping": True}
        case _:
            usd = session.agent.purse.tree.usd
            return {"session": session.id, "busy": session.busy, "turn": session.turn, "usd": usd}


async def _shut_down(session: Session, name: str, reason: str) -> Any:
    from shoal.team.teams import SessionTeams

    teams = session.parts.teams
    gone = isinstance(teams, SessionTeams) and await teams.shut_down(name, reason or WISH_OF_THE_PERSON)
    if not gone:
        raise AgentRefused(f"There is no teammate {name!r} in this session.")
    return {"stopped": name}


async def _with_agents(session: Session, command: StopTask | StopAgents | Background | Agents | Send) -> Any:
    match command:
        case StopTask(task_id=task):
            return {"stopped": task, "description": await session.stop_task(task)}
        case StopAgents():
            return {"stopped": (await session.stop_all()).ids}
        case Background(task_id=task):
            return {"moved": session.move_to_background(task)}
        case Agents():
            return {"agents": [msgspec.to_builtins(each) for each in session.parts.crew.agents()]}
        case Send(to=to, text=text):
            return msgspec.to_builtins(await session.send(to, text))


async def _set(session: Session, command: SetModel | SetPermissionMode | SetDelegate) -> Any:
    match command:
        case SetModel(model=name):
            await session.set_model(name)
            return {"model": session.agent.model.card.id}
        case SetPermissionMode(mode=mode):
            session.set_mode(mode)
            return {"mode": mode}
        case SetDelegate(on=on):
            session.delegate(on=on)
            return {"on": on}
