"""`shoal team` on a team that runs, has ended, or whose lead was killed."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from reply_scripts import AsyncFifoGate, script_replies
from shoal_process import MODEL, TIMEOUT, CliResult, ShoalProgram

from shoal.app.teams.team_store import TeamStore
from shoal.backends.guardian import collect_descendant_pids, read_process_tree
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.roster import NewMember
from shoal.surfaces.cli.exit_codes import LIMIT_REACHED
from shoal.testing import messages_server
from team_server_scripts import (
    complete_task,
    get_last_text,
    list_user_texts,
    reply_after_text,
    run_bash,
    script_team_server,
    send_message,
)

TEMPLATE = """\
---
description: Builds a roof.
roles:
  - name: alice
    prompt: "Build {goal}"
  - name: bob
    prompt: "Paint {goal}"
tasks:
  - key: build
    subject: Build it
    owner: alice
  - key: paint
    subject: Paint it
    blockedBy: [build]
    owner: bob
---
Lead the building of {goal}.
"""
YES = ("--dangerously-skip-permissions", "--model", MODEL)


@pytest.fixture
def template(project: Path) -> None:
    directory = project / ".claude" / "teams"
    directory.mkdir(parents=True)
    (directory / "roof.md").write_text(TEMPLATE)


@pytest.fixture
def gate(project: Path) -> AsyncFifoGate:
    return AsyncFifoGate(project / "gate")


@asynccontextmanager
async def start_team(
    shoal: ShoalProgram, choose_reply: Any, *more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a headless team and wait until alice is in her first call."""
    async with messages_server(choose_reply) as server:
        shoal.use_server(server)
        async with shoal.start_process("team", "start", "roof", "the roof", "-p", *YES, *more) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.close()
            async with asyncio.timeout(TIMEOUT):
                while b"alice: Bash" not in await process.stderr.readline():
                    pass
            yield process


async def show_team(shoal: ShoalProgram, *more: str) -> dict[str, Any]:
    team: dict[str, Any] = (await shoal("team", "show", *more, "--json")).lines[-1]
    return team


def map_member_states(team: dict[str, Any]) -> dict[str, str]:
    return {member["name"]: member["state"] for member in team["members"]}


async def kill_process(process: asyncio.subprocess.Process) -> None:
    """Kill the lead, and wait until nothing holds the lock of its run: its children end a moment later."""
    process.send_signal(signal.SIGKILL)
    async with asyncio.timeout(TIMEOUT):
        await process.wait()
        for path in Path(os.environ["SHOAL_HOME"]).glob("shoal/runs/*/lock"):
            with path.open("rb") as lock:
                await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_SH)


def list_leftovers(home: Path) -> list[str]:
    """List all files of the team, including its locks and its key."""
    paths = [path for directory in (home, home / "shoal") for path in directory.glob("*/roof*")]
    return sorted(str(path.relative_to(home)) for path in paths)


