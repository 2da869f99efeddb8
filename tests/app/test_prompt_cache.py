"""What forks, wakes and resumed sessions read from a provider's prompt cache, over real HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fork_kit import agent_call, in_process, message_to, open_forking, started, through

import shoal
from shoal.agent.forking import MARK
from shoal.core.events import RequestSettled
from shoal.core.messages import ToolUse
from shoal.core.usage import Usage
from shoal.stores.files.journal import FileJournal, read_journal
from shoal.testing import MockServer, PrefixCache, messages_server

LEAST = 0.95
READ = ToolUse(id="", name="Read", input={"file_path": "long.txt"})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    (tmp_path / "long.txt").write_text("".join(f"line {n} of a long file\n" for n in range(1_500)))
    return tmp_path


def texts(body: Any) -> list[str]:
    return [
        block["text"]
        for message in body["messages"]
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] == "text"
    ]


def to_wake(said: list[str]) -> str | None:
    return next((text.removeprefix("wake ") for text in said if text.startswith("wake ")), None)


def has_sent(body: Any) -> bool:
    replies = (message["content"] for message in body["messages"] if message["role"] == "assistant")
    return any(block.get("name") == "SendMessage" for content in replies for block in content)


def used(session: shoal.Session) -> list[tuple[str, Usage]]:
    """Whose request, and what it used, in the order in which they were settled."""
    journal = session.parts.journal
    events = (
        [recorded.event for recorded in read_journal(journal.path)]
        if isinstance(journal, FileJournal)
        else journal.events  # type: ignore[attr-defined]
    )
    return [(event.agent, event.usage) for event in events if isinstance(event, RequestSettled)]


def share(reads: Usage, prior: Usage) -> float:
    """How much of what was sent before is read from the cache."""
    return reads.cache_read_input_tokens / prior.prompt_tokens


def at(server: MockServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    return "anthropic:claude-sonnet-4-5"


def forking(jobs: int, *, fork: Callable[[Any], Any] = lambda _: "done") -> Callable[[Any], Any]:
    """Reads a long file, forks, and is content; told `wake X`, it writes to X."""

    def mind(body: Any) -> Any:
        said = texts(body)
        if any(text.startswith(MARK) for text in said):
            return fork(body)
        if (agent := to_wake(said)) is not None:
            return "woken" if has_sent(body) else message_to(agent, "and then?")
        replies = sum(message["role"] == "assistant" for message in body["messages"])
        if replies == 0:
            return READ
        return [agent_call("", f"job {n}") for n in range(jobs)] if replies == 1 else "so be it"

    return mind


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(part) for key, part in value.items() if key != "cache_control"}
    return [unmarked(part) for part in value] if isinstance(value, list) else value


def prefix_hash(body: Any, messages: list[Any]) -> str:
    return sha256(msgspec.json.encode(unmarked([body["tools"], body["system"], messages]))).hexdigest()


@pytest.mark.spec("USR-21", "FRK-02")
async def test_parent_and_ten_forks_send_the_same_bytes_up_to_the_directive(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        messages_server(forking(10), cache=PrefixCache(lookback=0)) as server,
        open_forking(project, at(server, monkeypatch)) as session,
    ):
        await through(session, "look at it")
    bodies = [request.body for request in server.requests]
    forks = [body for body in bodies if any(text.startswith(MARK) for text in texts(body))]
    parent = next(body for body in bodies[2:] if body not in forks)
    assert len(forks) == 10
    # All the parent said and heard up to the reply that forked.
    hashes = {prefix_hash(body, body["messages"][:4]) for body in (parent, *forks)}
    assert len(hashes) == 1
    # And the placeholders: everything but the last text.
    siblings = {
        prefix_hash(body, [*body["messages"][:4], body["messages"][4]["content"][:-1]]) for body in forks
    }
    assert len(siblings) == 1
    assert len({body["messages"][4]["content"][-1]["text"] for body in forks}) == 10
    assert {len(body["messages"]) for body in forks} == {5}
    marks = [str(body).count("cache_control") for body in bodies]
    assert max(marks) <= 4


@pytest.mark.spec("USR-21", "FRK-02")
async def test_a_fork_reads_what_its_parent_sent_and_its_sibling_from_the_cache(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        messages_server(forking(3), cache=PrefixCache(lookback=0)) as server,
        open_forking(project, at(server, monkeypatch)) as session,
    ):
        await through(session, "look at it")
        settled = used(session)
    prior = settled[1][1]
    assert prior.prompt_tokens > 8_000
    forks = [usage for agent, usage in settled if agent != "lead"]
    assert len(forks) == 3
    assert all(share(usage, prior) >= LEAST for usage in forks)

    one_by_one = PrefixCache(lookback=0)
    bodies = [request.body for request in server.requests]
    one_by_one.usage(bodies[1], 1)
    first, second = [one_by_one.usage(body, 1) for body in bodies if texts(body)[-1].startswith(MARK)][:2]
    assert second.cache_read_input_tokens > first.cache_read_input_tokens
    assert second.cache_creation_input_tokens < first.cache_creation_input_tokens


@pytest.mark.spec("USR-21")
@pytest.mark.parametrize("kept", [True, False])
async def test_a_woken_fork_reads_what_it_sent_before_from_the_cache(
    project: Path, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    async with (
        messages_server(forking(1), cache=PrefixCache(lookback=0)) as server,
        open_forking(project, at(server, monkeypatch), persist=kept) as session,
    ):
        (fork,) = started(await through(session, "look at it"))
        await through(session, f"wake {fork.agent}")
        first, second = (usage for agent, usage in used(session) if agent == fork.agent)
    assert share(second, first) >= LEAST


def working(body: Any) -> Any:
    """An agent that is named reads a long file and reports; the lead starts one, and wakes it when told."""
    said = texts(body)
    if (agent := to_wake(said)) is not None:
        return "woken" if has_sent(body) else message_to(agent, "and then?")
    replies = sum(message["role"] == "assistant" for message in body["messages"])
    if "read it" in said[0]:
        return "reported" if replies else READ
    return "so be it" if replies else agent_call("", "read it", subagent_type="general-purpose", effort="low")


@pytest.mark.spec("USR-21")
@pytest.mark.parametrize("mind", [forking(1), working])
async def test_an_agent_woken_in_a_later_process_and_its_lead_read_from_the_cache(
    project: Path, monkeypatch: pytest.MonkeyPatch, mind: Callable[[Any], Any]
) -> None:
    async with messages_server(mind, cache=PrefixCache(lookback=0)) as server:
        model = at(server, monkeypatch)
        async with open_forking(project, model) as session:
            (child,) = started(await through(session, "look at it"))
            before = len(used(session))
        again = await in_process(project, model, f"wake {child.agent}", session=session.id)
        assert await again.wait() == 0
        settled = used(session)
    lead = [usage for agent, usage in settled if agent == "lead"]
    in_first = sum(agent == "lead" for agent, _ in settled[:before])
    assert share(lead[in_first], lead[in_first - 1]) >= LEAST
    *_, prior, woken = (usage for agent, usage in settled if agent == child.agent)
    assert share(woken, prior) >= LEAST


@pytest.mark.spec("FRK-07", "USR-21")
async def test_a_side_question_reads_the_conversation_from_the_cache(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mind(body: Any) -> Any:
        return "words" if len(body["messages"]) > 1 else READ

    async with (
        messages_server(mind, cache=PrefixCache(lookback=0)) as server,
        open_forking(project, at(server, monkeypatch)) as session,
    ):
        await through(session, "look at it")
        assert await session.ask_aside("what is in it?") == "words"
        assert await session.suggest() == "words"
        await session.compact()
        _, prior, aside, proposal, summary = (usage for _, usage in used(session))
    assert share(aside, prior) >= LEAST
    assert share(proposal, prior) >= LEAST
    assert share(summary, prior) >= LEAST


@pytest.mark.spec("USR-21")
async def test_a_fork_whose_process_was_killed_goes_on_with_its_job_and_the_same_prefix(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work = asyncio.Event()

    async def fork(body: Any) -> str:
        if not at_work.is_set():
            at_work.set()
            await asyncio.Event().wait()
        return "done"

    async with messages_server(forking(1, fork=fork), cache=PrefixCache(lookback=0)) as server:
        model = at(server, monkeypatch)
        first = await in_process(project, model, "look at it")
        async with asyncio.timeout(20):
            await at_work.wait()
        os.killpg(first.pid, signal.SIGKILL)
        await first.wait()
        (meta,) = Path(os.environ["SHOAL_HOME"]).glob("projects/*/*/subagents/agent-*.meta.json")
        session, agent = meta.parent.parent.name, meta.name.removeprefix("agent-").removesuffix(".meta.json")
        second = await in_process(project, model, f"wake {agent}", session=session)
        assert await second.wait() == 0
    bodies = [request.body for request in server.requests]
    begun, woken = [body for body in bodies if any(text.startswith(MARK) for text in texts(body))]
    length = len(begun["messages"])
    assert prefix_hash(woken, woken["messages"][: length - 1]) == prefix_hash(begun, begun["messages"][:-1])
    directive, message = texts(woken)[-2:]
    assert directive == texts(begun)[-1]
    assert "and then?" in message
