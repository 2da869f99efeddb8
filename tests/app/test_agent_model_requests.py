"""The model that an agent requests from its provider's server, and the model that answers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import read_events, run_all_turns
from session_helpers import collect_events, list_agent_starts, open_session
from shoal.app.runtime.event_bus import is_same_model
from shoal.core.conversation.messages import TextBlock
from shoal.core.events import ModelRequestSettled, NoteAdded
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.files.sessions.usage_summary import summarize_journal_usage
from shoal.testing import (
    MockReply,
    MockServer,
    chat_server,
    make_tool_call,
    messages_server,
    responses_server,
)

LEADS = {
    "anthropic": "claude-opus-5-5",
    "openai": "gpt-6-sol",
    "openai-responses": "gpt-6-sol",
    "ollama": "qwen3:8b",
}
"""A lead's model by provider, as the server is to be asked for it."""
PATHS = ("foreground", "background", "resumed")


def _list_messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    """List the messages; a function call item of the Responses API counts as an assistant message."""
    items = body.get("messages") or body["input"]
    return [{"role": "assistant"} if each.get("type") == "function_call" else each for each in items]


def _get_first_text(body: dict[str, Any]) -> str:
    first = next(each for each in _list_messages(body) if each.get("role") == "user")
    content = first["content"]
    return content if isinstance(content, str) else content[0]["text"]


def script_lead(lead: list[Any]) -> Any:
    """The lead plays its lines in order; every sub-agent is done at once."""

    def choose_reply(body: dict[str, Any]) -> Any:
        if not _get_first_text(body).startswith("lead"):
            return "done"
        reply_count = sum(each.get("role") == "assistant" for each in _list_messages(body))
        line = lead[min(reply_count, len(lead) - 1)]
        return line() if callable(line) else line

    return choose_reply


def list_child_models(server: MockServer) -> list[str]:
    return [
        each.body["model"] for each in server.requests if not _get_first_text(each.body).startswith("lead")
    ]


@pytest.mark.spec("DEF-06")
async def test_a_sub_agent_inherits_the_current_model_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = make_tool_call("Agent", description="d", prompt="child", subagent_type="general-purpose")
    async with messages_server(script_lead([start, "one", start, "two"])) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        async with open_session(tmp_path, "anthropic:claude-opus-5-5") as session:
            await run_all_turns(session)
            await session.set_model("anthropic:claude-sonnet-5-5")
            await run_all_turns(session, "again")
    assert list_child_models(server) == ["claude-opus-5-5", "claude-sonnet-5-5"]


