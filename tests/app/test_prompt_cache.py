"""Forks and resumed agents and sessions read from a provider's prompt cache, over real HTTP."""

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
from fork_helpers import (
    list_agent_starts,
    open_session_with_forks,
    run_to_end,
    send_message,
    spawn_agent,
    start_process,
)

import shoal
from shoal.agent.forks import FORK_MARK
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.events import ModelRequestSettled
from shoal.testing import MockServer, PrefixCache, messages_server

LEAST = 0.95
READ = ToolUseBlock(id="", name="Read", input={"file_path": "long.txt"})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    (tmp_path / "long.txt").write_text("".join(f"line {n} of a long file\n" for n in range(1_500)))
    return tmp_path


def list_user_texts(body: Any) -> list[str]:
    return [
        block["text"]
        for message in body["messages"]
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] == "text"
    ]


def find_agent_to_wake(texts: list[str]) -> str | None:
    return next((text.removeprefix("wake ") for text in texts if text.startswith("wake ")), None)


def has_sent_message(body: Any) -> bool:
    replies = (message["content"] for message in body["messages"] if message["role"] == "assistant")
    return any(block.get("name") == "SendMessage" for content in replies for block in content)


def list_usage(session: shoal.Session) -> list[tuple[str, Usage]]:
    """List the agent and usage of each request, in the order of settlement."""
    events = [recorded.event for recorded in session.runtime.store.journal.read_records()]
    return [(event.agent, event.usage) for event in events if isinstance(event, ModelRequestSettled)]


def compute_cached_share(reads: Usage, prior: Usage) -> float:
    """Return the share of the earlier request that was read from the cache."""
    return reads.cache_read_input_tokens / prior.prompt_tokens


def use_server(server: MockServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    return "anthropic:claude-sonnet-4-5"


def script_forks(jobs: int, *, fork: Callable[[Any], Any] = lambda _: "done") -> Callable[[Any], Any]:
    """The lead reads a long file and forks; on `wake X` it messages X."""

    def choose_reply(body: Any) -> Any:
        texts = list_user_texts(body)
        if any(text.startswith(FORK_MARK) for text in texts):
            return fork(body)
        if (agent := find_agent_to_wake(texts)) is not None:
            return "woken" if has_sent_message(body) else send_message(agent, "and then?")
        replies = sum(message["role"] == "assistant" for message in body["messages"])
        if replies == 0:
            return READ
        return [spawn_agent("", f"job {n}") for n in range(jobs)] if replies == 1 else "so be it"

    return choose_reply


def strip_cache_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: strip_cache_marks(part) for key, part in value.items() if key != "cache_control"}
    return [strip_cache_marks(part) for part in value] if isinstance(value, list) else value


def hash_prefix(body: Any, messages: list[Any]) -> str:
    return sha256(
        msgspec.json.encode(strip_cache_marks([body["tools"], body["system"], messages]))
    ).hexdigest()


@pytest.mark.spec("USR-21", "FRK-02")
async def test_parent_and_ten_forks_send_identical_bytes_up_to_the_fork_prompt(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        messages_server(script_forks(10), cache=PrefixCache(lookback=0)) as server,
        open_session_with_forks(project, use_server(server, monkeypatch)) as session,
    ):
        await run_to_end(session, "look at it")
    bodies = [request.body for request in server.requests]
    forks = [body for body in bodies if any(text.startswith(FORK_MARK) for text in list_user_texts(body))]
    parent = next(body for body in bodies[2:] if body not in forks)
    assert len(forks) == 10
    # All messages of the parent up to the reply that forked.
    hashes = {hash_prefix(body, body["messages"][:4]) for body in (parent, *forks)}
    assert len(hashes) == 1
    # And the placeholders: everything but the last text.
    siblings = {
        hash_prefix(body, [*body["messages"][:4], body["messages"][4]["content"][:-1]]) for body in forks
    }
    assert len(siblings) == 1
    assert len({body["messages"][4]["content"][-1]["text"] for body in forks}) == 10
    assert {len(body["messages"]) for body in forks} == {5}
    marks = [str(body).count("cache_control") for body in bodies]
    assert max(marks) <= 4


@pytest.mark.spec("USR-21", "FRK-02")
async def test_a_fork_reads_the_requests_of_parent_and_sibling_from_the_cache(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        messages_server(script_forks(3), cache=PrefixCache(lookback=0)) as server,
        open_session_with_forks(project, use_server(server, monkeypatch)) as session,
    ):
        await run_to_end(session, "look at it")
        settled = list_usage(session)
    prior = settled[1][1]
    assert prior.prompt_tokens > 8_000
    forks = [usage for agent, usage in settled if agent != "lead"]
    assert len(forks) == 3
    assert all(compute_cached_share(usage, prior) >= LEAST for usage in forks)

    one_by_one = PrefixCache(lookback=0)
    bodies = [request.body for request in server.requests]
    one_by_one.charge_request(bodies[1], 1)
    first, second = [
        one_by_one.charge_request(body, 1)
        for body in bodies
        if list_user_texts(body)[-1].startswith(FORK_MARK)
    ][:2]
    assert second.cache_read_input_tokens > first.cache_read_input_tokens
    assert second.cache_creation_input_tokens < first.cache_creation_input_tokens


