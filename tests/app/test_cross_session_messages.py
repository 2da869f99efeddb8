"""Agents message the lead of another live session: with permission and marked as agents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, read_events, run_all_turns, script_agents
from session_helpers import collect_events, list_lead_results, open_session
from shoal.core.events import QuestionAsked, QueueItemAdded
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer, PermissionQuestion


def send_to_session(session: str, call_id: str = "m1") -> Any:
    return call_tool("SendMessage", call_id, to=f"uds:{session}", message="build is red", summary="the build")


def script_writer(session: str) -> Any:
    return script_agents(lead=[send_to_session(session), "sent"])


@pytest.mark.spec("CTL-03", "USR-11")
async def test_a_message_to_another_session_arrives_marked_as_from_an_agent(tmp_path: Path) -> None:
    received: list[str] = []
    reader = script_agents(
        **{"<teammate-message": [lambda r: received.append(r.messages[-1].text) or "noted"]}
    )
    async with open_session(tmp_path, reader) as other_session:
        for address in (other_session.id, other_session.id[:10]):
            async with open_session(tmp_path, script_writer(address)) as session:
                await run_all_turns(session)
            assert list_lead_results(session) == [
                f"The lead of session {other_session.id} will read it at its next step."
            ]
            turn = await other_session.next_turn()
            assert turn is not None
            await collect_events(turn)
    queued = [event for event in read_events(other_session) if isinstance(event, QueueItemAdded)]
    assert [event.by for event in queued] == ["agent", "agent"]
    assert f'teammate_id="lead@{session.id[:8]}"' in queued[-1].text
    assert "build is red" in received[-1]
    assert not other_session.withdraw_queued_prompts()


@pytest.mark.spec("CTL-03")
@pytest.mark.parametrize("allowed", [True, False])
async def test_a_message_to_another_session_asks_for_permission_naming_the_session(
    tmp_path: Path, allowed: bool
) -> None:
    async with open_session(tmp_path, script_agents(lead=["idle"])) as other_session:
        options = {"skip_permissions": False, "attended": True}
        async with open_session(tmp_path, script_writer(other_session.id), **options) as session:
            turn = asyncio.create_task(collect_events(session.run("lead")))
            async with asyncio.timeout(10):
                async for question in session.runtime.question_broker.watch_questions():
                    answer = AllowAnswer() if allowed else DenyAnswer(reason="not now.")
                    session.runtime.question_broker.submit_answer(question.id, answer)
                    break
                await turn
        assert isinstance(question, PermissionQuestion)
        assert other_session.id in question.reason
        assert question.rule == f"SendMessage(uds:{other_session.id})"
        assert other_session.runtime.inbox.queue.count_waking_items(
            other_session.agent.identity.agent
        ) == int(allowed)
    assert ("not now." in list_lead_results(session)[0]) is not allowed


@pytest.mark.spec("CTL-03")
@pytest.mark.parametrize("rule", ["SendMessage(uds:*)", "SendMessage(uds:{id})"])
async def test_a_deny_rule_for_other_sessions_applies_even_with_permissions_skipped(
    tmp_path: Path, rule: str
) -> None:
    async with open_session(tmp_path, script_agents(lead=["idle"])) as other_session:
        calls = [
            send_to_session(other_session.id[:6]),
            call_tool("SendMessage", "m2", to="lead", message="x", summary="y"),
        ]
        model = script_agents(lead=[calls, "end"])
        async with open_session(
            tmp_path, model, disallowed_tools=[rule.format(id=other_session.id)]
        ) as session:
            await collect_events(session.run("lead"))
        assert not other_session.runtime.inbox.queue.count_waking_items(other_session.agent.identity.agent)
    denied, own = list_lead_results(session)
    assert "forbids it" in denied
    assert own == "lead will read it at its next step."


@pytest.mark.spec("CTL-03", "CTL-04")
async def test_an_unreachable_session_is_an_error_that_lists_reachable_ones(tmp_path: Path) -> None:
    async with open_session(tmp_path, script_agents(lead=["idle"])) as gone:
        pass
    async with open_session(tmp_path, script_agents(lead=["idle"])) as other:

        def calls(_: object) -> Any:
            own = send_to_session(session.id, "m3")
            far = call_tool("SendMessage", "m4", to="bridge:x", message="m", summary="s")
            every = send_to_session("*", "m5")
            mute = call_tool("SendMessage", "m6", to=f"uds:{other.id}", message="m")
            shape = call_tool("SendMessage", "m7", to=f"uds:{other.id}", message={"type": "x"}, summary="s")
            # A rule about other sessions looks at `to`, which the older form does not have.
            past = {"type": "message", "recipient": f"uds:{other.id}", "content": "m", "summary": "s"}
            older = call_tool("SendMessage", "m8", **past)
            return [
                send_to_session(gone.id),
                send_to_session("nobody", "m2"),
                own,
                far,
                every,
                mute,
                shape,
                older,
            ]

        async with open_session(tmp_path, script_agents(lead=[calls, "end"])) as session:
            await collect_events(session.run("lead"))
        assert not other.runtime.inbox.queue.count_waking_items(other.agent.identity.agent)
    dead, unknown, own, far, every, mute, shape, older = list_lead_results(session)
    for each in (dead, unknown, every):
        assert f"Live sessions: {other.id}." in each
    assert "your own session" in own
    assert "no bridge is configured" in far
    assert "summary is missing" in mute
    assert "You can only send text to another session." in shape
    assert "For another session, use `to` and `message`." in older
    assert not [event for event in read_events(session) if isinstance(event, QuestionAsked)]