@pytest.mark.spec("USR-14", "DEF-06", "AGT-01")
@pytest.mark.parametrize("provider", LEADS)
@pytest.mark.parametrize("level", ["env", "call", "definition", "inherit"])
async def test_every_sub_agent_calls_its_own_model_on_its_own_server(
    tmp_path: Path, level: str, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where something is wished for the lead runs elsewhere, and every weaker wish is for another model.
    elsewhere = "openai" if provider == "anthropic" else "anthropic"
    on = provider if level == "inherit" else elsewhere
    wishes = ["definition", "call", "env"]
    wished_levels = wishes[: wishes.index(level) + 1] if level != "inherit" else []
    wish = {each: f"{provider if each == level else elsewhere}:for-{each}:1b" for each in wished_levels}
    more: dict[str, Any] = {"model": wish["call"]} if "call" in wish else {}
    agents = {"one": {"description": "d", "prompt": "p", "model": wish.get("definition", "inherit")}}

    def start(n: int, **how: Any) -> Any:
        return make_tool_call(
            "Agent", description="d", prompt=f"child {n}", subagent_type="one", **more, **how
        )

    lines = [
        start(1),
        start(2, run_in_background=True),
        "told",
        "heard",
        lambda: make_tool_call("SendMessage", to=first, message="go on", summary="more of it"),
        "wait",
        "end",
    ]
    servers = {
        "anthropic": messages_server,
        "openai": chat_server,
        "openai-responses": responses_server,
        "ollama": chat_server,
    }
    async with AsyncExitStack() as stack:
        up = {
            name: await stack.enter_async_context(made(script_lead(lines))) for name, made in servers.items()
        }
        monkeypatch.setenv("ANTHROPIC_BASE_URL", up["anthropic"].url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        own = up["openai-responses" if provider == "openai-responses" else "openai"]
        monkeypatch.setenv("OPENAI_BASE_URL", f"{own.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-for-tests")
        monkeypatch.setenv("OLLAMA_HOST", up["ollama"].url)
        if "env" in wish:
            monkeypatch.setenv("SHOAL_SUBAGENT_MODEL", wish["env"])
        lead = f"{on}:{LEADS[on]}"
        async with open_session(tmp_path, lead, agents=agents) as session:
            await run_all_turns(session)
        first = list_agent_starts(session)[0].agent
        async with open_session(tmp_path, lead, agents=agents, resume=session.id) as session:
            await run_all_turns(session, "go on with the first")
        wanted = LEADS[on] if level == "inherit" else f"for-{level}:1b"
        assert [each.resumed for each in list_agent_starts(session)] == [False, False, True]
        requested_model = {name: list_child_models(server) for name, server in up.items()}
    assert requested_model == {name: [wanted] * len(PATHS) if name == provider else [] for name in up}


@pytest.mark.spec("USR-14")
async def test_a_resumed_fork_keeps_its_model_after_the_lead_switched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        make_tool_call("Agent", description="d", prompt="the forked part"),
        "told",
        "heard",
        lambda: make_tool_call("SendMessage", to=fork, message="go on", summary="more of it"),
        "end",
    ]
    fork = ""

    def choose_reply(body: dict[str, Any]) -> Any:
        return "done" if "the forked part" in str(body["messages"][-1]) or fork else script_lead(lines)(body)

    async with chat_server(choose_reply) as theirs, messages_server(script_lead(lines)) as new:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{theirs.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-for-tests")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", new.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        async with open_session(
            tmp_path, "openai:mine:1b", shoal_settings={"forks": True}, attended=True
        ) as session:
            await run_all_turns(session)
        fork = list_agent_starts(session)[0].agent
        before = theirs.request_count
        lead = "anthropic:claude-opus-5-5"
        async with open_session(
            tmp_path, lead, shoal_settings={"forks": True}, attended=True, resume=session.id
        ) as session:
            await run_all_turns(session, "go on with the fork")
        assert [each.resumed for each in list_agent_starts(session)] == [False, True]
        assert [each.body["model"] for each in theirs.requests[before:]] == ["mine:1b"]


@pytest.mark.spec("USR-14")
async def test_the_answering_model_is_recorded_and_a_substitute_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering_models = iter(["gpt-6-sol-2026-05-05", "cheaper-one", "cheaper-one"])

    def choose_reply(_: object) -> MockReply:
        return MockReply(content=(TextBlock(text="hi"),), model=next(answering_models))

    async with chat_server(choose_reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-for-tests")
        async with open_session(tmp_path, "openai:gpt-6-sol") as session:
            for n in range(3):
                await collect_events(session.run(f"prompt {n}"))
    events = read_events(session)
    settled = [event.model for event in events if isinstance(event, ModelRequestSettled)]
    assert settled == ["gpt-6-sol-2026-05-05", "cheaper-one", "cheaper-one"]
    notes = [event.text for event in events if isinstance(event, NoteAdded) and " answered." in event.text]
    assert notes == ["Shoal requested the model gpt-6-sol, but cheaper-one answered."]
    journal = session.runtime.store.journal
    assert isinstance(journal, FileJournal)
    assert set(summarize_journal_usage(journal.path).by_model) == {"gpt-6-sol-2026-05-05", "cheaper-one"}


@pytest.mark.spec("USR-14")
@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses"])
async def test_a_substitute_model_is_noted_for_every_provider(
    tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [make_tool_call("Agent", description="d", prompt="child"), "end"]

    def choose_reply(body: dict[str, Any]) -> Any:
        if _get_first_text(body).startswith("lead"):
            return script_lead(lines)(body)
        return MockReply(content=(TextBlock(text="hi"),), model="cheaper-one")

    servers = {"anthropic": messages_server, "openai": chat_server, "openai-responses": responses_server}
    async with servers[provider](choose_reply) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-for-tests")
        async with open_session(tmp_path, f"{provider}:{LEADS[provider]}") as session:
            await run_all_turns(session)
    (child,) = list_agent_starts(session)
    events = read_events(session)
    settled = [e.model for e in events if isinstance(e, ModelRequestSettled) and e.agent == child.agent]
    assert settled == ["cheaper-one"]
    notes = [event.text for event in events if isinstance(event, NoteAdded) and " answered." in event.text]
    assert notes == [f"Shoal requested the model {LEADS[provider]}, but cheaper-one answered."]


@pytest.mark.parametrize(
    ("requested", "answered", "same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", True),
        ("anthropic/claude-opus-4.8", "claude-opus-4.8", True),
        ("qwen3", "qwen3:latest", True),
        ("m", "", True),
        ("gpt-5", "gpt-5-mini", False),
        ("claude-opus-4", "claude-opus-4-8", False),
        ("claude-opus-5-5", "claude-haiku-5-5", False),
    ],
)
def test_a_longer_model_name_is_the_same_model_and_a_sibling_is_not(
    requested: str, answered: str, same: bool
) -> None:
    assert is_same_model(requested, answered) is same
