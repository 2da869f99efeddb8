"""Each setting, flag and answer that narrows what an agent may do holds in every position of an agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import create_git_repository
from item_classes import NOT_NARROWING, PROVEN_ELSEWHERE
from msgspec.structs import replace
from narrowing_cases import ITEMS, Call, NarrowingItem
from read_items import list_read_items

from agent_scripts import call_tool
from hook_helpers import AGENT_POSITIONS, HookScenario, list_results, open_hook_scenario
from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_trust import save_project_trust_decision
from shoal.core.conversation.messages import ToolUseBlock
from team_scripts import get_home

POSITIONS = tuple(each for each in AGENT_POSITIONS if each != "nested agent")
OTHER_PROCESS = AGENT_POSITIONS[-1]
# One item for each way in which a member's process gets what narrows it; `make test-slow` tries every item.
SENT_TO_PROCESSES = (
    "permissions.deny",
    "permissions.ask",
    "permissions.defaultMode plan",
    "--disallowedTools",
    "--tools",
    "shoal.agent_limits",
    "maxTurns of a definition",
    "CMP-088",
    "tools of a definition",
    "a pattern in disallowedTools, inherited",
    "disallowed-tools of the lead",
    "disallowedTools of the lead's definition",
    "a pattern in tools of the lead's definition",
    "disable-model-invocation",
    "a hook that denies",
    "shoal.sandbox.enabled",
)


def list_cases() -> list[Any]:
    return [
        pytest.param(position, name, marks=[*_list_marks(name), *_list_tier_marks(position, name)])
        for name, item in ITEMS.items()
        for position in POSITIONS
        if position not in item.skipped
    ]


def _list_marks(name: str) -> list[pytest.MarkDecorator]:
    needs = ITEMS[name].needs
    marks = [pytest.mark.needs(*needs)] if needs else []
    return [*marks, pytest.mark.spec(name)] if name.startswith("CMP-") else marks


def _list_tier_marks(position: str, name: str) -> list[pytest.MarkDecorator]:
    """Leave all positions of an item but one to the slow tests; the next item is tried in the next one."""
    if position == OTHER_PROCESS:
        return [] if name in SENT_TO_PROCESSES else [pytest.mark.slow]
    positions = [each for each in POSITIONS if each not in (OTHER_PROCESS, *ITEMS[name].skipped)]
    is_chosen = bool(positions) and position == positions[list(ITEMS).index(name) % len(positions)]
    return [] if is_chosen else [pytest.mark.slow]


def test_the_items_that_are_sent_to_processes_exist() -> None:
    cases = {tuple(case.values) for case in list_cases()}
    assert {(OTHER_PROCESS, name) for name in SENT_TO_PROCESSES} <= cases


@pytest.mark.slow
def test_every_item_that_is_read_is_classified() -> None:
    """A new item needs a case in `narrowing_cases.py`, or a line in `item_classes.py`."""
    proven = {name for item in ITEMS.values() for name in item.proves}
    classified = [*proven, *PROVEN_ELSEWHERE, *(name for names in NOT_NARROWING.values() for name in names)]
    assert {name for name in classified if classified.count(name) > 1} == set()
    assert list_read_items() ^ set(classified) == set()


@pytest.mark.parametrize("place", sorted(set(PROVEN_ELSEWHERE.values())))
def test_the_tests_that_prove_other_items_exist(place: str) -> None:
    path, _, name = place.partition("::")
    assert f"def {name}(" in (Path(__file__).parents[1] / path).read_text()


@pytest.mark.parametrize(("position", "name"), list_cases())
async def test_a_narrowing_item_holds_in_every_position(
    position: str, name: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = ITEMS[name]
    scenario = await run_item(item, position, project, monkeypatch)
    assert not is_harm_done(scenario, project)
    if position in item.not_started:
        assert scenario.worker_requests == []
        assert item.not_started[position] in "\n".join(list_results(scenario.lead_requests[-1]))
        return
    requests = scenario.worker_requests if item.starts else scenario.lead_requests
    assert item.starts or scenario.worker_requests == []
    if item.refusals:
        result = list_results(requests[-1])[-1]
        assert any(text in result for text in item.refusals), result


@pytest.mark.sampled(30)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=_list_marks(name)) for name, item in ITEMS.items() if item.without is not None],
)
async def test_without_the_item_the_call_is_run(
    name: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = ITEMS[name]
    assert item.without is not None
    bare = {"settings": {}, "options": {}, "environ": {}, "skills": dict.fromkeys(item.skills, "")}
    if item.definition is not None and not item.settings:
        bare["definition"] = {}
    position = next(each for each in ("sub-agent", "lead") if each not in item.skipped)
    scenario = await run_item(replace(item, **{**bare, **item.without}), position, project, monkeypatch)
    assert is_harm_done(scenario, project)


async def run_item(
    item: NarrowingItem, position: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> HookScenario:
    create_git_repository(project)
    (project / "lib/secrets").mkdir(parents=True)
    (project / "lib/secrets/key").write_text("the secret\n")
    for name, value in item.environ.items():
        monkeypatch.setenv(name, value)
    for name, fields in item.skills.items():
        path = get_home() / "skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\nname: {name}\ndescription: d\n{fields}\n---\nINNER: begin\n")
    if item.project_servers:
        (project / ".mcp.json").write_text(json.dumps({"mcpServers": item.project_servers}))
        save_project_trust_decision(load_settings(cwd=project), project, trusted=True)
    options: dict[str, Any] = {"skip_permissions": item.mode == "bypassPermissions", **item.options}
    if item.mode != "bypassPermissions":
        options["mode"] = item.mode
    spawn: dict[str, Any] = {}
    if item.definition is not None:
        fields = {"description": "d", "prompt": "p", **item.definition}
        path = get_home() / "agents.json"  # names in a mapping would be checked at the start
        path.write_text(json.dumps({"worker": fields}))
        options["agents"], spawn = str(path), {"subagent_type": "worker"}
    script = [*(_make_call(call, index, project) for index, call in enumerate(item.calls)), "done"]
    async with open_hook_scenario(
        position,
        project,
        monkeypatch,
        script,
        json.dumps(item.build_settings(position)),
        lead_first=[_make_call(call, index, project) for index, call in enumerate(item.lead_first)],
        inner_script=[*(_make_call(call, index, project) for index, call in enumerate(item.inner)), "done"],
        spawn=spawn,
        **options,
    ) as scenario:
        await scenario.run_session()
    return scenario


def is_harm_done(scenario: HookScenario, project: Path) -> bool:
    """Return True if a file was made that must not be made, or the secret was read."""
    made = (project / "made", project / ".git/hooks/made", project / ".husky")
    results = [text for body in scenario.all_requests for text in list_results(body)]
    return any(path.exists() for path in made) or "the secret" in "\n".join(results)


def _make_call(call: Call, number: int, project: Path) -> ToolUseBlock:
    name, arguments = call
    path = arguments.get("file_path")
    anchored = arguments if path is None else {**arguments, "file_path": str(project / path)}
    return call_tool(name, f"c{number}", **anchored)
