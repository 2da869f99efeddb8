"""`shoal mcp serve` in a process of its own, spoken to by the official SDK's client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shoal
from agent_scripts import call_tool
from server_scripts import approve_shutdown, join_text, run_provider
from shoal.app.run_access.stored_runs import StoredRuns
from shoal.core.text.model_texts import ModelTexts
from shoal.stores.files.locks.pid_locks import find_session_pid
from team_scripts import get_home, open_session, read_inbox, read_team_config, script_team, send_message

if TYPE_CHECKING:
    from mcp.client.client import Client

pytestmark = pytest.mark.needs("mcp")

MODEL = "anthropic:claude-sonnet-4-5"
SERVER_TEXTS = ModelTexts(Path(shoal.__file__).parent / "surfaces" / "mcp" / "prompts").load_sections(
    "server"
)


class Caller:
    """A client that reads each answer as data, and a failed call as its text."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, name: str, /, **given: Any) -> Any:
        async with asyncio.timeout(40):
            result = await self.client.call_tool(name, given)
        if result.is_error:
            return join_text([block.model_dump() for block in result.content])
        return result.structured_content


@asynccontextmanager
async def start_mcp_server(cwd: Path, *words: str) -> AsyncIterator[Caller]:
    # Takes a second, so workers that only collect these tests do not import it.
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "shoal", "mcp", "serve", *words], env=dict(os.environ), cwd=cwd
    )
    with (cwd / "server.err").open("w") as errors:
        async with Client(stdio_client(server, errlog=errors)) as client:
            yield Caller(client)