@pytest.mark.spec("USR-21")
@pytest.mark.parametrize("persist", [True, False])
async def test_a_resumed_fork_reads_its_earlier_request_from_the_cache(
    project: Path, monkeypatch: pytest.MonkeyPatch, *, persist: bool
) -> None:
    async with (
        messages_server(script_forks(1), cache=PrefixCache(lookback=0)) as server,
        open_session_with_forks(project, use_server(server, monkeypatch), persist=persist) as session,
    ):
        (fork,) = list_agent_starts(await run_to_end(session, "look at it"))
        await run_to_end(session, f"wake {fork.agent}")
        first, second = (usage for agent, usage in list_usage(session) if agent == fork.agent)
    assert compute_cached_share(second, first) >= LEAST


def choose_worker_reply(body: Any) -> Any:
    """The agent reads a long file and reports; the lead starts it, and messages it on `wake X`."""
    texts = list_user_texts(body)
    if (agent := find_agent_to_wake(texts)) is not None:
        return "woken" if has_sent_message(body) else send_message(agent, "and then?")
    replies = sum(message["role"] == "assistant" for message in body["messages"])
    if "read it" in texts[0]:
        return "reported" if replies else READ
    return (
        "so be it" if replies else spawn_agent("", "read it", subagent_type="general-purpose", effort="low")
    )


@pytest.mark.spec("USR-21")
@pytest.mark.parametrize("choose_reply", [script_forks(1), choose_worker_reply])
async def test_an_agent_resumed_in_a_later_process_and_its_lead_read_from_the_cache(
    project: Path, monkeypatch: pytest.MonkeyPatch, choose_reply: Callable[[Any], Any]
) -> None:
    async with messages_server(choose_reply, cache=PrefixCache(lookback=0)) as server:
        model = use_server(server, monkeypatch)
        async with open_session_with_forks(project, model) as session:
            (child,) = list_agent_starts(await run_to_end(session, "look at it"))
            before = len(list_usage(session))
        again = await start_process(project, model, f"wake {child.agent}", session=session.id)
        assert await again.wait() == 0
        settled = list_usage(session)
    lead = [usage for agent, usage in settled if agent == "lead"]
    in_first = sum(agent == "lead" for agent, _ in settled[:before])
    assert compute_cached_share(lead[in_first], lead[in_first - 1]) >= LEAST
    *_, prior, woken = (usage for agent, usage in settled if agent == child.agent)
    assert compute_cached_share(woken, prior) >= LEAST


@pytest.mark.spec("FRK-07", "USR-21")
async def test_a_side_question_reads_the_conversation_from_the_cache(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose_reply(body: Any) -> Any:
        return "words" if len(body["messages"]) > 1 else READ

    async with (
        messages_server(choose_reply, cache=PrefixCache(lookback=0)) as server,
        open_session_with_forks(project, use_server(server, monkeypatch)) as session,
    ):
        await run_to_end(session, "look at it")
        assert await session.ask_side_question("its content?") == "words"
        assert await session.suggest_prompt() == "words"
        await session.compact()
        _, prior, aside, proposal, summary = (usage for _, usage in list_usage(session))
    assert compute_cached_share(aside, prior) >= LEAST
    assert compute_cached_share(proposal, prior) >= LEAST
    assert compute_cached_share(summary, prior) >= LEAST


@pytest.mark.spec("USR-21")
async def test_a_fork_of_a_killed_process_resumes_with_the_same_prefix(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work = asyncio.Event()

    async def fork(body: Any) -> str:
        if not at_work.is_set():
            at_work.set()
            await asyncio.Event().wait()
        return "done"

    async with messages_server(script_forks(1, fork=fork), cache=PrefixCache(lookback=0)) as server:
        model = use_server(server, monkeypatch)
        first = await start_process(project, model, "look at it")
        async with asyncio.timeout(20):
            await at_work.wait()
        os.killpg(first.pid, signal.SIGKILL)
        await first.wait()
        (meta,) = Path(os.environ["SHOAL_HOME"]).glob("projects/*/*/subagents/agent-*.meta.json")
        session, agent = meta.parent.parent.name, meta.name.removeprefix("agent-").removesuffix(".meta.json")
        second = await start_process(project, model, f"wake {agent}", session=session)
        assert await second.wait() == 0
    bodies = [request.body for request in server.requests]
    begun, woken = [
        body for body in bodies if any(text.startswith(FORK_MARK) for text in list_user_texts(body))
    ]
    length = len(begun["messages"])
    assert hash_prefix(woken, woken["messages"][: length - 1]) == hash_prefix(begun, begun["messages"][:-1])
    directive, message = list_user_texts(woken)[-2:]
    assert directive == list_user_texts(begun)[-1]
    assert "and then?" in message
