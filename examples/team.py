"""A lead and two teammates share a task board and mailboxes: create, spawn, collaborate, shut down.

Runs offline, in a temporary home: the models' replies are scripted; the team, the board, the mail and the
transcripts are real files. Try it: python examples/team.py
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import shoal
from shoal.core.clock import SystemClock, format_iso_time
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.ids import IdGenerator
from shoal.core.names import LEAD_NAME, AgentName, TeamName, parse_agent_name, parse_team_name
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.roster import NewMember
from shoal.core.teams.tasks import TaskUpdate

clock, ids = SystemClock(), IdGenerator()


def call_tool(name: str, **arguments: object) -> ToolUseBlock:
    return ToolUseBlock(id=ids.new_short_id(), name=name, input=arguments)


async def run_prompt(session: shoal.Session, prompt: str) -> str:
    async for event in session.run(prompt):
        last = event
    assert isinstance(last, shoal.events.RunFinished)
    return last.text


def make_mail(sender: AgentName, text: str) -> MailMessage:
    return MailMessage(
        id=ids.new_uuid(), sender=sender, text=text, timestamp=format_iso_time(clock.now()), summary=text[:40]
    )


WORK = {
    "1": call_tool("Write", file_path="hello.txt", content="hello\n"),
    "2": call_tool("Read", file_path="hello.txt"),
}
"""Tool call of the scripted model for each task."""


async def plan_tasks(store: shoal.TeamStore, team: TeamName, project: Path) -> None:
    """Put two tasks on the board by the lead's model; the second is blocked by the first."""
    script = [
        [
            call_tool("TaskCreate", subject="Write the greeting", description="hello.txt says hello"),
            call_tool("TaskCreate", subject="Check the greeting", description="hello.txt is read back"),
        ],
        call_tool("TaskUpdate", taskId="2", addBlockedBy=["1"]),
        "Two tasks are on the board.",
    ]
    async with shoal.open(
        cwd=project, name=LEAD_NAME, team=team, model=shoal.ScriptedModel(script), mode="acceptEdits"
    ) as lead:
        print("team-lead:", await run_prompt(lead, "Plan the greeting."))
    for task in await store.open_board(team).list_tasks():
        print(
            f"  #{task.id} {task.subject}"
            + (f" (after {', '.join(task.blocked_by)})" if task.blocked_by else "")
        )


async def run_teammate(store: shoal.TeamStore, team: TeamName, name: AgentName, project: Path) -> None:
    """Take the first message, then one task from the board, do it, and report to the lead."""
    board, mailboxes = store.open_board(team), store.open_mailboxes(team)
    await mailboxes.wait_for_mail(name)
    (first_mail,) = await mailboxes.take_unread(name)
    claim = None
    while claim is None:
        await board.wait_for_claimable()
        claim = await board.claim_next(by=name)
    task = claim.task
    assert task is not None
    model = shoal.ScriptedModel([WORK[task.id], f"{WORK[task.id].name} is done."])
    async with shoal.open(cwd=project, name=name, team=team, model=model, mode="acceptEdits") as session:
        answer = await run_prompt(session, f"{first_mail.text}\n\n{task.subject}: {task.description}")
        await mailboxes.mark_read(name, [first_mail.id])
    await board.update(task.id, TaskUpdate(status="completed", attempt=claim.attempt), by=name)
    await store.post_mail(team, LEAD_NAME, make_mail(name, f"#{task.id} {task.subject}: {answer}"))


async def main(home: Path, project: Path) -> None:
    store = shoal.TeamStore(home, clock=clock, ids=ids)

    lead = NewMember(name=LEAD_NAME, agent_type="lead", model="scripted", cwd=str(project), prompt="")
    team = await store.rosters.create_team(
        parse_team_name("greeters"), lead=lead, session=ids.new_uuid(), description="says hello"
    )
    print(f"created {team.name}")
    await plan_tasks(store, team.name, project)

    async with asyncio.TaskGroup() as members:
        for member_name in ("anna", "ben"):
            new_member = NewMember(
                name=parse_agent_name(member_name),
                agent_type="worker",
                model="scripted",
                cwd=str(project),
                prompt="Take a task.",
            )
            member = await store.add_member(team.name, new_member)
            print(f"spawned {member.agent_id} ({member.color})")
            members.create_task(run_teammate(store, team.name, member.name, project))

    for report in await store.open_mailboxes(team.name).take_unread(LEAD_NAME):
        print(f"{report.sender}: {report.text}")
    states = {task.id: task.status for task in await store.open_board(team.name).list_tasks()}
    print(f"board: {states}")

    for name in ("anna", "ben"):
        await store.rosters.remove_member(team.name, parse_agent_name(name))
    await store.rosters.delete_team(team.name)
    print(f"teams left: {len(await store.rosters.list_teams())}")
    await store.aclose()
    print(f"shut down; left in the project: {(project / 'hello.txt').read_text().strip()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ["SHOAL_HOME"] = place
        (Path(place) / "project").mkdir()
        asyncio.run(main(Path(place), Path(place) / "project"))
