"""Home directory of finished runs that has a file of each kind in which Shoal stores state."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from git_repository import GitRepository
from server_scripts import open_process_session, run_provider
from shoal.core.budgets.usage import ModelCard
from shoal.core.ids import LEAD_ID
from shoal.core.names import AgentName
from shoal.core.permissions.questions import AllowAnswer, PermissionQuestion
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.sessions.journal_snapshots import (
    get_snapshot_path,
    load_journal_state,
    write_snapshot,
)
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.stores.files.sessions.state_file_kinds import STATE_FILE_KINDS, StateFileKind
from shoal.stores.files.sessions.usage_summary import RunUsageState
from shoal.wire.team_definition_codec import StoredTeamDefinition, encode_team_definition
from team_scripts import get_home, open_session, script_team, send_message, spawn_member

SESSION, TEAM = "6f1c0f0a-0000-4000-8000-00000000000d", "crew"
PROCESS_SESSION, PROCESS_TEAM = "6f1c0f0a-0000-4000-8000-00000000000e", "hands"
WORKFLOW_SESSION = "6f1c0f0a-0000-4000-8000-00000000000f"
CARD = ModelCard(id="anthropic:claude-haiku-5-5", provider="anthropic", max_output=1_000)
"""Model of the first team: a resumed team may also ask a provider for it."""
NOT_STATE = (
    *("shell-snapshots/*", "debug/*", "worktrees/*/agent-????????/*"),
    *("shoal/runs/*/control.sock", "settings.json"),
)
"""Files without state of a run: logs, the environment of shells, the work itself, the user's settings."""
UNSTORED_KINDS = {
    "work of an agent on another machine": "comes into files only from an exported database",
    "marker of a team operation": "exists only while a team is created or deleted",
    "record of Shoal's own changes": "exists only in teams that other programs lead",
}
"""Kinds of which the runs below leave no file."""
if sys.platform != "linux":
    UNSTORED_KINDS |= {
        f"working copy of {what}": "is left only where the names of two files can be exchanged"
        for what in ("a roster", "a list of members", "an inbox", "a task")
    }
LEFTOVERS = "leftovers"
"""Directory next to the home for files that a killed process leaves behind."""
_SERVER = Path(__file__).parents[1] / "mcp_client" / "harbour_server.py"


async def create_stored_runs(live: Path) -> None:
    """Run a team, a team of processes and a workflow, in the directories `project` and `home` of `live`."""
    GitRepository(live)
    # A member gets a worktree also where no sandbox can confine its commands to it.
    get_home().mkdir(exist_ok=True)
    (get_home() / "settings.json").write_text(json.dumps({"shoal": {"worktree_guard": "weak"}}))
    project = live / "project"
    await run_team(project)
    await run_process_team(project)
    await run_workflow(project)
    shutil.copytree(live / LEFTOVERS, get_home(), dirs_exist_ok=True)


async def run_team(project: Path) -> None:
    lead = [
        call_tool("TeamCreate", team_name=TEAM),
        call_tool("TaskCreate", subject="dig", description="d"),
        call_tool("TaskCreate", "second", subject="fill", description="d"),
        call_tool("TaskCreate", "third", subject="paint", description="d"),
        call_tool("TaskUpdate", "deleted", taskId="2", status="deleted"),
        call_tool("TaskUpdate", taskId="1", owner="nobody"),
        call_tool("CronCreate", cron="0 0 1 1 *", prompt="later"),
        call_tool("Write", file_path=str(project / "a.txt"), content="one"),
        call_tool("Write", "again", file_path=str(project / "a.txt"), content="two"),
        call_tool("Bash", command="true"),
        spawn_member("ann"),
        spawn_member("bob", isolation="worktree"),
        "wait",
        "end",
    ]
    ann = [
        call_tool("TaskUpdate", taskId="3", status="in_progress"),
        send_message("team-lead", "I am here."),
        "x" * 20_000,
        "idle",
    ]
    bob = [call_tool("Write", file_path="b.txt", content="two"), "done", "idle"]
    model = script_team(0.0, CARD, lead=lead, ann=ann, bob=bob)
    home, leftovers = get_home(), project.parent / LEFTOVERS
    async with open_session(project, model, session_id=SESSION) as session:
        await run_all_turns(session)
        await fill_inbox(session)
        marks = [home / "shoal" / "leases", home / "shoal" / "guardians", *home.glob("worktrees/*/.owners")]
        for directory in marks:
            shutil.copytree(directory, leftovers / directory.relative_to(home))
    run = home / "shoal" / "runs" / SESSION
    questions = QuestionFiles(run / "questions")
    for name in ("q1", "q2"):
        questions.store_question(
            PermissionQuestion(
                id=name, agent=LEAD_ID, tool="Bash", tool_use_id=name, input={}, reason="it is new"
            )
        )
    questions.create_answer("q2", AllowAnswer())
    (home / "shoal" / "teams" / TEAM / "foreign" / "cat").write_bytes(b"")
    definition = StoredTeamDefinition(
        team=TEAM,
        agents={"digger": {"description": "digs", "prompt": "You dig.", "tools": ["Read"], "maxTurns": 9}},
        members={"ann": "digger", "bob": "digger"},
        lead="digger",
        backend="in-process",
        options={"mode": "plan", "disallowed_tools": ["Bash"], "max_turns": 50, "max_budget_usd": 1.5},
        required=("on_question",),
        python_tools=("digger",),
    )
    (run / "team.json").write_bytes(encode_team_definition(definition))
    (run / "memory.md").write_text("The roof is red.\n")
    journal = run / "journal.jsonl"
    write_snapshot(get_snapshot_path(journal, "usage"), journal, *load_journal_state(journal, RunUsageState))


