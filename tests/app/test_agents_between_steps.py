"""Ends, messages and names of agents at the moments between two of their steps."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import agent, all_turns, cast, recorded, use
from shoal.core.errors import StoreError
from shoal.core.events import AgentEnded, AgentStarted, Asked, Event, Journaled
from shoal.core.messages import Message, ToolResult, result_text
from shoal.core.ports import Journal
from shoal.core.questions import Allowed
from shoal.core.requests import Request


def opened(place: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=place, model=model, **{"skip_permissions": True, **options})


def results(messages: list[Message]) -> list[str]:
    blocks = [block for message in messages for block in message.content]
    return [result_text(block) for block in blocks if isinstance(block, ToolResult)]


def last_result(request: Request) -> str:
    return results(list(request.messages))[-1]


def ids(request: Request) -> list[str]:
    """Of the agents that were started, in the order of their calls."""
    told = [text for text in results(list(request.messages)) if "agentId: " in text]
    return [text.partition("agentId: ")[2].split()[0].rstrip(",") for text in told]


def started_id(request: Request) -> str:
    return ids(request)[0]


def ends(session: shoal.Session) -> dict[str, Any]:
    """The last completion of each agent, by its description."""
    found = [event.completion for event in recorded(session) if isinstance(event, AgentEnded)]
    return {completion.description: completion for completion in found}


async def drain(turn: Any) -> list[Event]:
    return [event async for event in turn]


def git(place: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=place, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    git(place, "config", "user.email", "a@example.org")
    git(place, "config", "user.name", "A")
    git(place, "commit", "-qm", "first", "--allow-empty")
    return place


@pytest.mark.spec("USR-01")
async def test_a_message_that_wants_many_agents_is_asked_about_once_though_they_start_in_parts(
    tmp_path: Path,
) -> None:
    calls = [agent(f"child {n}", f"c{n}") for n in range(4)]
    model = cast(
        lead=[[*calls[:2], use("Write", "w", file_path="a.txt", content=""), *calls[2:]], "end"],
        child=["ok"],
    )
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with opened(tmp_path, model, attended=True, settings=settings) as session:

        async def say_yes() -> None:
            async for question in session.parts.desk.incoming():
                session.parts.desk.answer(question.id, Allowed())

        async with asyncio.TaskGroup() as aside:
            answering = aside.create_task(say_yes())
            await all_turns(session)
            answering.cancel()
    assert len([event for event in recorded(session) if isinstance(event, Asked)]) == 1
    assert len(ends(session)) == 4


@pytest.mark.spec("USR-01")
async def test_a_question_about_many_agents_that_cannot_be_kept_ends_the_turn_with_a_sentence(
    tmp_path: Path,
) -> None:
    model = cast(lead=[[agent(f"child {n}", f"c{n}") for n in range(4)], "end"], child=["ok"])
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with opened(tmp_path, model, attended=True, settings=settings) as session:
        session.parts.journal = Full(session.parts.journal, Asked)
        finished = (await drain(session.run("lead")))[-1]
    assert (finished.reason, finished.detail) == ("store_error", "The disk is full.")  # type: ignore[attr-defined]


class Full:
    """A journal on a disk that is full when one kind of event comes."""

    def __init__(self, journal: Journal, kind: type[Journaled]) -> None:
        self._journal = journal
        self._kind = kind

    def append(self, event: Journaled) -> None:
        if isinstance(event, self._kind):
            raise StoreError("The disk is full.", path=Path())
        self._journal.append(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


@pytest.mark.spec("AGT-10", "CTL-09")
async def test_a_name_stays_with_its_agent_when_another_that_wants_it_cannot_start(tmp_path: Path) -> None:
    model = cast(
        lead=[
            agent("child", "c1", name="smith"),
            agent("child", "c2", name="smith", subagent_type="nobody"),
            use("SendMessage", "m1", to="smith", message="again", summary="again"),
            last_result,
        ],
        child=["ok"],
    )
    async with opened(tmp_path, model) as session:
        finished = (await drain(session.run("lead")))[-1]
    assert "smith is resumed" in finished.text  # type: ignore[attr-defined]


@pytest.mark.spec("CTL-03")
async def test_a_name_never_hides_the_id_of_another_agent_nor_everyone(tmp_path: Path) -> None:
    model = cast(
        lead=[
            agent("child", "c1"),
            lambda request: agent("other", "c2", name=started_id(request)),
            agent("other", "c3", name="*"),
            "end",
        ],
        child=["ok"],
        other=["ok"],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    first, second, third = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert second.name == f"{first.agent}-2"
    assert third.name == "*-2"


@pytest.mark.spec("AGT-04", "PRM-08")
async def test_an_agent_of_a_kind_that_is_denied_is_not_resumed(tmp_path: Path) -> None:
    script = {
        "lead": [
            agent("child", "c1", subagent_type="Explore", name="smith"),
            "noted",
            use("SendMessage", "m1", to="smith", message="again", summary="again"),
            last_result,
        ],
        "child": ["ok"],
    }
    async with opened(tmp_path, cast(**script)) as session:
        await all_turns(session)
    denied = {"disallowed_tools": ["Agent(Explore)"], "resume": session.id}
    async with opened(tmp_path, cast(**script), **denied) as session:
        assert "Agent(Explore)" in await all_turns(session, "again")


@pytest.mark.spec("USR-24", "DEF-09")
@pytest.mark.parametrize("accepted", [True, False])
async def test_an_agent_at_its_turn_limit_is_held_to_its_acceptance_command_too(
    tmp_path: Path, accepted: bool
) -> None:
    agents = {
        "careful": {
            "description": "d",
            "prompt": "p",
            "maxTurns": 1,
            "acceptance": f"exit {0 if accepted else 3}",
        }
    }
    model = cast(
        lead=[agent("child", "c1", subagent_type="careful"), "end"], child=[use("Glob", pattern="*")]
    )
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
    done = ends(session)["child"]
    assert done.status == ("completed" if accepted else "failed")
    assert done.evidence.acceptance is not None