def run_shoal(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shoal", *words],
        cwd=cwd,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
async def test_a_client_leads_a_team_with_a_real_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = [
        call_tool("TaskUpdate", "u1", taskId="1", status="in_progress"),
        call_tool("TaskUpdate", "u2", taskId="1", status="completed"),
        send_message("team-lead", "The roof is tight.", "report"),
        "Idle now.",
        approve_shutdown,
    ]
    async with (
        run_provider(monkeypatch, ann=ann),
        start_mcp_server(tmp_path, "--model", MODEL, "--dangerously-skip-permissions") as call,
    ):
        tools = (await call.client.list_tools()).tools
        assert all(tool.description == SERVER_TEXTS[tool.name] for tool in tools)
        described = [
            text
            for tool in tools
            for text in tool.input_schema["properties"].values()
            if "description" in text
        ]
        inputs = {text for key, text in SERVER_TEXTS.items() if key.startswith("input:")}
        assert {each["description"] for each in described} == inputs
        assert {tool.name for tool in tools} == {
            *("team_create", "team_list", "team_show", "team_delete"),
            *("task_create", "task_list", "task_get", "task_update"),
            *("message_send", "message_take", "spawn", "run_status", "run_result"),
        }
        made = await call("team_create", name="roof", description="Repairs")
        assert (made["name"], made["you"]) == ("roof", "team-lead")
        task = await call("task_create", subject="Mend the roof", description="All of it.")
        assert (task["id"], task["status"]) == ("1", "pending")
        spawned = await call("spawn", prompt="Mend it and report.", name="ann")
        assert spawned == {"id": "ann@roof", "name": "ann", "team": "roof"}
        assert (await call("run_status", id="ann@roof"))["state"] == "running"
        letter = await take_until(call, "The roof is tight.")
        assert (letter["from"], letter["kind"], letter["summary"]) == ("ann", "message", "report")
        task = await call("task_get", task="1")
        assert (task["status"], task["owner"]) == ("completed", "ann")
        asked = await call("message_send", to="ann", text="All is done.", kind="shutdown_request")
        assert asked["request_id"].endswith("@ann")
        await take_until(call, "shutdown_approved")
        shown = await call("team_show")
        assert [member["name"] for member in shown["members"]] == ["team-lead"]
        assert await call("team_delete") == {"deleted": "roof"}
    assert not (get_home() / "teams/roof").exists()


@pytest.mark.parametrize("whose", ["client", "server"])
async def test_a_member_spends_no_more_than_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    ann = [call_tool("TaskList", "t1"), send_message("team-lead", "I went on.", "report"), "Told."]
    flags = ("--max-budget-usd", "0.000001") if whose == "server" else ()
    wish = {"max_budget_usd": 0.000001} if whose == "client" else {}
    async with (
        run_provider(monkeypatch, ann=ann),
        start_mcp_server(tmp_path, "--model", MODEL, "--dangerously-skip-permissions", *flags) as call,
    ):
        await call("team_create", name="roof")
        await call("spawn", prompt="Mend it and report.", name="ann", **wish)
        first, *_ = (await call("message_take", wait_seconds=20))["messages"]
        # It has nothing left to answer a request to end with.
        (run,) = StoredRuns(home=get_home()).list_live_runs()
        pid = find_session_pid(get_home(), run.session)
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        assert "idle_notification" in first["text"]


async def take_until(call: Caller, wanted: str) -> dict[str, Any]:
    """Take messages until one contains the wanted text, and return it."""
    for _ in range(20):
        taken = await call("message_take", wait_seconds=20)
        for message in taken["messages"]:
            if wanted in message["text"]:
                found: dict[str, Any] = message
                return found
    raise AssertionError(f"nobody wrote {wanted!r}")


async def test_a_client_joins_a_team_of_a_live_session(tmp_path: Path) -> None:
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="roof"),
            call_tool("TaskCreate", "t1", subject="Look at the beams", description="Closely."),
            "Waiting for help.",
            send_message("codex", "Thank you, and look at the gutter too.", "thanks"),
            "Told it.",
        ]
    )
    async with open_session(tmp_path, model) as session:
        async for _ in session.run("begin"):
            pass
        async with start_mcp_server(tmp_path, "--team", "roof", "--as", "codex") as call:
            assert [member["agentType"] for member in read_team_config("roof")["members"]] == [
                "team-lead",
                "guest",
            ]
            claimed = await call("task_update", task="1", status="in_progress")
            assert (claimed["owner"], bool(claimed["attempt"])) == ("codex", True)
            refused = await call("task_update", task="1", status="completed", attempt="another")
            assert "no longer held by this attempt" in refused
            done = await call("task_update", task="1", status="completed", attempt=claimed["attempt"])
            assert done["status"] == "completed"
            await call("message_send", to="team-lead", text="The beams hold.", summary="report")
            async with asyncio.timeout(20):
                turn = await session.next_turn(wait_for_input=True)
                assert turn is not None
                async for _ in turn:
                    pass
            heard = "\n".join(message.text for message in session.agent.conversation.messages)
            assert "The beams hold." in heard
            assert "codex, another program, has joined" in heard
            taken = await call("message_take", wait_seconds=20)
            (letter,) = taken["messages"]
            assert (letter["from"], letter["text"]) == ("team-lead", "Thank you, and look at the gutter too.")
            assert letter["signature"] == "verified"
            assert not read_inbox("roof", "codex")[-1]["read"]
        # It ended before it showed that it goes on: the message comes again, under the same id.
        async with start_mcp_server(tmp_path, "--team", "roof", "--as", "codex") as call:
            taken = await call("message_take")
            assert [each["id"] for each in taken["messages"]] == [letter["id"]]
            assert (await call("message_take"))["messages"] == []
            assert read_inbox("roof", "codex")[-1]["read"]
            assert "team-lead" in await call("message_send", to="nobody", text="x")
            assert "Only the lead" in await call("team_delete")
            twin = run_shoal(tmp_path, "mcp", "serve", "--team", "roof", "--as", "codex")
            assert (twin.returncode, "already uses the name" in twin.stderr) == (1, True)
            usurper = run_shoal(tmp_path, "mcp", "serve", "--team", "roof", "--as", "team-lead")
            assert (usurper.returncode, "A live Shoal session leads" in usurper.stderr) == (1, True)
            assert "not in the team" in await call("task_list", team="wall")


