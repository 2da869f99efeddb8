"""Reader of the demo team's files: tasks that were claimed or completed, and new mail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import Clock
from shoal.core.errors import InboxNotFound
from shoal.core.ids import IdGenerator
from shoal.core.names import LEAD_NAME, AgentName, TaskId
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import MailBody
from shoal.core.teams.tasks import Task, sort_tasks_by_number
from shoal.wire.mail_body_codec import get_authorized_mail_body
from shoal.wire.task_codec import ParsedTaskFile, parse_task


class DemoTaskTransition(Struct, frozen=True):
    """Task that was claimed or completed."""

    task: Task
    how: Literal["taken", "done"]


class DemoDeliveredMail(Struct, frozen=True):
    to: AgentName
    mail: MailMessage
    body: MailBody | None


class DemoTeamFilesReader:
    """Reads the team's files again on each call, as any other program would."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._home = home
        self._store = TeamStore(home, clock=clock, ids=IdGenerator())
        self._seen_mail: set[str] = set()
        self.team = ""
        self.names: list[AgentName] = [LEAD_NAME]
        self.tasks: Sequence[Task] = ()

    def follow_team(self, team: str) -> None:
        self.team = team

    async def read_mail(self) -> list[DemoDeliveredMail]:
        """Return all mail ever delivered, the oldest first."""
        if not self.team:
            return []
        mailboxes, delivered = self._store.open_mailboxes(self.team), list[DemoDeliveredMail]()
        for name in self.names:
            try:
                delivered += [
                    DemoDeliveredMail(name, mail, get_authorized_mail_body(mail))
                    for mail in await mailboxes.read_history(name)
                ]
            except InboxNotFound:
                continue
        return sorted(delivered, key=lambda message: message.mail.timestamp)

    async def aclose(self) -> None:
        await self._store.aclose()

    def read_task_transitions(self) -> list[DemoTaskTransition]:
        tasks_before = {task.id: task for task in self.tasks}
        self.tasks = self.read_tasks() if self.team else ()
        transitions: list[DemoTaskTransition] = []
        for task in self.tasks:
            old = tasks_before.get(task.id)
            old_status = "pending" if old is None else old.status
            if old_status == "pending" != task.status:
                transitions.append(DemoTaskTransition(task, "taken"))
            if task.status == "completed" != old_status:
                transitions.append(DemoTaskTransition(task, "done"))
        return transitions

    async def read_new_mail(self) -> list[DemoDeliveredMail]:
        new_mail = [message for message in await self.read_mail() if message.mail.id not in self._seen_mail]
        self._seen_mail.update(message.mail.id for message in new_mail)
        return new_mail

    def read_tasks(self) -> list[Task]:
        # Reads the files only: opening the board releases the tasks of dead members, which the lead decides.
        task_paths = (self._home / "tasks" / self.team).glob("[0-9]*.json")
        parsed_tasks = (parse_task(path.read_bytes(), TaskId(path.stem)) for path in task_paths)
        return sort_tasks_by_number(file.task for file in parsed_tasks if isinstance(file, ParsedTaskFile))
