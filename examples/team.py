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
from shoal.core.clock import SystemClock, iso
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.messages import ToolUse
from shoal.core.names import LEAD_NAME, AgentName, TeamName, agent_name, team_name
from shoal.core.roster import Newcomer
from shoal.core.tasks import Change

clock, ids = SystemClock(), Ids()


def call(name: str, **arguments: object) -> ToolUse:
    return ToolUse(id=ids.short(), name=name, input=arguments)


async def say(session: shoal.Session, prompt: str) -> str:
    async for event in session.run(prompt):
        last = event
    assert isinstance(last, shoal.events.Finished)
    return last.text


def letter(sender: AgentName, text: str) -> Mail:
    return Mail(id=ids.uuid(), sender=sender, text=text, timestamp=iso(clock.now()), summary=text[:40])


WORK = {
    "1": call("Write", file_path="hello.txt", content="hello\n"),
    "2": call("Read", file_path="hello.txt"),
}
"""Tool call of the scripted model for each task."""


async def plan(record: shoal.AgentsRecord, team: TeamName, project: Path) -> None:
    """Put two tasks on the board by the lead's model; the second is blocked by the first."""
    mind = [
        [
            call("TaskCreate", subject="Write the greeting", description="hello.txt says hello"),
            call("TaskCreate", subject="Check the greeting", description="hello.txt is read back"),
        ],
        call("TaskUpdate", taskId="2", addBlockedBy=["1"]),
        "Two tasks are on the board.",
    ]
    async with shoal.open(
        cwd=project, name=LEAD_NAME, team=team, model=shoal.ScriptedModel(mind), mode="acceptEdits"
    ) as lead:
        print("team-lead:", await say(lead, "Plan the greeting."))
    for task in await record.board(team).list():
        print(
            f"  #{task.id} {task.subject}"
            + (f" (after {', '.join(task.blocked_by)})" if task.blocked_by else "")
        )


async def teammate(record: shoal.AgentsRecord, team: TeamName, name: AgentName, project: Path) -> None:
    """Take the first message, then one task from the board, do it, and report to the lead."""
    board, mail = record.board(team), record.mailboxes(team)
    await mail.wait(name)
    (first,) = await mail.take(name)
    claim = None
    while claim is None:
        await board.wait_claimable()
        claim = await board.claim_next(by=name)
    task = claim.task
    assert task is not None
    model = shoal.ScriptedModel([WORK[task.id], f"{WORK[task.id].name} is done."])
    async with shoal.open(cwd=project, name=name, team=team, model=model, mode="acceptEdits") as session:
        said = await say(session, f"{first.text}\n\n{task.subject}: {task.description}")
        await mail.mark(name, [first.id])
    await board.update(task.id, Change(status="completed", attempt=claim.attempt), by=name)
    await record.post(team, LEAD_NAME, letter(name, f"#{task.id} {task.subject}: {said}"))


async def main(home: Path, project: Path) -> None:
    record = shoal.AgentsRecord(home, clock=clock, ids=ids)

    me = Newcomer(name=LEAD_NAME, agent_type="lead", model="scripted", cwd=str(project), prompt="")
    team = await record.rosters.create(
        team_name("greeters"), lead=me, session=ids.uuid(), description="says hello"
    )
    print(f"created {team.name}")
    await plan(record, team.name, project)

    async with asyncio.TaskGroup() as members:
        for wanted in ("anna", "ben"):
            newcomer = Newcomer(
                name=agent_name(wanted),
                agent_type="worker",
                model="scripted",
                cwd=str(project),
                prompt="Take a task.",
            )
            member = await record.join(team.name, newcomer)
            print(f"spawned {member.agent_id} ({member.color})")
            members.create_task(teammate(record, team.name, member.name, project))

    for report in await record.mailboxes(team.name).take(LEAD_NAME):
        print(f"{report.sender}: {report.text}")
    states = {task.id: task.status for task in await record.board(team.name).list()}
    print(f"board: {states}")

    for name in ("anna", "ben"):
        await record.rosters.leave(team.name, agent_name(name))
    await record.rosters.delete(team.name)
    print(f"teams left: {len(await record.rosters.list())}")
    await record.aclose()
    print(f"shut down; left in the project: {(project / 'hello.txt').read_text().strip()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ["SHOAL_HOME"] = place
        (Path(place) / "project").mkdir()
        asyncio.run(main(Path(place), Path(place) / "project"))