async def run_process_team(project: Path) -> None:
    """Run a teammate in another process, an MCP server, and a command in the background."""
    lead = [
        call_tool("TeamCreate", team_name=PROCESS_TEAM),
        call_tool("Bash", command="echo ready", run_in_background=True),
        spawn_member("eve"),
        "wait",
        "end",
    ]
    server = {"command": sys.executable, "args": [str(_SERVER)]}
    with pytest.MonkeyPatch.context() as patch:
        async with (
            run_provider(patch, lead=lead, eve=[send_message("team-lead", "I am here."), "idle"]),
            open_process_session(
                project, session_id=PROCESS_SESSION, mcp_config=[{"mcpServers": {"harbour": server}}]
            ) as session,
        ):
            await run_all_turns(session, "Go.")  # three programs start


@shoal.workflow
async def survey(flow: shoal.Workflow) -> list[str]:
    flow.phase("look")
    return await flow.map(shoal.Agent("surveyor", prompt="You look."), ["north", "south"])


async def run_workflow(project: Path) -> None:
    model = shoal.ScriptedModel(lambda _: "It is fine.")
    async with open_session(project, model, session_id=WORKFLOW_SESSION) as session:
        await survey.run(session)


async def fill_inbox(session: shoal.Session) -> None:
    """Leave archived mail, unread mail, and mail that is waiting for space."""
    mailboxes = session.runtime.team_store.open_mailboxes(TEAM)
    await mailboxes.open_inbox(AgentName("cat"))
    for number in range(300):
        mail = MailMessage(id=f"m{number}", sender="bob", text=f"{number}", timestamp="t")
        await mailboxes.post(AgentName("cat"), mail)
    for _ in range(3):
        unread = await mailboxes.take_unread(AgentName("cat"))
        await mailboxes.mark_read(AgentName("cat"), [mail.id for mail in unread])


def list_stored_kinds() -> list[StateFileKind]:
    return [kind for kind in STATE_FILE_KINDS if kind.name not in UNSTORED_KINDS]


def find_files(kind: StateFileKind) -> list[Path]:
    """Return the files of this kind and of none before it, the first session's before the others'."""

    def match(each: StateFileKind) -> set[Path]:
        return {
            path
            for session, team in ((SESSION, TEAM), (PROCESS_SESSION, PROCESS_TEAM), (WORKFLOW_SESSION, "-"))
            for board in (team, session)
            for path in get_home().glob(
                f"{each.directory}/{each.file}".format(session=session, team=team, board=board)
            )
            if not path.is_dir()
        }

    others = (each for each in STATE_FILE_KINDS[: STATE_FILE_KINDS.index(kind)])
    found = match(kind).difference(*(match(each) for each in others))
    return sorted(found, key=lambda path: (PROCESS_SESSION in str(path), PROCESS_TEAM in path.parts, path))


def find_session_of(path: Path) -> str:
    """Return the session that uses the file."""
    place = str(path)
    if WORKFLOW_SESSION in place:
        return WORKFLOW_SESSION
    return PROCESS_SESSION if PROCESS_SESSION in place or PROCESS_TEAM in path.parts else SESSION
