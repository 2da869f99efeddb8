"""Reader of the demo team's files: tasks that were claimed or completed, and new mail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from shoal.app.teams.record import AgentsRecord
from shoal.core.bodies import Body
from shoal.core.clock import Clock
from shoal.core.errors import NoSuchInbox
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import LEAD_NAME, AgentName, TaskId
from shoal.core.tasks import Task, by_number
from shoal.wire.bodies import body_of
from shoal.wire.tasks import TaskFile, read_task


class Moved(Struct, frozen=True):
    """Task that was claimed or completed."""

    task: Task
    how: Literal["taken", "done"]


class Letter(Struct, frozen=True):
    to: AgentName
    mail: Mail
    body: Body | None


class TeamFiles:
    """Reads the team's files again on each call, as any other program would."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._home = home
        self._record = AgentsRecord(home, clock=clock, ids=Ids())
        self._letters: set[str] = set()
        self.team = ""
        self.names: list[AgentName] = [LEAD_NAME]
        self.tasks: Sequence[Task] = ()

    async def mail(self) -> list[Letter]:
        """Return all mail ever delivered, the oldest first."""
        if not self.team:
            return []
        boxes, found = self._record.mailboxes(self.team), list[Letter]()
        for name in self.names:
            try:
                found += [Letter(name, mail, body_of(mail)) for mail in await boxes.history(name)]
            except NoSuchInbox:
                continue
        return sorted(found, key=lambda letter: letter.mail.timestamp)

    async def aclose(self) -> None:
        await self._record.aclose()

    def moved(self) -> list[Moved]:
        before = {task.id: task for task in self.tasks}
        self.tasks = self._tasks() if self.team else ()
        moved: list[Moved] = []
        for task in self.tasks:
            old = before.get(task.id)
            was = "pending" if old is None else old.status
            if was == "pending" != task.status:
                moved.append(Moved(task, "taken"))
            if task.status == "completed" != was:
                moved.append(Moved(task, "done"))
        return moved

    async def new_mail(self) -> list[Letter]:
        fresh = [letter for letter in await self.mail() if letter.mail.id not in self._letters]
        self._letters.update(letter.mail.id for letter in fresh)
        return fresh

    def _tasks(self) -> list[Task]:
        # Reads the files only: opening the board releases the tasks of dead members, which the lead decides.
        found = (self._home / "tasks" / self.team).glob("[0-9]*.json")
        read = (read_task(path.read_bytes(), TaskId(path.stem)) for path in found)
        return by_number(file.task for file in read if isinstance(file, TaskFile))