def read_inbox(home: Path, name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((home / "teams/roof/inboxes" / f"{name}.json").read_bytes())
    return entries


@pytest.mark.usefixtures("template")
@pytest.mark.spec("TSK-06", "TSK-08")
async def test_a_team_is_started_headless_works_in_order_and_its_result_is_printed(
    shoal: ShoalProgram, home: Path
) -> None:
    choose_reply = script_team_server(
        lead=["I wait.", "The roof is built and painted."],
        alice=[
            reply_after_text(
                "Task #1 is yours now", send_message("team-lead", "built"), complete_task("1"), "built"
            )
        ],
        bob=[
            reply_after_text(
                "Task #2 is yours now", complete_task("2"), send_message("team-lead", "painted"), "painted"
            )
        ],
    )
    async with messages_server(choose_reply) as server:
        shoal.use_server(server)
        ran = await shoal("team", "start", "roof", "the roof", "-p", "--output-format", "json", *YES)
    assert ran.code == 0, ran.err
    assert ran.result["result"] == "The roof is built and painted."
    assert "Created the team roof: alice, bob." in ran.err
    team = await show_team(shoal)
    assert (team["lead"], team["open_tasks"]) == ("ended", 0)
    assert map_member_states(team) == {"team-lead": "ended", "alice": "idle", "bob": "idle"}
    assert team["tokens"] > 0
    assert team["cost_usd"] == pytest.approx(sum(member["cost_usd"] for member in team["members"]), abs=1e-5)
    exported = (await shoal("team", "export", "roof")).lines[-1]
    assert [each["subject"] for each in exported["tasks"]] == ["Build it", "Paint it"]
    assert [each["changes"][-1]["status"] for each in exported["tasks"]] == ["completed", "completed"]
    assert [each["changes"][-1]["by"] for each in exported["tasks"]] == ["alice", "bob"]
    moments = [each["timestamp"] for each in exported["mail"]]
    assert moments == sorted(moments)
    assert {"alice", "bob", "team-lead"} == {each["to"] for each in exported["mail"]}
    assert exported["reports"]["team-lead"] == "The roof is built and painted."
    assert exported["reports"]["bob"] == "painted"
    assert exported["events"][-1]["type"] == "session_ended"
    assert exported["costs"]["total"]["requests"] == len(server.requests)
    assert (await shoal("team", "export", "-o", "roof.md", "--format", "md")).code == 0
    page = (shoal.project / "roof.md").read_text()
    assert "- [x] #2 Paint it (bob): completed, after #1" in page
    assert "**alice → team-lead**" in page
    assert "> (Task #2 is yours now: Paint it)" in page
    assert "task_assignment" not in page
    assert (await shoal("team", "rm", "--yes")).text == "Removed the team roof.\n"
    assert list_leftovers(home) == []


@pytest.mark.slow
@pytest.mark.usefixtures("template")
@pytest.mark.spec("USR-18", "SRF-01", "LIF-05")
async def test_a_running_team_is_listed_shown_messaged_and_ended(
    shoal: ShoalProgram, gate: AsyncFifoGate, home: Path
) -> None:
    messages: list[str] = []
    message_received = asyncio.Event()
    closed_gate = AsyncFifoGate(shoal.project / "closed")

    def record_message(body: dict[str, Any]) -> Any:
        messages.append(get_last_text(body))
        message_received.set()
        return run_bash(closed_gate.command)

    choose_reply = script_team_server(
        lead=["I wait."], alice=[run_bash(gate.command), record_message], bob=[run_bash(closed_gate.command)]
    )
    async with start_team(shoal, choose_reply, "--settings", '{"shoal": {"shutdown_grace": 0.2}}') as process:
        (listed,) = (await shoal("team", "ls", "--json")).lines[-1]
        assert (listed["lead"], listed["open_tasks"]) == ("alive", 2)
        team = await show_team(shoal)
        alice = team["members"][1]
        assert (alice["name"], alice["state"], alice["color"]) == ("alice", "working", "blue")
        assert alice["doing"] == f"Bash {gate.command}"
        assert alice["last_event_seconds"] < TIMEOUT
        assert (alice["tokens"] > 0, alice["question"]) == (True, None)
        text = (await shoal("team", "show", "roof")).text
        assert "0 of 2 tasks done" in text
        refused = await shoal("team", "rm", "roof", "--yes", "--force")
        assert (refused.code, "shoal team stop roof" in refused.err) == (1, True)
        again = await shoal("team", "resume", "roof", "-p", "x")
        assert (again.code, "shoal team attach roof" in again.err) == (1, True)
        sent = await shoal("team", "send", "alice", "Mind the gutter.")
        assert sent.text == "alice gets it at its next step.\n"
        # The runtime sets the sender, next to the text.
        assert [(each["from"], each["text"]) for each in read_inbox(home, "alice")][-1] == (
            "user",
            "Mind the gutter.",
        )
        await gate.open()
        async with asyncio.timeout(TIMEOUT):
            await message_received.wait()
        # User input comes before earlier mail of the lead, and not as a message of an agent.
        assert messages[0].index("Mind the gutter.") < messages[0].index("<teammate-message")
        stopped = await shoal("team", "stop", "roof", "alice", "--json")
        assert stopped.lines[-1] == {"team": "roof", "stopped": ["alice"]}
        assert "alice" not in map_member_states(await show_team(shoal))
        assert (await shoal("team", "stop")).code == 0
        async with asyncio.timeout(TIMEOUT):
            await process.wait()
    team = await show_team(shoal)
    assert (team["lead"], map_member_states(team)) == ("ended", {"team-lead": "ended"})
    assert (await shoal("team", "rm", "roof", "--yes")).code == 0
    assert list_leftovers(home) == []


@pytest.mark.slow
@pytest.mark.usefixtures("template")
@pytest.mark.spec("LIF-05", "USR-12")
async def test_the_team_of_a_killed_lead_is_listed_resumed_and_removed(
    shoal: ShoalProgram, gate: AsyncFifoGate, home: Path
) -> None:
    messages: dict[str, list[str]] = {}
    models: set[str] = set()

    def record_messages_of(name: str) -> Any:
        def choose_reply_of_agent(body: dict[str, Any]) -> str:
            messages[name] = list_user_texts(body)
            models.add(body["model"])
            return f"{name} heard it"

        return choose_reply_of_agent

    choose_reply = script_team_server(
        lead=["I wait.", record_messages_of("lead")],
        alice=[run_bash(gate.command), record_messages_of("alice")],
        bob=["I wait.", record_messages_of("bob")],
    )
    async with start_team(shoal, choose_reply) as process:
        session = (await show_team(shoal))["session"]
        await kill_process(process)
        listed = (await shoal("team", "ls")).text
        assert "died" in listed
        assert "shoal team resume roof" in listed
        assert map_member_states(await show_team(shoal)) == {
            "team-lead": "died",
            "alice": "cut off",
            "bob": "idle",
        }
        sent = await shoal("team", "send", "roof", "*", "The wood is wet.")
        assert sent.code == 0
        assert "It gets the message after `shoal team resume roof`" in sent.text
        assert [each["from"] for each in read_inbox(home, "bob")][-1] == "user"
        for command in (("attach",), ("stop",)):
            not_live = await shoal("team", *command)
            assert (not_live.code, "shoal team resume roof" in not_live.err) == (1, True)
        exported = (await shoal("team", "export")).lines[-1]
        assert exported["standing"]["lead"] == "died"
        assert {"to": "bob", "from": "user"}.items() <= exported["mail"][-1].items()
        without_prompt = await shoal("team", "resume")
        assert (without_prompt.code, "Pass a prompt: shoal team resume -p" in without_prompt.err) == (2, True)
        mode = (
            "continues in default mode. To restore the previous mode, bypassPermissions: "
            "--dangerously-skip-permissions"
        )
        assert mode in without_prompt.err
        resumed = await shoal("team", "resume", "-p", "go on", "--output-format", "json", YES[0])
        assert resumed.code == 0, resumed.err
        assert "continues in " not in resumed.err
        assert resumed.result["session_id"] == session
    assert models == {MODEL.partition(":")[2]}, "the model is the one of the flag that started the team"
    # As user input: messages of agents come in a tag of the runtime.
    assert all("The wood is wet." in messages[name] for name in ("lead", "alice", "bob")), messages
    team = await show_team(shoal)
    assert (team["session"], team["lead"]) == (session, "ended")
    assert "A finished team can be resumed: shoal team resume roof" in (await shoal("team", "ls")).text
    assert map_member_states(team) == {"team-lead": "ended", "alice": "idle", "bob": "idle"}
    assert (await shoal("team", "rm", "roof", "--yes")).code == 0
    assert list_leftovers(home) == []


@pytest.mark.slow
@pytest.mark.usefixtures("template")
@pytest.mark.spec("LIM-01")
async def test_a_resumed_team_keeps_the_budget_of_its_template(
    shoal: ShoalProgram, gate: AsyncFifoGate, project: Path
) -> None:
    file = project / ".claude" / "teams" / "roof.md"
    file.write_text(TEMPLATE.replace("roles:", "budget: {tokens: 1000000}\nroles:"))
    choose_reply = script_team_server(lead=["I wait."], alice=[run_bash(gate.command)], bob=["I wait."])
    async with start_team(shoal, choose_reply) as process:
        await kill_process(process)
    unreachable = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_API_KEY": "k"}
    resume = ("team", "resume", "-p", "go on", "--output-format", "json", YES[0], "--deadline", "1")
    kept = await shoal(*resume, **unreachable)
    assert "The team roof keeps its budget of 1,000,000 tokens." in kept.err
    again = await shoal(*resume, **unreachable)
    assert "keeps its budget of 1,000,000 tokens" in again.err
    spent = await shoal(*resume, "--max-total-tokens", "100", **unreachable)
    assert spent.code == LIMIT_REACHED
    assert "the budget of 100 tokens is spent" in spent.err
    assert "keeps its budget" not in spent.err


@pytest.mark.slow
@pytest.mark.usefixtures("template")
@pytest.mark.spec("USR-07", "USR-08", "LIF-05")
async def test_a_stopped_lead_process_is_ended_with_its_team(
    shoal: ShoalProgram, gate: AsyncFifoGate, home: Path
) -> None:
    choose_reply = script_team_server(lead=["I wait."], alice=[run_bash(gate.command)], bob=["I wait."])
    processes = ("--settings", '{"shoal": {"teammate_mode": "process"}}')
    async with start_team(shoal, choose_reply, *processes) as process:
        process.send_signal(signal.SIGSTOP)
        unheard = await shoal("team", "send", "alice", "Are you there?")
        assert (unheard.code, "does not respond" in unheard.err) == (1, True)
        assert "Stop it: shoal stop" in unheard.err
        stopped = await shoal("team", "stop", "--now")
        assert stopped.code == 0, stopped.err
        async with asyncio.timeout(TIMEOUT):
            await process.wait()
    assert map_member_states(await show_team(shoal))["alice"] in ("cut off", "idle")
    assert (await shoal("team", "rm", "roof", "--yes", "--force")).code == 0
    assert list_leftovers(home) == []


@pytest.mark.usefixtures("template")
@pytest.mark.spec("LIF-05")
async def test_a_team_with_open_work_is_removed_only_by_force(
    shoal: ShoalProgram, gate: AsyncFifoGate, home: Path
) -> None:
    choose_reply = script_team_server(lead=["I wait."], alice=[run_bash(gate.command)], bob=["I wait."])
    async with start_team(shoal, choose_reply) as process:
        await kill_process(process)
    refused = await shoal("team", "rm", "roof", "--yes")
    assert refused.code == 1
    assert "alice" in refused.err
    assert "shoal team rm roof --force" in refused.err
    assert (await shoal("team", "rm", "roof", "--yes", "--force", "--json")).lines[-1] == {"removed": "roof"}
    assert list_leftovers(home) == []


@pytest.mark.usefixtures("template")
@pytest.mark.spec("USR-01")
async def test_the_budget_of_a_template_holds_for_the_whole_team(shoal: ShoalProgram, project: Path) -> None:
    path = project / ".claude" / "teams" / "roof.md"
    path.write_text(TEMPLATE.replace("tasks:", "budget: {tokens: 10}\ntasks:"))
    async with messages_server(script_team_server(lead=["I wait."], alice=["a"], bob=["b"])) as server:
        shoal.use_server(server)
        ran = await shoal("team", "start", "roof", "the roof", "-p", *YES)
        assert ran.code == 3, ran.err
        # One request of each may be on its way when the limit is reached.
        assert len(server.requests) <= 3
        wide = await shoal("team", "start", "roof", "x", "-p", "--max-total-tokens", "1000000", *YES)
    assert wide.code == 0, wide.err


@pytest.mark.usefixtures("template")
@pytest.mark.spec("LIF-05")
async def test_a_team_whose_lead_died_before_its_first_reply_cannot_be_resumed(
    shoal: ShoalProgram, home: Path
) -> None:
    record = TeamStore(home, clock=SystemClock(), ids=IdGenerator(1))
    lead = NewMember(name=AgentName("x"), agent_type="x", model="m", cwd=str(shoal.project), prompt="")
    session = "11111111-2222-4333-8444-555555555555"
    await record.rosters.create_team(TeamName("roof"), lead=lead, session=session, description=None)
    await record.aclose()
    (home / "shoal" / "runs" / session).mkdir(parents=True)
    ran = await shoal("team", "resume", "-p", "x")
    assert (ran.code, "shoal team rm roof --force" in ran.err) == (1, True)
    assert (await shoal("team", "rm", "roof", "--yes", "--force")).code == 0
    assert list_leftovers(home) == []


@pytest.mark.usefixtures("template")
async def test_a_dry_run_shows_the_plan_and_creates_nothing(shoal: ShoalProgram, home: Path) -> None:
    ran = await shoal("team", "start", "roof", "the roof", "--dry-run", "--name", "gable")
    assert ran.code == 0
    for words in (
        "alice",
        "Build the roof",
        "Paint it",
        "Lead the building of the roof.",
        "Nothing was created",
    ):
        assert words in ran.text
    plan = (await shoal("team", "start", "roof", "the roof", "--dry-run", "--json")).lines[-1]
    assert [(each["owner"], each["blocked_by"]) for each in plan["tasks"]] == [("alice", []), ("bob", ["1"])]
    assert list_leftovers(home) == []
    assert not list((home / "shoal").glob("runs/*"))


async def assert_results(shoal: ShoalProgram, expected: dict[tuple[str, ...], tuple[int, str]]) -> None:
    every: list[CliResult] = await asyncio.gather(*(shoal(*arguments) for arguments in expected))
    for ran, (arguments, (code, words)) in zip(every, expected.items(), strict=True):
        assert ran.code == code, (arguments, ran.err)
        assert words in ran.err, (arguments, ran.err)
        assert ran.err.startswith("shoal: ")


@pytest.mark.usefixtures("template")
async def test_a_team_that_cannot_start_is_reported_in_a_sentence(shoal: ShoalProgram, project: Path) -> None:
    directory = project / ".claude" / "teams"
    (directory / "bad.md").write_text(TEMPLATE.replace("owner: bob", "owner: eve"))
    (directory / "wide.md").write_text(
        TEMPLATE.replace('    prompt: "Paint', '    mode: bypassPermissions\n    prompt: "Paint')
    )
    (directory / "rich.md").write_text(TEMPLATE.replace("tasks:", "budget: {usd: 50}\ntasks:"))
    (directory / "strange.md").write_text(
        TEMPLATE.replace('prompt: "Paint', 'type: painter\n    prompt: "Paint')
    )
    limit = ("--settings", '{"shoal": {"max_budget_usd": 2}}')
    await assert_results(
        shoal,
        {
            ("team", "start", "roof"): (2, "The template roof needs a goal"),
            ("team", "start", "rof", "x"): (1, "Did you mean roof?"),
            ("team", "start", "bad", "x"): (1, "bad.md:15: tasks[2].owner: there is no role 'eve'"),
            ("team", "start", "wide", "x"): (1, "wide.md:7: roles[2].mode: a project's template cannot use"),
            ("team", "start", "rich", "x", *limit): (1, "rich.md:8: budget.usd: 50 exceeds the limit of 2"),
            ("team", "start", "strange", "x"): (
                1,
                "strange.md:7: roles[2].type: There is no agent 'painter'",
            ),
            ("team", "start", "./none.md", "x"): (1, "none.md: cannot be read: No such file"),
            ("team", "start", "feature", "x"): (2, "git init"),
            ("team", "show"): (2, "shoal team start review"),
            ("team", "send", "x"): (2, "put the text in quotes"),
            ("team", "resume", "roof", "-p", "x"): (2, "There is no team roof"),
            ("team", "template", "new", "../up"): (1, "is not a valid name"),
        },
    )
    # What the user asks for with a flag is the user's own word.
    bypass = await shoal("team", "start", "wide", "x", "--dry-run", "--dangerously-skip-permissions")
    assert bypass.code == 0
    assert (await shoal("team", "start", "rich", "x", "--dry-run", "--max-budget-usd", "9", *limit)).code == 0


@pytest.mark.usefixtures("template")
async def test_templates_are_listed_shown_checked_and_written(shoal: ShoalProgram, home: Path) -> None:
    listed = {
        each["name"]: each["source"]["kind"]
        for each in (await shoal("team", "templates", "--json")).lines[-1]
    }
    assert listed == {"roof": "project", "bug-hunt": "builtin", "feature": "builtin", "review": "builtin"}
    shown = (await shoal("team", "template", "show", "review")).text
    assert "correctness" in shown
    assert "You lead a review." in shown
    assert (await shoal("team", "template", "new", "mine", "--user")).code == 0
    assert (home / "teams" / "mine.md").is_file()
    assert (await shoal("team", "ls")).text == "There are no teams.\n"
    assert (await shoal("team", "start", "mine", "x", "--dry-run")).code == 0
    there = await shoal("team", "template", "new", "mine", "--user")
    assert (there.code, "already exists and was not changed" in there.err) == (1, True)
    good = await shoal("team", "template", "validate")
    assert (good.code, good.text) == (0, "5 templates, 0 problems.\n")
    path = shoal.project / "x.md"
    path.write_text(TEMPLATE.replace("subject: Build it", "subjct: Build it"))
    bad = await shoal("team", "template", "validate", "x.md", "--json")
    assert bad.code == 1
    (problem,) = bad.lines[-1]["problems"]
    assert (problem["line"], problem["field"]) == (10, "tasks[1].subjct")
    assert "did you mean subject?" in problem["what"]


PARTS = ("ls", "show", "rm", "send", "stop", "resume", "attach", "export", "start", "templates", "template")


@pytest.mark.parametrize("part", PARTS)
async def test_every_team_subcommand_has_help_with_an_example_and_json(
    shoal: ShoalProgram, part: str
) -> None:
    help_text = (await shoal("team", part, "--help")).text
    assert f"shoal team {part}" in help_text.partition("Examples:")[2]
    assert ("--json" in help_text or "--output-format" in help_text) is (part != "template")


@pytest.mark.slow
@pytest.mark.usefixtures("template")
@pytest.mark.spec("LIF-04", "TEAM-05")
async def test_a_run_with_a_down_member_says_so_and_exits_with_4(
    shoal: ShoalProgram, gate: AsyncFifoGate, home: Path
) -> None:
    """Its process cannot start again, because its log cannot be opened."""
    choose_reply = script_team_server(
        lead=["I wait."], alice=[run_bash(gate.command), "I am back."], bob=["I wait."]
    )
    settings = ("--settings", '{"shoal": {"teammate_mode": "process", "teammate_restarts": 1}}')
    async with start_team(shoal, choose_reply, *settings) as process:
        session = (await show_team(shoal))["session"]
        logs = home / "shoal" / "runs" / session / "members"
        logs.rename(logs.with_suffix(".away"))
        logs.write_text("not a directory")
        os.kill(find_member_pid(process.pid, "alice"), signal.SIGKILL)
        async with asyncio.timeout(TIMEOUT):
            _, err = await process.communicate()
    assert process.returncode == 4, err
    assert "Down at the end of the run: alice." in err.decode()
    assert "shoal team resume roof" in err.decode()
    assert map_member_states(await show_team(shoal))["alice"] == "down"
    logs.unlink()
    logs.with_suffix(".away").rename(logs)
    async with messages_server(choose_reply) as server:
        shoal.use_server(server)
        resumed = await shoal("team", "resume", "-p", "go on", *YES, *settings)
    assert resumed.code == 0, resumed.err
    assert map_member_states(await show_team(shoal))["alice"] == "idle"


def find_member_pid(lead: int, name: str) -> int:
    families = read_process_tree()
    return next(
        pid
        for pid in collect_descendant_pids(lead, families)
        if Path(f"/proc/{pid}/comm").read_text().strip() == f"shoal:{name}"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("template")
@pytest.mark.spec("LIF-04")
async def test_a_person_restarts_a_member_that_is_down(
    shoal: ShoalProgram, gate: AsyncFifoGate, home: Path
) -> None:
    closed_gate = AsyncFifoGate(shoal.project / "closed")
    choose_reply = script_team_server(
        lead=["I wait."], alice=[run_bash(gate.command), "I am back."], bob=[run_bash(closed_gate.command)]
    )
    settings = ("--settings", '{"shoal": {"teammate_mode": "process", "teammate_restarts": 1}}')
    async with start_team(shoal, choose_reply, *settings) as process:
        refused = await shoal("team", "restart", "alice")
        assert (refused.code, "alice is not down" in refused.err) == (1, True)
        logs = home / "shoal" / "runs" / (await show_team(shoal))["session"] / "members"
        logs.rename(logs.with_suffix(".away"))
        logs.write_text("not a directory")
        os.kill(find_member_pid(process.pid, "alice"), signal.SIGKILL)
        assert process.stderr is not None
        # Then the next attempt on its own comes after eight seconds.
        for _ in range(4):
            async with asyncio.timeout(TIMEOUT):
                while b"could not be restarted" not in await process.stderr.readline():
                    pass
        assert map_member_states(await show_team(shoal))["alice"] == "down"
        logs.unlink()
        logs.with_suffix(".away").rename(logs)
        assert (await shoal("team", "restart", "roof", "alice")).text == "Restarting alice.\n"
        async with asyncio.timeout(TIMEOUT):
            while b"continues in a new process" not in await process.stderr.readline():
                pass
        assert (await shoal("team", "restart")).text == "No member of the team roof is down.\n"
        assert map_member_states(await show_team(shoal))["alice"] != "down"
    not_live = await shoal("team", "restart")
    assert (not_live.code, "shoal team resume roof" in not_live.err) == (1, True)


@pytest.mark.spec("LIF-04")
async def test_a_run_reports_tasks_that_are_not_completed(shoal: ShoalProgram) -> None:
    replies = script_replies(
        {
            "match": "begin",
            "tools": [
                {"name": "TeamCreate", "input": {"team_name": "crew"}},
                {"name": "TaskCreate", "input": {"subject": "Dig a hole", "description": "Deep."}},
                {"name": "TaskCreate", "input": {"subject": "Lay a floor", "description": "Flat."}},
                {
                    "name": "TaskUpdate",
                    "input": {"taskId": "2", "owner": "team-lead", "status": "in_progress"},
                },
            ],
        },
        {"match": "Dig a hole", "text": "Done."},
        {"match": "", "text": "Done."},
    )
    async with messages_server(replies) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "begin", *YES)
    assert ran.code == 0, ran.err
    assert "1 open task that nobody claimed:\n  #1 Dig a hole" in ran.err
    assert "1 open task that the owner did not complete:\n  #2 Lay a floor (team-lead)" in ran.err
