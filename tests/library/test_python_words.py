"""Errors that a Python program gets name options of `shoal.open`, never flags of the command line."""

from __future__ import annotations

import ast
import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.app.agents.option_words import name_options_in_text
from shoal.app.library.library_session import LibrarySession
from shoal.app.options import Options

SOURCES = Path(shoal.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")
COMMAND = re.compile(
    r"\b(?:git|createdb|shoal (?:trust|setup|doctor|cluster|worktree)|run shoal doctor)\b[^.;:]*--"
)
OTHER_FLAGS = {
    "app/clusters/cluster_report.py",  # `shoal cluster`
    "app/models/provider_setup.py",  # `shoal setup`
    "app/reports/mcp_report.py",  # `shoal mcp`
    "app/skills/claude_commands.py",  # commands at the prompt
    "app/settings/claude_keys.py",  # `shoal doctor`
    "wire/launch_args_codec.py",  # arguments of member processes
    "workspaces/worktree_maintenance.py",  # `shoal worktree`
}
"""Modules whose texts are about other commands, which have no option of a session."""


def iter_error_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that may be part of an error."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Raise):
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.lineno, each.value


@pytest.mark.spec("API-07")
def test_each_flag_in_a_text_of_the_library_has_an_option() -> None:
    left: list[str] = []
    packages = ("app", "core", "runs", "agent", "team", "models", "stores", "wire")
    for path in (path for name in packages for path in sorted((SOURCES / name).rglob("*.py"))):
        name = path.relative_to(SOURCES).as_posix()
        if name in OTHER_FLAGS or name.startswith(("app/doctor/", "app/demo/", "app/run_access/")):
            continue
        for line, text in iter_error_texts(path):
            translated = name_options_in_text(text)
            is_sentence = " " in text.strip() and not text.startswith("--format")
            if is_sentence and FLAG.search(translated) and not COMMAND.search(translated):
                left.append(f"{name}:{line}: {text}")
    assert left == []


class Unpriced(shoal.ScriptedModel):
    """A model whose session can be opened again and again."""

    def __init__(self) -> None:
        super().__init__(lambda _: "ok")


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"settings": "nowhere.json"}, r"settings= takes a file path or JSON"),
    ({"settings": {"shoal": {"max_requests": "x"}}}, r"^settings=: shoal.max_requests: expected an integer"),
    ({"settings": {"agent": "nobody"}}, r"^settings=: agent: There is no agent 'nobody'"),
    ({"agent": "nobody"}, r"^agent=: There is no agent 'nobody'"),
    ({"allowed_tools": ["Read"], "disallowed_tools": ["Read"]}, r"both allowed_tools= and disallowed_tools="),
    ({"disallowed_tools": ["Bsh"]}, r"disallowed_tools: the rule Bsh"),
    ({"agents": {"a": {"prompt": "x", "tools": 3}}}, r"agents="),
    ({"agents": "nowhere.json"}, r"agents="),
    ({"channels": ["crane"]}, r"channels="),
    ({"plugin_dirs": ["nowhere"]}, r"^plugin_dirs="),
    ({"add_dirs": ["nowhere"]}, r"^add_dirs="),
    ({"mcp_config": ["nowhere.json"]}, r"^mcp_config= takes JSON or a file path"),
    ({"fallback_model": "nothing"}, r"^fallback_model=: There is no model 'nothing'"),
    ({"fallback_model": "sonet"}, r"Did you mean .*sonnet"),
    ({"resume": "nothing"}, r"shoal.open\(continue_last=True\)"),
]


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("options", "problem"), WRONG_OPTIONS)
async def test_an_error_at_open_names_the_option(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(shoal.ShoalError, match=problem) as caught:
        async with shoal.open(cwd=tmp_path, model=Unpriced(), **options):
            pytest.fail("The session opened.")
    assert not FLAG.search(str(caught.value))


@pytest.mark.spec("API-07")
async def test_an_error_of_a_method_of_a_session_names_the_option(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=Unpriced()) as session:
        with pytest.raises(shoal.SettingsError, match="Start it with skip_permissions=, or set"):
            session.set_mode("bypassPermissions")


@pytest.mark.spec("API-07")
async def test_an_error_about_a_session_that_is_open_names_the_option(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=Unpriced()) as session:
        await session.run("hi")
        with pytest.raises(shoal.ShoalError, match="fork=") as caught:
            async with shoal.open(cwd=tmp_path, model=Unpriced(), resume=session.id):
                pytest.fail("The session opened twice.")
    assert not FLAG.search(str(caught.value))


@pytest.mark.spec("API-07")
async def test_notes_at_open_name_the_option(tmp_path: Path) -> None:
    settings = {"cleanupPeriodDays": 0}
    async with shoal.open(cwd=tmp_path, model=Unpriced(), settings=settings) as session:
        (note,) = [note for note in session.notes if "cleanupPeriodDays" in note]
    assert note.startswith("settings=:")


@pytest.mark.spec("API-07")
async def test_a_command_that_a_rule_of_the_program_forbids_names_the_option(tmp_path: Path) -> None:
    @shoal.workflow
    async def touch(flow: shoal.Workflow) -> None:
        await flow.shell("touch made")

    rules = [shoal.ToolRule("Bash(touch:*)")]
    async with shoal.open(cwd=tmp_path, model=Unpriced(), disallowed_tools=rules) as session:
        with pytest.raises(shoal.errors.WorkflowError, match="disallowed_tools=") as caught:
            await touch.run(session)
    assert not FLAG.search(str(caught.value))


@pytest.mark.spec("API-07")
async def test_an_agent_that_a_rule_of_the_program_forbids_names_the_option(tmp_path: Path) -> None:
    @shoal.workflow
    async def plan(flow: shoal.Workflow) -> None:
        await flow.agent("Plan", "Plan it.")

    async with shoal.open(cwd=tmp_path, model=Unpriced(), disallowed_tools=["Agent"]) as session:
        with pytest.raises(shoal.errors.WorkflowError, match="disallowed_tools=") as caught:
            await plan.run(session)
    assert not FLAG.search(str(caught.value))


@pytest.mark.spec("API-07")
async def test_a_team_that_is_open_elsewhere_is_not_offered_an_option_that_teams_do_not_have(
    tmp_path: Path,
) -> None:
    ana = shoal.Agent("ana", prompt="You write.")
    team = await shoal.Team("repair", members=[ana], cwd=tmp_path, model=Unpriced()).open()
    try:
        with pytest.raises(shoal.ShoalError, match=r"is in use by .* Wait until process .* ends") as caught:
            await shoal.Team.resume("repair", model=Unpriced())
    finally:
        await team.close()
    assert "fork" not in str(caught.value)


@pytest.mark.spec("API-07")
async def test_a_command_that_resumes_a_workflow_is_not_offered_a_copy_without_it(tmp_path: Path) -> None:
    @shoal.workflow
    async def wait(flow: shoal.Workflow) -> str:
        return "done"

    async with shoal.open(cwd=tmp_path, model=Unpriced()) as session:
        await wait.run(session)
        options = Options(cwd=tmp_path, resume=session.id)
        with pytest.raises(shoal.ShoalError, match=r"Wait until .* ends, or stop it") as by_command:
            async with LibrarySession[Any](options, by_command=True):
                pytest.fail("The session opened.")
        with pytest.raises(shoal.ShoalError, match="without its workflows, use fork=") as by_program:
            async with shoal.open(cwd=tmp_path, model=Unpriced(), resume=session.id):
                pytest.fail("The session opened.")
    assert "fork" not in str(by_command.value)
    assert not FLAG.search(str(by_program.value))


@pytest.mark.spec("API-09")
async def test_what_a_session_without_a_home_variable_uses_is_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (SOURCES.parents[1] / "docs" / "reference" / "python.md").read_text()
    (row,) = set(re.findall(r"^\| `environ` \| .*$", page, re.MULTILINE))
    assert "`HOME`, by default the home directory of the account" in row

    @shoal.workflow
    async def show(flow: shoal.Workflow) -> str:
        return (await flow.shell('echo "$HOME:$XDG_CONFIG_HOME:$TMPDIR"')).text

    monkeypatch.setenv("HOME", str(tmp_path / "process"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    environ = {"PATH": os.environ["PATH"], "IS_SANDBOX": "1", "TMPDIR": str(tmp_path)}
    options: Any = {"cwd": tmp_path, "home": tmp_path / "home", "model": Unpriced()}
    async with shoal.open(**options, environ=environ, mode="bypassPermissions") as session:
        account_home = pwd.getpwuid(os.getuid()).pw_dir
        assert (await show.run(session)).strip() == f"{account_home}::{tmp_path}"


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("prompt", "options"),
    [("go", {"mode": "plam"}), ("go", {"available_tools": ["Reda"]}), ("go", {"on_event": 5}), ("", {})],
)
async def test_an_error_names_the_function_that_the_program_called(
    tmp_path: Path, prompt: str, options: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"cwd": tmp_path, "model": shoal.ScriptedModel(["done"]), **options}
    with pytest.raises((shoal.SettingsError, TypeError, ValueError)) as awaited:
        await shoal.run(prompt, **given)
    with pytest.raises((shoal.SettingsError, TypeError, ValueError)) as called:
        shoal.run_sync(prompt, **given)
    assert str(awaited.value).startswith("shoal.run")
    assert str(called.value) == str(awaited.value).replace("shoal.run", "shoal.run_sync", 1)