@pytest.mark.slow
async def test_a_background_run_continues_and_its_result_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(monkeypatch, lead=["The answer is 42."]):
        async with start_mcp_server(tmp_path, "--model", MODEL, "--max-runs", "1") as call:
            run = (await call("spawn", prompt="- What is the answer?"))["id"]
            result = await call("run_result", id=run, wait_seconds=30)
            assert (result["state"], result["text"]) == ("done", "The answer is 42.")
            status = await call("run_status", id=run)
            assert (status["state"], status["exit_code"], status["turns"]) == ("done", 0, 1)
            assert "There is no run 'nothing'." in await call("run_status", id="nothing")
            assert "There is no run" in await call("run_result", id="../x")
            assert "Pass `name` too" in await call("spawn", prompt="x", agent_type="Explore")
            left = (await call("spawn", prompt="And again?"))["id"]
        # The server has ended; what it started goes on.
        async with start_mcp_server(tmp_path, "--model", MODEL) as call:
            assert (await call("run_result", id=run))["text"] == "The answer is 42."
            result = await call("run_result", id=left, wait_seconds=30)
            assert (result["state"], result["text"]) == ("done", "The answer is 42.")


@pytest.mark.slow
async def test_a_template_starts_a_whole_team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / ".claude/teams"
    directory.mkdir(parents=True)
    (directory / "duo.md").write_text(
        "---\nname: duo\ndescription: One helper.\nroles:\n  - name: ann\n    type: general-purpose\n"
        "    prompt: Help with {goal}.\n---\nLead ann to {goal}.\n"
    )
    checked = run_shoal(tmp_path, "team", "template", "validate", ".claude/teams/duo.md")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    async with (
        run_provider(monkeypatch, lead=["It is done."], ann=["Idle."]),
        start_mcp_server(tmp_path, "--model", MODEL, "--dangerously-skip-permissions") as call,
    ):
        run = (await call("spawn", prompt="mend the roof", template="duo"))["id"]
        result = await call("run_result", id=run, wait_seconds=30)
        assert (result["state"], result["text"]) == ("done", "It is done.")


def test_an_impossible_identity_is_refused_at_once(tmp_path: Path) -> None:
    ran = run_shoal(tmp_path, "mcp", "serve", "--team", "roof")
    assert (ran.returncode, "--as" in ran.stderr) == (2, True)
    ran = run_shoal(tmp_path, "mcp", "serve", "--team", "roof", "--as", "codex")
    assert (ran.returncode, "There is no team roof" in ran.stderr) == (1, True)


def test_without_the_mcp_sdk_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, sys\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'mcp' else find(name, *more)\n"
        "from shoal.surfaces.cli.main import run_command_line\nsys.exit(run_command_line(['mcp', 'serve']))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "pip install 'shoal[mcp]'" in ran.stderr


@pytest.mark.spec("LIM-10", "LIM-11")
async def test_wrong_arguments_owners_and_states_are_refused(tmp_path: Path) -> None:
    async with start_mcp_server(tmp_path, "--model", MODEL) as call:
        await call("team_create", name="roof")
        assert "has no argument 'colour'" in await call("team_create", name="wall", colour="red")
        wrong_type = await call("team_create", name={"a": 1}, description=3)
        assert wrong_type == (
            "The argument 'name' of team_create must be a valid string, not {\"a\": 1}. "
            "The argument 'description' of team_create must be a valid string, not 3."
        )
        assert await call("message_send", to="ann", text=" ") == (
            "The argument 'text' of message_send must not be empty."
        )
        assert await call("task_get") == "task_get needs the argument 'task'."
        shown = await call("team_show", team="")
        assert (shown["name"], shown["members_left_out"]) == ("roof", 0)
        assert "reports by message" in await call("run_result", id="team-lead@roof")
        first = (await call("task_create", subject="first", description=None))["id"]
        second = (await call("task_create", subject="second", blocked_by=[int(first)]))["id"]
        assert "'nobody' is not a member" in await call("task_update", task=first, owner="nobody")
        assert "needs a subject" in await call("task_create", subject="  ")
        assert "needs a subject" in await call("task_update", task=first, subject=" ")
        for status in ("in_progress", "completed"):
            refused = await call("task_update", task=second, status=status)
            assert "is waiting for 1" in refused or "waits for #1" in refused
        assert (await call("task_get", task=second))["status"] == "pending"
        assert (await call("task_update", task=first, owner="team-lead"))["owner"] == "team-lead"
        for argument in ("agent_type", "team"):
            refused = await call("spawn", prompt="work", **{argument: "nobody"})
            assert refused == f"`{argument}` applies to a member of your team. Pass `name` too."
        refused = await call("message_send", to="ghost", text="Hello.")
        assert refused == "There is no recipient 'ghost'. Members of roof: only you."
        (get_home() / "shoal" / "runs" / "0a1b2c").mkdir(parents=True)
        for door in ("run_status", "run_result"):
            for id_ in ("\0", "x" * 5_000, "../x", "", "0", "0a1b2"):
                assert await call(door, id=id_) == f"There is no run {id_[:60]!r}."
        assert "has no member 'nobody'" in await call("run_status", id="nobody@roof")
        listed = await call("team_list")
        assert [team["name"] for team in listed["teams"]] == ["roof"]


