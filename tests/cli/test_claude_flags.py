"""Flags and commands of Claude Code that only add convenience never keep Shoal from starting."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from reply_scripts import get_prompt_text
from shoal_process import ShoalProgram

from shoal.surfaces.cli.argument_list import OTHER_FLAGS
from shoal.surfaces.cli.comfort_flags import COMFORT_FLAGS
from shoal.surfaces.cli.flags import options_from_flags
from shoal.surfaces.cli.main import root_command, run_command_line
from shoal.testing import messages_server
from shoal.testing.servers import MockServer, run_in_thread

PAGE = Path(__file__).parents[2] / "docs/how-to/move-from-claude-code.md"


@pytest.fixture
def server(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MockServer]:
    monkeypatch.chdir(project)
    with run_in_thread(messages_server(lambda _: "done")) as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        yield running


@pytest.mark.spec("CMP-098")
def test_flags_for_convenience_are_accepted_with_one_note_each(
    server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"none": (), "required": ("x",), "switch": ("true",)}
    words = [word for flag in COMFORT_FLAGS for word in (flag.name, *values[flag.value])]
    assert run_command_line(["-p", *words, "hello"]) == 0
    printed = capsys.readouterr().err
    for flag in COMFORT_FLAGS:
        assert printed.count(f"{flag.name} has no effect: {flag.advice}.") == 1
    assert get_prompt_text(server, -1) == "hello"
    assert run_command_line(["-p", "hello", "--quiet", *words]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.spec("CMP-098")
def test_a_switch_takes_no_prompt_as_its_value(
    server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["-p", "--prompt-suggestions", "Count the lines"]) == 0
    assert get_prompt_text(server, -1) == "Count the lines"
    assert "--prompt-suggestions has no effect" in capsys.readouterr().err
    assert run_command_line(["-p", "--prompt-suggestions", "false", "Count the lines"]) == 0
    assert get_prompt_text(server, -1) == "Count the lines"
    assert "--prompt-suggestions" not in capsys.readouterr().err


@pytest.mark.spec("CMP-098")
def test_a_task_budget_is_a_limit_and_the_lower_one_applies(
    server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, limit in (
        (["--task-budget", "500"], 500),
        (["--task-budget", "500", "--max-total-tokens", "400"], 400),
        ([], None),
    ):
        with click.Context(root_command) as context:
            root_command.parse_args(context, words)
            assert options_from_flags(context.params, attended=False).max_total_tokens == limit
    assert run_command_line(["-p", "hello", "--task-budget", "500"]) == 0
    printed = capsys.readouterr().err
    assert "Shoal treats --task-budget as a limit: the run stops after 500 tokens." in printed
    assert run_command_line(["-p", "hello", "--task-budget", "0"]) == 2


@pytest.mark.spec("CMP-098")
@pytest.mark.parametrize(
    "flag", ["--plugin-url", "--permission-prompts", "--resume-session-at", "--autocompact", "--brief"]
)
def test_a_flag_that_would_change_the_run_is_refused(
    server: MockServer, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    assert run_command_line(["-p", "hello", f"{flag}=x"]) == 2
    assert f"Shoal has no {flag}: {OTHER_FLAGS[flag]}." in capsys.readouterr().err
    assert not server.requests


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("mcp add-from-claude-desktop", "shoal mcp add-json"),
        ("config set -g theme dark", "Write the setting in ~/.claude/settings.json"),
        ("config add permissions.allow Read", "shoal config show --origin"),
        ("config remove permissions.allow Read", "shoal config show --origin"),
        ("plugin i tidy", "claude plugin install"),
    ],
)
def test_a_subcommand_of_claude_code_is_explained(
    capsys: pytest.CaptureFixture[str], words: str, advice: str
) -> None:
    assert run_command_line(words.split()) == 2
    printed = capsys.readouterr().err
    assert f"Shoal has no command '{' '.join(words.split()[:2])}'." in printed
    assert advice in printed


def test_the_page_lists_every_flag() -> None:
    page = PAGE.read_text(encoding="utf-8")
    accepted = dict(re.findall(r"^\| `(--[\w-]+)` \| no effect \| (.*) \|$", page, re.MULTILINE))
    refused = dict(re.findall(r"^\| `(--[\w-]+)` \| refused \| (.*) \|$", page, re.MULTILINE))
    assert accepted == {flag.name: flag.advice for flag in COMFORT_FLAGS}
    assert refused == OTHER_FLAGS


@pytest.mark.spec("CMP-099")
async def test_settings_are_listed_and_read_by_the_names_of_claude_code(
    shoal: ShoalProgram, home: Path, project: Path
) -> None:
    own = {"theme": "dark", "model": "opus", "env": {"X_TOKEN": "abc"}, "permissions": {"allow": ["Read"]}}
    (home / "settings.json").write_text(json.dumps(own))
    (project / ".claude").mkdir(exist_ok=True)
    (project / ".claude/settings.json").write_text('{"theme": "light", "permissions": {"deny": ["Bash"]}}')

    async def run(*words: str) -> str:
        return (await shoal("config", *words)).out.decode().strip()

    assert [await run("get", *words) for words in (("theme",), ("-g", "theme"), ("theme", "--global"))] == [
        "light",
        "dark",
        "dark",
    ]
    assert (await run("get", "permissions.deny"), await run("get", "-g", "permissions.deny")) == (
        '["Bash"]',
        "null",
    )
    assert (await run("get", "env"), await run("get", "model")) == ('{"X_TOKEN": "(hidden)"}', "opus")
    unknown = await shoal("config", "get", "themes")
    assert (unknown.code, "There is no setting 'themes'. Did you mean theme?" in unknown.err) == (1, True)
    assert await run("list") == await run("ls") == await run("show")
    rows = dict(line.split(maxsplit=1) for line in (await run("list", "-g")).splitlines())
    assert rows == {
        "theme": "dark", "model": "opus", "env.X_TOKEN": "(hidden)", "permissions.allow": '["Read"]',
    }  # fmt: skip


@pytest.mark.spec("CMP-099")
async def test_limits_in_tokens_are_listed_and_tokens_are_hidden(shoal: ShoalProgram, home: Path) -> None:
    limits = {"MAX_MCP_OUTPUT_TOKENS": "9000", "MAX_THINKING_TOKENS": "0"}
    limits |= {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "512", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS": "60"}
    secrets = {"MCP_TOKENS": "abc", "MY_MAX_THINKING_TOKENS": "abc"}
    (home / "settings.json").write_text(json.dumps({"env": limits | secrets}))
    for words in ((), ("-g",)):
        listed = await shoal("config", "list", *words)
        rows = dict(line.split(maxsplit=1) for line in listed.out.decode().splitlines() if " " in line)
        shown = {name: rows[f"env.{name}"].split()[0] for name in limits | secrets}
        assert shown == limits | dict.fromkeys(secrets, "(hidden)")


@pytest.mark.spec("CMP-099")
async def test_every_key_of_the_files_is_listed(shoal: ShoalProgram, home: Path, project: Path) -> None:
    hook = {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"Authorization": "Bearer abc"}}
    own = {
        "outputStyle": "Explanatory",
        "hooks": {"Stop": [{"hooks": [hook]}]},
        "enabledPlugins": {"p@m": True},
        "futureKey": {"a": 1},
        "statusLine": {"type": "command", "command": "date"},
        "sandbox": {"network": {"allowedDomains": ["x.org"]}},
        "permissions": {"futureRule": True},
        "mcpServers": {"near": {"command": "there", "env": {"TOKEN": "abc"}}},
    }
    (home / "settings.json").write_text(json.dumps(own))
    (project / ".claude").mkdir(exist_ok=True)
    other = {"type": "command", "command": "true"}
    shared = {"enabledPlugins": {"q@m": False}, "hooks": {"Stop": [{"hooks": [other]}]}}
    (project / ".claude/settings.json").write_text(json.dumps(shared))
    assert (await shoal("trust")).code == 0
    rows = json.loads((await shoal("config", "list", "--json")).out)["settings"]
    keys = (
        *("outputStyle", "hooks", "enabledPlugins", "futureKey", "statusLine", "mcpServers"),
        *("sandbox.network.allowedDomains", "permissions.futureRule", "language", "permissions.deny"),
    )
    values = {key: rows[key]["value"] for key in keys}
    hook["headers"] = {"Authorization": "(hidden)"}
    assert values == {
        **{key: own[key] for key in ("outputStyle", "futureKey", "statusLine")},
        "hooks": {"Stop": [{"hooks": [other]}, {"hooks": [hook]}]},
        "enabledPlugins": {"p@m": True, "q@m": False},
        "mcpServers": {"near": {"command": "there", "env": {"TOKEN": "(hidden)"}}},
        "sandbox.network.allowedDomains": ["x.org"],
        "permissions.futureRule": True,
        "language": None,
        "permissions.deny": [],
    }
    not_used = [key for key, row in rows.items() if not row.get("used", True)]
    assert sorted(not_used) == ["futureKey", "permissions.futureRule", "statusLine"]
    assert rows["outputStyle"]["origin"] == f"{home / 'settings.json'}:1"
    text = (await shoal("config", "list")).text
    assert re.search(r'^futureKey +\{"a": 1\}  \(not used\)$', text, re.MULTILINE)
    assert "abc" not in text
    assert [(await shoal("config", "get", key)).code for key in keys] == [0] * len(keys)


@pytest.mark.spec("CMP-099")
async def test_agents_and_skills_are_listed_by_the_other_names_of_the_command(shoal: ShoalProgram) -> None:
    usual = await shoal("agents", "ls", "--json")
    assert "general-purpose" in [each["name"] for each in json.loads(usual.out)]
    for words in (("agents", "--json"), ("agents", "list", "--json")):
        assert (await shoal(*words)).out == usual.out
    assert (await shoal("skills", "list")).out == (await shoal("skills", "ls")).out


async def test_a_quiet_run_prints_only_the_answer(
    shoal: ShoalProgram, server: MockServer, project: Path
) -> None:
    (project / ".claude").mkdir(exist_ok=True)
    (project / ".claude/settings.json").write_text('{"statusLine": {"type": "command"}}')
    environ = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-for-tests"}
    loud = await shoal("-p", "hello", **environ)
    assert "1 item in your settings is not used" in loud.err
    quiet = await shoal("-p", "hello", "-q", **environ)
    assert (quiet.text, quiet.err, quiet.code) == ("done\n", "", 0)


async def test_a_session_that_began_with_a_command_is_listed_as_it_was_typed(
    shoal: ShoalProgram, server: MockServer, project: Path
) -> None:
    (project / ".claude/commands").mkdir(parents=True)
    (project / ".claude/commands/plain.md").write_text("Do it.")
    environ = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-for-tests"}
    assert (await shoal("-p", "/plain <b> now", **environ)).code == 0
    listed = json.loads((await shoal("sessions", "--json")).out)
    assert [each["prompt"] for each in listed] == ["/plain <b> now"]
    shown = (await shoal("sessions")).text
    assert f"shoal --resume {listed[0]['session'][:8]}" in shown


async def test_a_misspelled_deny_rule_is_blamed_on_its_own_file(
    shoal: ShoalProgram, server: MockServer, project: Path, home: Path
) -> None:
    shoal.use_server(server)
    (project / ".claude").mkdir(exist_ok=True)
    (home / "settings.json").write_text('{"permissions": {"deny": ["Read(x)"]}}')
    bad = project / ".claude/settings.json"
    bad.write_text('{"permissions": {"deny": ["Read(y)",\n"Bsah(rm:*)"]}}')
    ran = await shoal("-p", "hello")
    assert f"{bad}:2: the rule Bsah(rm:*) names an unknown tool. Did you mean Bash?" in ran.err
    assert str(home / "settings.json") not in ran.err
