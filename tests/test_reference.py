"""The reference in docs is what the code says, and what it says is so."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import Any, is_typeddict

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from reference import DIRECTORY, PAGES
from reference_pages.flags import GROUPS
from reference_pages.settings import build_example, list_keys
from shoal.core.extensions.hook_events import (
    AGENT_FIELDS,
    COMMON_FIELDS,
    HOOK_EVENT_DESCRIPTIONS,
    LATER_FIELDS,
)
from shoal.core.extensions.hooks import HOOK_EVENTS
from shoal.core.permissions.questions import DenyAnswer
from shoal.surfaces.cli.command_registry import COMMANDS
from shoal.wire.hook_codec import parse_hooks_setting
from shoal.wire.settings_codec import describe_unknown_shoal_settings, parse_settings_document


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_matches_the_code(name: str) -> None:
    assert (DIRECTORY / name).read_text() == PAGES[name](), (
        f"docs/reference/{name} is old: run make reference"
    )


def test_the_reference_has_no_page_without_a_generator() -> None:
    assert {path.name for path in DIRECTORY.glob("*.md")} == set(PAGES)


def test_each_command_is_on_one_page_of_the_reference() -> None:
    assert sorted(name for group in GROUPS for name in group.commands) == sorted(COMMANDS)


def test_the_example_of_each_setting_is_valid() -> None:
    for key, _ in list_keys():
        document = parse_settings_document(
            json.dumps(build_example(key)), name="settings.json", kind="user", path=None
        )
        assert list(describe_unknown_shoal_settings(document)) == [], key
        assert parse_hooks_setting(document.raw.get("hooks", {}), document.locate_key).problems == (), key


def read_section(name: str) -> str:
    """Return the section of a public name on the page of the Python API."""
    page = (DIRECTORY / "python.md").read_text()
    if name.endswith(("Input", "HookOutput")) and f"### `shoal.{name}`" not in page:
        return page.partition("### Inputs and outputs of hooks")[2].partition("\n## ")[0]
    assert f"### `shoal.{name}`\n" in page, f"shoal.{name} is not on docs/reference/python.md"
    return page.partition(f"### `shoal.{name}`\n")[2].partition("\n### ")[0]


def list_public_members(kind: type) -> set[str]:
    """Return the fields, methods and properties of a class, found in another way than by the generator."""
    fields = set(getattr(kind, "__struct_fields__", ()))
    if is_typeddict(kind):
        return set(kind.__annotations__)
    inherited = {
        name for each in kind.__mro__ if not each.__module__.startswith("shoal.") for name in vars(each)
    }
    return fields | {name for name in dir(kind) if not name.startswith("_") and name not in inherited}


@pytest.mark.spec("API-01")
@pytest.mark.parametrize("name", shoal.__all__)
def test_each_public_name_and_its_members_are_on_the_page_of_the_python_api(name: str) -> None:
    section, value = read_section(name), getattr(shoal, name)
    if isinstance(value, type):
        missing = {
            each for each in list_public_members(value) if not re.search(rf"`[^`]*\b{each}\b", section)
        }
        assert missing == set()
        described = re.findall(r"^\| `\w+` \| .* \| (.*) \|$", section, re.MULTILINE)
        assert all(text.strip() for text in described) or name.endswith("Output"), section
    if inspect.isfunction(value):
        parameters = inspect.signature(value).parameters
        assert all(f"{each}:" in section for each in parameters)


def test_the_page_of_the_python_api_lists_each_error() -> None:
    section = read_section("errors")
    names = [name for name, each in vars(shoal.errors).items() if isinstance(each, type)]
    errors = [name for name in names if issubclass(getattr(shoal.errors, name), shoal.ShoalError)]
    assert [name for name in errors if not re.search(rf"^[│├└─ ]*{name}\b", section, re.MULTILINE)] == []


def test_examples_of_the_python_api_use_names_that_exist() -> None:
    page = (DIRECTORY / "python.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 12
    used = {name for example in examples for name in re.findall(r"\bshoal\.(\w+)", example)}
    assert used <= set(shoal.__all__)


async def test_hooks_get_the_fields_that_the_reference_lists(tmp_path: Path) -> None:
    told: dict[str, list[dict[str, Any]]] = {}

    def hear(event: dict[str, Any]) -> None:
        told.setdefault(event["hook_event_name"], []).append(event)

    async def refuse(session: shoal.Session) -> None:
        async for question in session.runtime.question_broker.watch_questions():
            session.runtime.question_broker.submit_answer(question.id, DenyAnswer(reason="no"))

    (tmp_path / "CLAUDE.md").write_text("Be kind.")
    model = script_agents(
        lead=[
            call_tool("Write", file_path="made.txt", content=""),
            [
                call_tool("Read", file_path="no.txt"),
                call_tool("TaskCreate", subject="Dig", description="A well"),
            ],
            call_tool("TaskUpdate", taskId="1", status="completed"),
            spawn_agent("sub"),
            "over",
        ],
        sub=["said"],
    )
    hooks = {event: [hear] for event in HOOK_EVENTS}
    async with shoal.open(cwd=tmp_path, model=model, hooks=hooks, attended=True, setup="init") as session:
        async with asyncio.TaskGroup() as beside:
            refusing = beside.create_task(refuse(session))
            await run_all_turns(session)
            refusing.cancel()
        await session.compact()
    untold = {"TeammateIdle", "WorktreeCreate", "WorktreeRemove"}
    untold |= {"ConfigChange", "StopFailure", "UserPromptExpansion"}
    assert set(told) == set(HOOK_EVENTS) - untold
    for name, events in told.items():
        occasion = HOOK_EVENT_DESCRIPTIONS[name]  # type: ignore[index]
        for event in events:
            needed = {*COMMON_FIELDS, *occasion.fields, *(AGENT_FIELDS if "agent_id" in event else ())}
            assert needed <= set(event) <= needed | {*occasion.optional_fields, *LATER_FIELDS}, name