@pytest.mark.spec("LIM-10", "TSK-05")
async def test_a_refused_task_update_changes_nothing(tmp_path: Path) -> None:
    async with start_mcp_server(tmp_path) as call:
        await call("team_create", name="roof")
        for number in range(1, 4):
            await call("task_create", subject=f"task {number}")
        before = await call("task_get", task="1")
        for change in ({"status": "in_progress"}, {"owner": "team-lead"}, {"subject": "new"}):
            refused = await call("task_update", task="1", attempt="invented", **change)
            assert "no longer held by this attempt" in refused
        assert "needs a subject" in await call("task_update", task="1", status="in_progress", subject=" ")
        waits = await call("task_update", task="1", status="in_progress", add_blocked_by=["2"])
        assert "Task 1 cannot be started: it waits for #2" in waits
        waits = await call("task_update", task="1", owner="team-lead", add_blocked_by=["2", "3"])
        assert "it waits for #2, #3" in waits
        assert await call("task_get", task="1") == before
        # A task that it holds stays its own.
        held = await call("task_update", task="1", status="in_progress")
        assert "needs a subject" in await call("task_update", task="1", status="in_progress", subject=" ")
        done = await call("task_update", task="1", status="completed", attempt=held["attempt"])
        assert done["status"] == "completed"
        await call("task_update", task="2", status="in_progress")
        assert "attempt" not in await call("task_update", task="2", owner="")


@pytest.mark.spec("LIM-10")
async def test_only_the_lead_changes_an_acceptance_command(tmp_path: Path) -> None:
    async with start_mcp_server(tmp_path) as lead:
        await lead("team_create", name="roof")
        await lead("task_create", subject="Test", metadata={"acceptance": "make test"})
        async with start_mcp_server(tmp_path, "--team", "roof", "--as", "codex") as guest:
            for command in (None, "true"):
                refused = await guest("task_update", task="1", metadata={"acceptance": command})
                assert refused.startswith("Only the lead can change the acceptance command of task 1")
            assert (await guest("task_update", task="1", metadata={"note": "x"}))["metadata"]["note"] == "x"
        changed = await lead("task_update", task="1", metadata={"acceptance": "true"})
        assert changed["metadata"]["acceptance"] == "true"


@pytest.mark.slow
@pytest.mark.spec("LIM-11")
async def test_a_spawn_that_cannot_start_says_why(tmp_path: Path) -> None:
    async with start_mcp_server(tmp_path, "--model", "anthropic:claude-sonnet-4-5") as call:
        await call("team_create", name="roof")
        (tmp_path / ".claude").mkdir()
        (tmp_path / ".claude" / "settings.local.json").write_text('{"shoal": {"max_depth": "deep"}}')
        assert "could not start: " in (refused := await call("spawn", prompt="work"))
        assert "max_depth" in refused
        assert "could not start: " in (refused := await call("spawn", prompt="work", name="ann"))
        assert "max_depth" in refused
        # Its id is longer than that of any session.
        await call("team_create", name="b" * 64)
        refused = await call("spawn", prompt="work", name="a" * 64, team="b" * 64)
        assert "could not start: " in refused
        assert [each["name"] for each in (await call("team_show", team="roof"))["members"]] == ["team-lead"]


