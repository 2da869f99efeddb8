"""The same prompts with three homes from Claude Code: every request of the real program is inspected."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from shoal_process import CliResult, wait_for_result

from hook_helpers import list_results
from moved_homes import KEY, ORGANIZATION_TEXT, write_company_home, write_files, write_monorepo
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call
from shoal.testing.servers import MockServer

ROOT = Path(__file__).parents[2]
# The real program; only the place of the managed files differs, which nobody but root can write.
_PROGRAM = """
import sys
from pathlib import Path
from shoal.app.settings import settings_files
settings_files.MANAGED_FILES = (Path(sys.argv.pop(1)),)
from shoal.surfaces.cli.main import main
main()
"""


class MovedHome:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.env: dict[str, str] = {}
        self.program = _PROGRAM

    async def run(self, *arguments: str, cwd: Path | None = None) -> CliResult:
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "OPENAI"))
        }
        env |= {"HOME": str(self.root / "home"), "SHOAL_HOME": "", "OLLAMA_HOST": "127.0.0.1:9", **self.env}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", self.program, str(self.root / "etc" / "managed-settings.json"), *arguments,
            cwd=cwd or self.project, env=env,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return await wait_for_result(process)

    def use_server(self, server: MockServer) -> None:
        self.env |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-for-tests"}


@pytest.fixture
def moved_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MovedHome:
    monkeypatch.syspath_prepend(ROOT)
    (tmp_path / "project").mkdir()
    (tmp_path / "home").mkdir()
    return MovedHome(tmp_path)


def join_system(body: Any) -> str:
    return "\n".join(block["text"] for block in body["system"])


def describe_tool(body: Any, name: str) -> str:
    return next(tool["description"] for tool in body["tools"] if tool["name"] == name)


def list_tools(body: Any) -> list[str]:
    return [tool["name"] for tool in body["tools"]]


@asynccontextmanager
async def serve_prompts(read: str) -> AsyncIterator[MockServer]:
    """Answer the same prompts for each home: read a file, run a command, find a tool, start an agent."""
    calls = [
        make_tool_call("Read", file_path=read),
        make_tool_call("Bash", command="curl http://127.0.0.1:9/x"),
        make_tool_call("ToolSearch", query="tool"),
        make_tool_call("Agent", description="look", prompt="Look around.", subagent_type="general-purpose"),
        "the agent's report",
        "done",
    ]
    async with messages_server(calls) as server:
        yield server


@pytest.mark.slow
@pytest.mark.spec("CMP-118")
async def test_the_home_of_a_solo_developer(moved_home: MovedHome) -> None:
    from bench.solo_home import AGENTS, SKILLS, write_solo_home

    write_solo_home(moved_home.root / "home")
    (moved_home.project / "notes.txt").write_text("the sea is calm")
    async with serve_prompts(str(moved_home.project / "notes.txt")) as server:
        moved_home.use_server(server)
        ran = await moved_home.run("-p", "Say hello.", "--output-format", "json")
    assert ran.code == 0, ran.err
    assert ran.result["result"] == "done"
    assert ran.err.count("not used") == 1
    assert "2 items in your settings are not used: run shoal doctor --claude" in ran.err
    first, last = server.requests[0], server.requests[-1]
    system = join_system(first.body)
    assert first.body["model"] == "claude-sonnet-5-5"
    assert first.body["thinking"] == {"type": "adaptive"}
    assert system.index("I prefer small commits") < system.index("Write British English")
    assert "Write the test first." in system
    agents, skills = describe_tool(first.body, "Agent"), describe_tool(first.body, "Skill")
    assert agents.count("Use it proactively") == AGENTS
    assert skills.count("in any repository") == SKILLS
    assert "README" not in agents
    assert "docs, files, issues" in describe_tool(first.body, "ToolSearch")
    assert not [name for name in list_tools(first.body) if name.startswith("mcp__")]
    read, curl, found, report = list_results(last.body)
    assert "the sea is calm" in read
    assert "Bash(curl:*)" in curl
    assert "mcp__" in found
    assert "the agent's report" in report
    # A child gets the instructions, but not the lead's prompt.
    child = server.requests[4]
    assert "I prefer small commits" in join_system(child.body) + str(child.body["messages"][0])
    logged = (moved_home.root / "home" / "hooks.log").read_text().split()
    assert logged[:2] == ["start", "prompt"]
    assert logged.count("stop") == 1


@pytest.mark.slow
@pytest.mark.spec("CMP-002", "CMP-118")
@pytest.mark.parametrize("kind", ["solo", "company", "monorepo"])
async def test_the_start_counts_exactly_the_items_that_the_report_ends_with(
    moved_home: MovedHome, kind: str
) -> None:
    from bench.solo_home import write_solo_home

    async with messages_server(["done"]) as server:
        match kind:
            case "solo":
                write_solo_home(moved_home.root / "home")
            case "company":
                write_company_home(moved_home.root, server.url)
            case "monorepo":
                write_monorepo(moved_home.root)
        local = {
            "statusLine": {"type": "command", "command": "x"},
            "theme": "custom:sea",
            "model": "opus",
            "hooks": {"Later": [{"hooks": [{"type": "command", "command": "x"}]}]},
            "permissions": {"allow": ["B*"]},
            "newKey": 1,
        }
        write_files(moved_home.root, {"project/.claude/settings.local.json": local})
        moved_home.use_server(server)
        trusted = await moved_home.run("trust")
        ran = await moved_home.run("-p", "Say hello.")
    assert (trusted.code, ran.code) == (0, 0), ran.err
    (count,) = re.findall(r"(\d+) items in your settings are not used: run shoal doctor --claude", ran.err)
    shown = await moved_home.run("doctor", "--claude")
    _, has_list, listed = shown.text.partition(
        f"\n{count} items in your settings are not used, as the startup notice"
    )
    lines = [line for line in listed.splitlines() if line.startswith("  ")]
    assert (bool(has_list), len(lines)) == (True, int(count))
    for item in ("statusLine", "theme", "permissions.allow 'B*'", "newKey"):
        assert [line for line in lines if f": {item}: " in line]
    reported = json.loads((await moved_home.run("doctor", "--claude", "--json")).out)
    assert len(reported["unused_settings"]) == int(count)


@pytest.mark.slow
@pytest.mark.spec("CMP-118")
async def test_the_home_of_a_company_with_a_gateway(moved_home: MovedHome) -> None:
    async with serve_prompts(".env") as server:
        write_company_home(moved_home.root, server.url)
        ran = await moved_home.run("-p", "Say hello.", "--output-format", "json")
        bypass = await moved_home.run("-p", "hi", "--dangerously-skip-permissions")
        other_model = await moved_home.run("-p", "hi", "--model", "fable")
        server_list = await moved_home.run("mcp", "ls")
    assert ran.code == 0, ran.err
    assert ran.result["result"] == "done"
    # The managed file decides on the address, the model and the language, and the helper on the key.
    assert len(server.requests) == 6
    for request in server.requests:
        assert request.headers["x-api-key"] == KEY
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.headers["x-team"] == "payments"
        assert request.headers["x-cost-center"] == "4711"
        assert request.body["max_tokens"] == 16_000
    first, last = server.requests[0], server.requests[-1]
    assert first.body["model"] == "claude-opus-5-5"
    system = join_system(first.body)
    assert system.index(ORGANIZATION_TEXT) < system.index("I work on payments.")
    assert "Norwegian" in system
    assert "Latin" not in system
    assert "Add no Co-Authored-By trailer" in system
    assert "WebFetch" not in list_tools(first.body)
    assert "github" not in json.dumps(first.body["tools"])
    read, curl, *_ = list_results(last.body)
    assert "TOKEN=secret" not in str(last.body)
    assert ".env" in read
    assert "Bash(curl:*)" in curl
    assert '"command":"curl' in (moved_home.root / "audit.log").read_text().replace(" ", "")
    assert (moved_home.root / "helper.log").read_text().count("called") == 1
    assert bypass.code == 1
    assert "disableBypassPermissionsMode" in bypass.err
    assert "managed-settings.json" in bypass.err
    assert other_model.code == 1
    assert "availableModels" in other_model.err
    assert "wiki" in server_list.text
    assert "github" not in server_list.text or "not permit" in server_list.text


@pytest.mark.slow
@pytest.mark.spec("CMP-118")
async def test_a_monorepo_with_rules_and_nested_instructions(moved_home: MovedHome) -> None:
    write_monorepo(moved_home.root)
    names = ("services/api/app.py", "services/web/page.tsx", "services/legacy/main.py")
    reads = [make_tool_call("Read", file_path=name) for name in names]
    async with messages_server([*reads, "done"]) as server:
        moved_home.use_server(server)
        ran = await moved_home.run("-p", "Say hello.")
    assert ran.code == 0, ran.err
    first = join_system(server.requests[0].body)
    order = [
        "I like short answers.",
        "# Monorepo",
        "Conventions: tabs.",
        "Naming: snake_case.",
        "My local database",
        "General rule: run make test.",
    ]
    assert [first.count(text) for text in order] == [1] * len(order)
    assert sorted(order, key=first.index) == order
    for absent in ("nobody should read", "This file is not imported", "Api rule", "Web rule", "Nested"):
        assert absent not in first
    after_api, after_web, after_legacy = (str(request.body["messages"]) for request in server.requests[1:])
    about_api = ("Api rule: validate every input.", "Nested api instructions.", "The schema is the contract.")
    for text in about_api:
        assert after_api.count(text) == 1
        assert after_legacy.count(text) == 1
    assert "Web rule" not in after_api
    assert after_web.count("Web rule: no inline styles.") == 1
    assert "Legacy instructions." not in after_legacy


@pytest.mark.spec("CMP-118", "CMP-065")
async def test_rules_of_a_monorepo_apply_in_a_session_of_one_of_its_services(moved_home: MovedHome) -> None:
    write_monorepo(moved_home.root)
    async with messages_server([make_tool_call("Read", file_path="page.tsx"), "done"]) as server:
        moved_home.use_server(server)
        ran = await moved_home.run("-p", "Say hello.", cwd=moved_home.project / "services" / "web")
    assert ran.code == 0, ran.err
    first, second = server.requests
    for text in ("# Monorepo", "Naming: snake_case.", "General rule", "Nested web instructions."):
        assert join_system(first.body).count(text) == 1
    assert "Web rule" not in join_system(first.body)
    assert str(second.body["messages"]).count("Web rule: no inline styles.") == 1
    assert "Nested web instructions." not in str(second.body["messages"])


@pytest.mark.spec("CMP-118")
async def test_the_start_loads_only_what_the_first_request_needs(moved_home: MovedHome) -> None:
    moved_home.program = _PROGRAM.replace(
        "main()\n", "import atexit\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\nmain()\n"
    )
    async with messages_server(["hello"]) as server:
        moved_home.use_server(server)
        ran = await moved_home.run("-p", "Say hello.")
    assert ran.code == 0, ran.err
    loaded = set(ran.err.split())
    assert "shoal.app.session.session" in loaded
    for_later = {"shoal.team.team_supervisor", "shoal.policy.shell_policy"}
    assert loaded.isdisjoint({*for_later, "urllib.request", "email", "httpx", "mcp", "textual"})


@pytest.mark.slow
@pytest.mark.spec("CMP-005")
async def test_with_managed_rules_only_a_flag_is_reported_and_not_advised(moved_home: MovedHome) -> None:
    files = {
        "etc/managed-settings.json": {"allowManagedPermissionRulesOnly": True},
        "home/.claude/settings.json": {"permissions": {"allow": ["Bash(make:*)", "Edit"]}},
    }
    write_files(moved_home.root, files)
    calls = [make_tool_call("Bash", command="touch x"), make_tool_call("Write", file_path="y", content="")]
    async with messages_server([calls[0], calls[1], "I could not."]) as server:
        moved_home.use_server(server)
        ran = await moved_home.run("-p", "go", "--allowedTools", "Bash(touch:*)")
        doctor = await moved_home.run("doctor", "--claude")
    assert "--allowedTools Bash(touch:*) is not used: allowManagedPermissionRulesOnly is set" in ran.err
    assert "Allow it with --allowedTools" not in ran.err
    assert "question: Bash. A person must approve it each time" in ran.err
    assert "question: Write. A rule that allows it works only in a managed file." in ran.err
    assert not (moved_home.project / "x").exists()
    table, _, counted = doctor.text.partition("\n\n")
    rows = [line.split() for line in table.splitlines() if "permissions.allow" in line]
    assert len(rows) == 3
    assert counted.count("permissions.allow") == 2
    assert all("not" in row and "used" in row for row in rows), rows
