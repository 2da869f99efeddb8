"""`shoal hooks`: hooks with their origin and trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reply_scripts import YES, script_replies
from shoal_process import ShoalProgram

from shoal.testing import messages_server

HOOK = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}]}


@pytest.fixture
def untrusted_project(project: Path) -> Path:
    directory = project / ".claude"
    (directory / "agents").mkdir(parents=True)
    (directory / "settings.json").write_text(json.dumps({"hooks": {**HOOK, "Nonsense": []}}, indent=1))
    front = json.dumps({"name": "guarded", "description": "d", "hooks": {"Stop": HOOK["PreToolUse"]}})
    (directory / "agents/guarded.md").write_text(f"---\n{front}\n---\nWork.\n")
    return directory


async def list_hooks(shoal: ShoalProgram) -> list[dict[str, Any]]:
    hooks: list[dict[str, Any]] = json.loads((await shoal("hooks", "ls", "--json")).out)["hooks"]
    return hooks


async def test_the_hook_list_without_hooks_names_the_settings_to_write(shoal: ShoalProgram) -> None:
    ran = await shoal("hooks", "ls")
    assert (ran.code, "settings" in ran.text) == (0, True)


@pytest.mark.spec("HOK-01")
async def test_hooks_are_listed_with_their_origin_and_untrusted_ones_are_marked(
    shoal: ShoalProgram, untrusted_project: Path, home: Path
) -> None:
    home.mkdir(exist_ok=True)
    own = {"Stop": [{"hooks": [{"type": "http", "url": "http://127.0.0.1:9/x", "timeout": 3}]}]}
    (home / "settings.json").write_text(json.dumps({"hooks": own}))
    mine, theirs, agents = await list_hooks(shoal)
    assert mine == {
        "event": "Stop",
        "matcher": "",
        "type": "http",
        "does": "http://127.0.0.1:9/x",
        "timeout": 3.0,
        "background": False,
        "rewakes": False,
        "origin": f"{home / 'settings.json'}:1",
        "agent": "",
        "trusted": True,
    }
    assert (theirs["does"], theirs["trusted"]) == ("./check.sh", False)
    assert theirs["origin"] == f"{untrusted_project / 'settings.json'}:7"
    assert (agents["agent"], agents["event"], agents["trusted"]) == ("guarded", "SubagentStop", False)
    ran = await shoal("hooks", "ls")
    assert ran.text.count("not trusted") == 3
    assert "Nonsense: unknown event" in ran.text

    listing = json.loads((await shoal("trust", "--show", "--json")).out)["settings"]
    assert [row["key"] for row in listing] == ["hooks", "hooks"]
    assert (await shoal("trust")).code == 0
    assert all(row["trusted"] for row in await list_hooks(shoal))
    assert (await shoal("trust", "--revoke")).code == 0
    assert [row["trusted"] for row in await list_hooks(shoal)] == [True, False, False]


async def test_background_hooks_are_marked_and_one_that_cannot_decide_gets_a_warning(
    shoal: ShoalProgram, home: Path
) -> None:
    home.mkdir(exist_ok=True)

    def entry(command: str, **more: Any) -> list[Any]:
        return [{"hooks": [{"type": "command", "command": command, **more}]}]

    own = {
        "PreToolUse": entry("./guard.sh", **{"async": True}),
        "PostToolUse": entry("./tests.sh", asyncRewake=True),
        "Stop": entry("./plain.sh"),
    }
    (home / "settings.json").write_text(json.dumps({"hooks": own}))
    rows = await list_hooks(shoal)
    assert [(row["background"], row["rewakes"]) for row in rows] == [
        (True, False),
        (True, True),
        (False, False),
    ]
    text = (await shoal("hooks", "ls")).text
    assert "./guard.sh  async  " in text
    assert "./tests.sh  async, rewakes  " in text
    assert "./plain.sh  /" in text
    assert text.count("it cannot decide anything") == 1


@pytest.mark.spec("QUE-03", "QUE-04")
async def test_a_headless_run_waits_for_a_waking_hook_and_processes_its_output(
    shoal: ShoalProgram, home: Path
) -> None:
    home.mkdir(exist_ok=True)
    # Long enough for the lead to rest by then.
    tests = "sleep 0.5; echo 3 tests fail >&2; exit 2"
    hook = {"type": "command", "command": tests, "asyncRewake": True}
    own = {"PostToolUse": [{"matcher": "Glob", "hooks": [hook]}]}
    (home / "settings.json").write_text(json.dumps({"hooks": own}))
    steps = script_replies(
        {"match": "3 tests fail", "text": "mended"},
        {"match": "begin", "tools": [{"name": "Glob", "input": {"pattern": "*"}}]},
        {"match": "", "text": "looked"},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "begin", *YES)
    assert (ran.code, ran.text.strip().splitlines()[-1]) == (0, "mended")


@pytest.mark.spec("CMP-040")
async def test_the_default_timeout_depends_on_the_event_and_the_type(shoal: ShoalProgram, home: Path) -> None:
    command, prompt = {"type": "command", "command": "x"}, {"type": "prompt", "prompt": "x"}
    home.mkdir(exist_ok=True)
    hooks = {
        event: [{"hooks": [command, prompt]}] for event in ("PreToolUse", "UserPromptSubmit", "SessionEnd")
    }
    (home / "settings.json").write_text(json.dumps({"hooks": hooks}))
    found = {(hook["event"], hook["type"]): hook["timeout"] for hook in await list_hooks(shoal)}
    assert found == {
        ("PreToolUse", "command"): 600.0,
        ("PreToolUse", "prompt"): 30.0,
        ("UserPromptSubmit", "command"): 30.0,
        ("UserPromptSubmit", "prompt"): 30.0,
        ("SessionEnd", "command"): 5.0,
        ("SessionEnd", "prompt"): 5.0,
    }


async def test_a_hook_of_a_plug_in_is_listed_as_its_author_wrote_it(shoal: ShoalProgram, home: Path) -> None:
    root = home / "plugins/it's mine"
    (root / ".claude-plugin").mkdir(parents=True)
    (root / "hooks").mkdir()
    (root / ".claude-plugin/plugin.json").write_text('{"name": "mine"}')
    commands = ["${CLAUDE_PLUGIN_ROOT}/check", "ls ${CLAUDE_PLUGIN_DATA}"]
    hidden = "export CLAUDE_PLUGIN_ROOT=$(touch /tmp/x) CLAUDE_PLUGIN_DATA=y; ls"
    actions = [{"type": "command", "command": command} for command in (*commands, hidden)]
    (root / "hooks/hooks.json").write_text(json.dumps({"hooks": {"Stop": [{"hooks": actions}]}}))
    assert [each["does"] for each in await list_hooks(shoal)] == [*commands, hidden]
