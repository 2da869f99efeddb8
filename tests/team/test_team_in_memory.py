"""A whole session with a team on a store in memory: nothing is written to the home, and it resumes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import shoal
from agent_scripts import call_tool, read_events, run_all_turns
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentStarted, TaskChanged
from shoal.models.scripted_model import ReplyLike
from team_scripts import (
    get_home,
    get_last_text,
    open_session,
    script_team,
    send_message,
    spawn_member,
)


def work_on_task(request: ModelRequest) -> ReplyLike:
    """Complete the assigned task and report it; answer later mail with what the member remembers."""
    last_text = get_last_text(request)
    if "is yours now" in last_text:
        return [
            call_tool("TaskUpdate", taskId="1", status="completed"),
            send_message("team-lead", "the deck is done"),
        ]
    if "what was your task" in last_text:
        first_text = "\n".join(message.text for message in request.messages)
        return send_message(
            "team-lead", f"mine was {'the deck' if 'caulk the deck' in first_text else 'lost'}"
        )
    return "ready"


LEAD = [
    call_tool("TeamCreate", team_name="crew"),
    call_tool("TaskCreate", subject="caulk the deck", description="all of it"),
    spawn_member("ann"),
    "waiting",
    "heard it",
]


async def run_team(tmp_path: Path, store: shoal.MemoryStore) -> shoal.Session:
    model = script_team(lead=LEAD, ann=[work_on_task])
    async with open_session(tmp_path, model, store=store) as session:
        await run_all_turns(session, "go")
    return session


async def resume_team(tmp_path: Path, store: shoal.MemoryStore, session_id: str) -> shoal.Session:
    model = script_team(
        lead=[*LEAD, send_message("ann", "what was your task?"), "asked", "noted"], ann=[work_on_task]
    )
    async with open_session(tmp_path, model, store=store, resume=session_id) as session:
        await run_all_turns(session, "ask her")
    return session


def list_lead_texts(session: shoal.Session) -> str:
    return "\n".join(message.text for message in session.agent.conversation.messages)


def test_a_team_in_memory_works_and_resumes_without_writing_to_the_home(tmp_path: Path) -> None:
    store, home = shoal.MemoryStore(), get_home()
    session = asyncio.run(run_team(tmp_path, store))
    assert "the deck is done" in list_lead_texts(session)
    changes = [event.status for event in read_events(session) if isinstance(event, TaskChanged)]
    assert changes == ["pending", "in_progress", "completed"]
    # Another event loop, as when a program calls `run_sync` twice.
    resumed = asyncio.run(resume_team(tmp_path, store, session.id))
    assert "mine was the deck" in list_lead_texts(resumed)
    started = [event for event in read_events(resumed) if isinstance(event, AgentStarted)]
    assert [(event.name, event.resumed) for event in started] == [("ann", False), ("ann", True)]
    assert sorted(home.rglob("*")) == []