@pytest.mark.spec("LIM-10", "LIM-14")
async def test_a_large_team_of_another_program_is_found_by_its_given_names_and_cut_to_limits(
    tmp_path: Path,
) -> None:
    from shoal.surfaces.mcp.mcp_server import LONGEST_TEXT, MOST_MEMBERS, MOST_TASKS

    given, home = "My Team ✓ v1.0", get_home()
    about = {"agentType": "worker", "model": "m", "joinedAt": 1, "cwd": "/", "subscriptions": []}
    names = ["team-lead", "Code Reviewer", *(f"w{number}" for number in range(MOST_MEMBERS - 1))]
    members = [{"agentId": f"{name}@{given}", "name": name, **about} for name in names]
    long_mail = {"from": "w0", "text": "x" * (LONGEST_TEXT + 1), "timestamp": "2026-01-01T00:00:00Z"}
    config = {"name": given, "createdAt": 1, "leadSessionId": "theirs", "members": members}
    inboxes = "teams/My-Team---v1-0/inboxes"
    files: dict[str, Any] = {
        "teams/my-team---v1-0/config.json": config,
        f"{inboxes}/Code-Reviewer.json": [],
        f"{inboxes}/guest.json": [{**long_mail, "read": False}],
    }
    for number in range(1, MOST_TASKS + 3):
        task = {"id": str(number), "subject": "Dig", "description": "y" * (LONGEST_TEXT + number - 1)}
        status = "completed" if number == 1 else "pending"
        files[f"tasks/my-team---v1-0/{number}.json"] = task | {
            "status": status,
            "blocks": [],
            "blockedBy": [],
        }
    for name, content in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(json.dumps(content))
    async with start_mcp_server(tmp_path, "--team", given, "--as", "guest") as call:
        (team,) = (await call("team_list"))["teams"]
        assert (team["given_name"], team["you"]) == (given, "guest")
        shown = await call("team_show", team=given)
        assert [each["name"] for each in shown["members"]] == names[:MOST_MEMBERS]
        assert (shown["members_left_out"], shown["you"]) == (2, "guest")
        assert shown["tasks"] == {"all": MOST_TASKS + 2, "open": MOST_TASKS + 1}
        listed = await call("task_list")
        assert (len(listed["tasks"]), listed["left_out"]) == (MOST_TASKS, 2)
        assert (await call("task_list", status="pending"))["left_out"] == 1
        done = await call("task_list", status="completed")
        assert ([task["id"] for task in done["tasks"]], done["left_out"]) == (["1"], 0)
        assert not {"description", "metadata"} & done["tasks"][0].keys()
        assert (await call("task_get", task="1"))["description"] == "y" * LONGEST_TEXT
        cut = f"\n[… cut, {LONGEST_TEXT + 1:,} characters in total]"
        assert (await call("task_get", task="2"))["description"] == "y" * LONGEST_TEXT + cut
        (message,) = (await call("message_take"))["messages"]
        assert (message["from"], message["text"]) == ("w0", "x" * LONGEST_TEXT + cut)
        for number in range(70):
            assert (await call("message_send", to="Code Reviewer", text=f"Note {number}.", team=given))[
                "sent"
            ]
        assert (await call("task_update", task="2", owner="Code-Reviewer"))["owner"] == "Code Reviewer"
        await call("team_create", name="wall")
        refused = await call("spawn", prompt="work", name="ann", team="wall")
        assert refused == SERVER_TEXTS["error:no_model"]
        assert len((await call("team_show", team="wall"))["members"]) == 1
    texts = [entry["text"] for entry in json.loads((home / inboxes / "Code-Reviewer.json").read_text())]
    assert texts[:70] == [f"Note {number}." for number in range(70)]
    assert "task_assignment" in texts[70]
