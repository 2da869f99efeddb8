"""Report of a team that has nothing left to do, and why some of its tasks are not completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.events import AgentEnded, Event, MemberWentIdle, MemberWoken
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.roster import format_agent_id
from shoal.core.teams.tasks import REFUSAL_KEY, Task, find_open_blockers
from shoal.core.teams.team_operations import TeammateStatusSnapshot


class TeamReport(Struct, frozen=True, kw_only=True):
    """State of a team that has nothing left to do."""

    team: str
    """Name of the team."""
    tasks: tuple[Task, ...]
    """All tasks of the board by number."""
    messages: tuple[MailMessage, ...]
    """Mail that the lead received, oldest first."""
    text: str = ""
    """Last text of the lead; empty if the program leads the team."""
    cost_usd: float | None = None
    """Cost of the whole team in dollars; None if the price of a model is unknown."""
    usage: Usage = Usage()
    """Tokens of the whole team."""
    reasons: Mapping[str, str] = {}
    """Why each unfinished task is not completed, by the id of the task."""

    @property
    def unfinished(self) -> tuple[Task, ...]:
        """Tasks that are not completed."""
        return tuple(task for task in self.tasks if task.status != "completed")

    @property
    def ok(self) -> bool:
        """True if every task is completed."""
        return not self.unfinished

    @property
    def detail(self) -> str:
        """One paragraph for each unfinished task: its number, its subject and the reason."""
        return "\n".join(
            f"#{task.id} {task.subject}: {self.reasons.get(task.id, 'It is not completed.')}"
            for task in self.unfinished
        )


class MemberEndings:
    """How the last working period of each member ended, collected from events."""

    def __init__(self) -> None:
        self._endings: dict[str, str] = {}

    def on_event(self, event: Event) -> None:
        match event:
            case MemberWoken(agent=agent):
                self._endings.pop(agent, None)
            case MemberWentIdle(agent=agent, reason="failed", detail=detail):
                self._endings[agent] = f"failed: {detail or 'it gave no reason'}"
            case MemberWentIdle(agent=agent, reason="interrupted"):
                self._endings[agent] = "was interrupted"
            case AgentEnded(agent=agent, completion=completion):
                detail = f": {completion.detail}" if completion.detail else ""
                self._endings[agent] = f"has ended ({completion.status}){detail}"

    def list_members(self, team: str) -> list[AgentName]:
        """Return the names of the team's members that did not just finish their turns."""
        suffix = f"@{team}"
        return [AgentName(each.removesuffix(suffix)) for each in self._endings if each.endswith(suffix)]

    def find_ending(self, agent: str) -> str:
        """Return how it ended as part of a sentence; empty if it just finished its turn."""
        return self._endings.get(agent, "").rstrip(".")


def explain_unfinished_tasks(
    team: str,
    tasks: Iterable[Task],
    members: Iterable[TeammateStatusSnapshot],
    endings: MemberEndings,
    stopped: str = "",
) -> dict[str, str]:
    """Return the reason for each unfinished task, by its id. `stopped` is why the whole team was stopped."""
    board = {task.id: task for task in tasks}
    states = {member.name: member for member in members}

    def describe_member(name: AgentName) -> str:
        member = states.get(name)
        if member is not None and member.state == "down":
            return f"{name} is down: {member.down_cause.rstrip('.') or 'it failed'}"
        ending = endings.find_ending(format_agent_id(name, TeamName(team)))
        if ending:
            return f"{name} {ending}"
        return f"{name} has left the team" if member is None else ""

    def explain_task(task: Task) -> str:
        if stopped:
            return f"The team was stopped: {stopped}."
        if blockers := find_open_blockers(task, board):
            return f"It waits for {_join_tasks(blockers)}."
        refusal = task.metadata.get(REFUSAL_KEY)
        refused = f" {refusal}" if isinstance(refusal, str) and refusal else ""
        if task.owner is None:
            names = dict.fromkeys((*states, *endings.list_members(team)))
            problems = "; ".join(filter(None, map(describe_member, names)))
            return f"No member claimed it.{f' {problems}.' if problems else ''}{refused}"
        if problem := describe_member(task.owner):
            return f"Its owner {problem}.{refused}"
        ended = "ended its turn without completing it" if task.status == "in_progress" else "did not start it"
        return f"Its owner {task.owner} {ended}.{refused}" if not refused else refused.strip()

    return {task.id: explain_task(task) for task in board.values() if task.status != "completed"}


def is_startable(task: Task, tasks: Iterable[Task]) -> bool:
    """Return True if the task is not completed and waits for no other task."""
    board: dict[TaskId, Task] = {each.id: each for each in tasks}
    return task.status != "completed" and not find_open_blockers(task, board)


def _join_tasks(tasks: Iterable[str]) -> str:
    numbers = [f"#{task}" for task in tasks]
    return numbers[0] if len(numbers) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"
