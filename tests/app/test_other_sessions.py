"""Agents write to the lead of another live session: with permission, as agents, and to those there are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cast import all_turns, cast, recorded, use
from crew_rig import drain, opened, texts
from shoal.core.events import Asked, Queued
from shoal.core.questions import Allowed, Denied, MayRun


def to_session(session: str, call_id: str = "m1") -> Any:
    return use("SendMessage", call_id, to=f"uds:{session}", message="build is red", summary="the build")


def writer(session: str) -> Any:
    return cast(lead=[to_session(session), "sent"])


@pytest.mark.spec("CTL-03", "USR-11")
async def test_the_lead_of_another_session_hears_it_as_an_agents_word(tmp_path: Path) -> None:
    heard: list[str] = []
    reader = cast(**{"<teammate-message": [lambda r: heard.append(r.messages[-1].text) or "noted"]})
    async with opened(tmp_path, reader) as other:
        for address in (other.id, other.id[:10]):
            async with opened(tmp_path, writer(address)) as session:
                await all_turns(session)
            assert texts(session) == [f"The lead of session {other.id} hears it at its next step."]
            turn = await other.next_turn()
            assert turn is not None
            await drain(turn)
    queued = [event for event in recorded(other) if isinstance(event, Queued)]
    assert [event.by for event in queued] == ["agent", "agent"]
    assert f'teammate_id="lead@{session.id[:8]}"' in queued[-1].text
    assert "build is red" in heard[-1]
    assert not other.unheard()


@pytest.mark.spec("CTL-03")
@pytest.mark.parametrize("allowed", [True, False])
async def test_it_is_asked_about_first_naming_the_session(tmp_path: Path, allowed: bool) -> None:
    async with opened(tmp_path, cast(lead=["idle"])) as other:
        options = {"skip_permissions": False, "attended": True}
        async with opened(tmp_path, writer(other.id), **options) as session:
            turn = asyncio.create_task(drain(session.run("lead")))
            async with asyncio.timeout(10):
                async for question in session.parts.desk.incoming():
                    answer = Allowed() if allowed else Denied(reason="not now.")
                    session.parts.desk.answer(question.id, answer)
                    break
                await turn
        assert isinstance(question, MayRun)
        assert other.id in question.reason
        assert question.rule == f"SendMessage(uds:{other.id})"
        assert other.parts.queue.size(other.agent.identity.agent) == int(allowed)
    assert ("not now." in texts(session)[0]) is not allowed


@pytest.mark.spec("CTL-03")
@pytest.mark.parametrize("rule", ["SendMessage(uds:*)", "SendMessage(uds:{id})"])
async def test_a_rule_that_denies_it_holds_even_where_permissions_are_skipped(
    tmp_path: Path, rule: str
) -> None:
    async with opened(tmp_path, cast(lead=["idle"])) as other:
        calls = [to_session(other.id[:6]), use("SendMessage", "m2", to="lead", message="x", summary="y")]
        model = cast(lead=[calls, "end"])
        async with opened(tmp_path, model, disallowed_tools=[rule.format(id=other.id)]) as session:
            await drain(session.run("lead"))
        assert not other.parts.queue.size(other.agent.identity.agent)
    denied, own = texts(session)
    assert "forbids it" in denied
    assert own == "lead hears it at its next step."


@pytest.mark.spec("CTL-03", "CTL-04")
async def test_what_cannot_be_reached_is_an_error_that_names_who_can(tmp_path: Path) -> None:
    async with opened(tmp_path, cast(lead=["idle"])) as gone:
        pass
    async with opened(tmp_path, cast(lead=["idle"])) as other:

        def calls(_: object) -> Any:
            own = to_session(session.id, "m3")
            far = use("SendMessage", "m4", to="bridge:x", message="m", summary="s")
            every = to_session("*", "m5")
            mute = use("SendMessage", "m6", to=f"uds:{other.id}", message="m")
            shape = use("SendMessage", "m7", to=f"uds:{other.id}", message={"type": "x"}, summary="s")
            # A rule about other sessions looks at `to`, which the older form does not have.
            past = {"type": "message", "recipient": f"uds:{other.id}", "content": "m", "summary": "s"}
            older = use("SendMessage", "m8", **past)
            return [to_session(gone.id), to_session("nobody", "m2"), own, far, every, mute, shape, older]

        async with opened(tmp_path, cast(lead=[calls, "end"])) as session:
            await drain(session.run("lead"))
        assert not other.parts.queue.size(other.agent.identity.agent)
    dead, unknown, own, far, every, mute, shape, older = texts(session)
    for each in (dead, unknown, every):
        assert f"Live now: {other.id}." in each
    assert "your own session" in own
    assert "no bridge to one is configured" in far
    assert "needs a summary" in mute
    assert "Only text can be sent to another session." in shape
    assert "Another session is reached with to and message." in older
    assert not [event for event in recorded(session) if isinstance(event, Asked)]
