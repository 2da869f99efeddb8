"""The agents of a session: their names, and who reports to whom."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core.agents.subagents import AgentResult, AgentWorkEvidence
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.errors import AgentRequestRefused
from shoal.core.events import AgentStarted, JournaledEvent
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator
from shoal.runs.agent_messenger import AgentMessenger
from shoal.runs.agent_registry import EVERYONE, AgentRegistry
from shoal.runs.agent_run import AgentRun
from shoal.runs.inbox_queue import SharedInboxQueue


def make_run(agent: str, name: str = "", parent: str = LEAD_ID, **more: Any) -> AgentRun:
    facts = AgentStarted(
        agent=AgentId(agent),
        kind="Explore",
        name=name,
        description=f"task of {agent}",
        parent=AgentId(parent),
        call="c1",
        depth=1,
        model="m",
        mode="default",
        cwd="/project",
        background=True,
        **more,
    )
    return AgentRun(facts, None, None, started_at=10.0)


def make_result(agent: str, name: str = "", report_to: str = LEAD_ID, **more: Any) -> AgentResult:
    return AgentResult(
        id=f"result-{agent}",
        agent=AgentId(agent),
        status="completed",
        kind="Explore",
        description=f"task of {agent}",
        report_to=AgentId(report_to),
        call="c1",
        name=name,
        **more,
    )


def end_run(registry: AgentRegistry, run: AgentRun) -> None:
    run.completion, run.is_live = make_result(run.id, run.facts.name, run.report_to), False
    registry.remove_running_agent(run)


def test_the_status_of_an_ended_agent_has_the_figures_of_its_result() -> None:
    """Its progress monitor is gone, or counts another process."""
    figures: dict[str, Any] = {
        "usage": Usage(input_tokens=20, output_tokens=5),
        "evidence": AgentWorkEvidence(tool_calls=3),
        "duration_ms": 1500,
        "output": "/runs/s/a1.output",
    }
    result = make_result("a1", "scout", **figures)
    status = AgentRun.from_result(result).take_snapshot(now=100.0)
    assert (status.status, status.completion, status.name) == ("completed", result, "scout")
    assert (status.tool_calls, status.tokens, status.seconds) == (3, 25, 1.5)
    assert (status.output, status.doing) == ("/runs/s/a1.output", "")


def test_the_status_of_an_agent_without_a_monitor_has_only_its_time() -> None:
    status = make_run("a1").take_snapshot(now=12.5)
    assert (status.status, status.completion) == ("running", None)
    assert (status.tool_calls, status.tokens, status.seconds) == (0, 0, 2.5)
    assert (status.output, status.doing) == ("", "")


def test_names_that_differ_only_in_case_get_a_number() -> None:
    registry = AgentRegistry()
    names = [registry.reserve_agent_name(name) for name in ("Team-Lead", "scout", "Scout", "SCOUT", "Main")]
    assert names == ["Team-Lead-2", "scout", "Scout-2", "SCOUT-3", "Main-2"]
    registry.release_agent_name("scout")
    assert registry.reserve_agent_name("scout") == "scout"


def test_a_name_is_free_again_when_its_agent_has_ended() -> None:
    registry = AgentRegistry()
    run = make_run("a1", registry.reserve_agent_name("scout"))
    registry.add_run(run)
    assert registry.resolve_agent_id("scout") == "a1"
    assert registry.find_run("scout") is registry.find_run("a1") is run
    assert registry.reserve_agent_name("scout") == "scout-2"
    end_run(registry, run)
    assert registry.reserve_agent_name("scout") == "scout"
    # Until the new agent has started, the name leads to the old one.
    assert registry.find_run("scout") is run
    registry.add_run(make_run("a2", "scout"))
    assert registry.resolve_agent_id("scout") == "a2"


@pytest.mark.parametrize("name", ["lead", "main", "team-lead", EVERYONE, "a1"])
def test_names_of_the_lead_of_everyone_and_ids_of_agents_are_taken(name: str) -> None:
    registry = AgentRegistry()
    registry.add_run(make_run("a1"))
    assert registry.reserve_agent_name(name) == f"{name}-2"


def test_a_name_that_was_not_reserved_does_not_lead_to_the_agent() -> None:
    registry = AgentRegistry()
    registry.add_run(make_run("a1", "scout"))
    assert registry.get_run(AgentId("scout")) is None
    assert registry.resolve_agent_id("scout") == "scout"


def test_agents_of_earlier_processes_are_found_and_have_ended() -> None:
    registry = AgentRegistry()
    registry.restore_ended_agents([make_result("a1", "scout", duration_ms=1_500), make_result("a2")])
    assert [registry.find_run(text).id for text in ("scout", "a1", "a2")] == ["a1", "a1", "a2"]
    assert not registry.has_running_agents
    assert [run.id for run in registry.list_ended_children(LEAD_ID)] == ["a1", "a2"]
    first = registry.take_agent_snapshots(99.0)[0]
    assert (first.name, first.status, first.seconds, first.background) == ("scout", "completed", 1.5, False)
    assert registry.reserve_agent_name("scout") == "scout"


def test_an_unknown_agent_is_refused_with_the_names_of_the_others() -> None:
    registry = AgentRegistry()
    with pytest.raises(AgentRequestRefused, match="'nobody'"):
        registry.find_run("nobody")
    registry.add_run(make_run("a1", registry.reserve_agent_name("scout")))
    registry.add_run(make_run("a2"))
    with pytest.raises(AgentRequestRefused, match="scout, a2"):
        registry.find_run("nobody")


def test_running_and_ended_children_and_ancestors_follow_who_reports_to_whom() -> None:
    registry = AgentRegistry()
    child, grandchild, other = make_run("a1"), make_run("a2", parent="a1"), make_run("a3")
    for run in (child, grandchild, other):
        registry.add_run(run)
    assert registry.list_running_agents() == (child, other, grandchild)
    assert registry.list_running_children(LEAD_ID) == (child, other)
    assert registry.list_running_children(AgentId("a1")) == (grandchild,)
    assert registry.list_ancestors(AgentId("a2")) == ("a1", LEAD_ID)
    assert registry.list_ancestors(LEAD_ID) == registry.list_ancestors(AgentId("unknown")) == ()
    end_run(registry, grandchild)
    assert registry.list_ended_children(AgentId("a1")) == (grandchild,)
    assert registry.list_ended_children(LEAD_ID) == ()
    assert registry.list_running_children(AgentId("a1")) == ()
    assert registry.has_running_agents
    for run in (child, other):
        end_run(registry, run)
    assert not registry.has_running_agents


def test_agents_that_report_to_each_other_have_no_endless_ancestors() -> None:
    registry = AgentRegistry()
    registry.add_run(make_run("a1", parent="a2"))
    registry.add_run(make_run("a2", parent="a1"))
    assert registry.list_ancestors(AgentId("a1")) == ("a2", "a1")


def test_a_snapshot_of_a_running_agent_counts_its_time() -> None:
    snapshot = make_run("a1", "scout").take_snapshot(12.5)
    assert (snapshot.status, snapshot.seconds, snapshot.tool_calls, snapshot.tokens) == ("running", 2.5, 0, 0)
    assert (snapshot.doing, snapshot.completion, snapshot.output) == ("", None, "")


class MessengerOfRegistry:
    """A messenger whose agents cannot be resumed, with its queue and its events."""

    def __init__(self, registry: AgentRegistry) -> None:
        self.queue = SharedInboxQueue()
        self.events: list[JournaledEvent] = []
        self.resumed: list[str] = []

        async def resume(agent: AgentId, *_: Any) -> AgentRun:
            self.resumed.append(agent)
            raise AgentRequestRefused("it cannot be resumed")

        self.messenger = AgentMessenger(
            registry=registry,
            queue=self.queue,
            ids=IdGenerator(1),
            emit=self.events.append,
            resume=resume,
        )

    async def send(self, to: str) -> str:
        lead: Any = None  # only needed for an agent that is resumed
        return (await self.messenger.send_user_message(to, "hello", lead)).name


async def test_a_message_of_a_person_is_queued_or_resumes_the_agent() -> None:
    registry = AgentRegistry()
    named, unnamed = make_run("a1", registry.reserve_agent_name("scout")), make_run("a2")
    for run in (named, unnamed):
        registry.add_run(run)
    sent = MessengerOfRegistry(registry)
    assert [await sent.send(to) for to in ("scout", "a2", "main")] == ["scout", "a2", "lead"]
    assert [event.agent for event in sent.events] == ["a1", "a2", LEAD_ID]
    for agent in ("a1", "a2", LEAD_ID):
        item = sent.queue.take_next(AgentId(agent))
        assert item is not None
        assert (item.by, item.content) == ("person", (TextBlock(text="hello"),))
        assert sent.queue.take_next(AgentId(agent)) is None
    end_run(registry, named)
    with pytest.raises(AgentRequestRefused, match="cannot be resumed"):
        await sent.send("scout")
    assert sent.resumed == ["a1"]
    assert len(sent.events) == 3


async def test_a_message_to_an_agent_on_another_machine_is_queued() -> None:
    registry = AgentRegistry()
    registry.add_run(make_run("a1", registry.reserve_agent_name("far"), isolation="remote"))
    sent = MessengerOfRegistry(registry)
    await sent.send("far")
    assert (len(sent.events), sent.resumed) == (1, [])
    assert sent.queue.take_next(AgentId("a1")) is not None


async def test_pending_items_of_the_lead_are_queued_and_those_of_agents_wait() -> None:
    sent = MessengerOfRegistry(AgentRegistry())
    pending = {
        AgentId(agent): [
            InboxItem(id=f"item-{agent}", to=AgentId(agent), content=(TextBlock(text="x"),), by="agent")
        ]
        for agent in (LEAD_ID, "a1")
    }
    sent.messenger.restore_pending_inbox_items(pending)
    item = sent.queue.take_next(LEAD_ID)
    assert item is not None
    assert item.id == "item-lead"
    assert sent.queue.take_next(AgentId("a1")) is None
    assert list(pending) == ["a1"]
