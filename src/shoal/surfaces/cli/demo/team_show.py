"""Screen output of the team demo, built from the run's events, its board and its inboxes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from textwrap import wrap

from msgspec import Struct

from shoal.app.picture.standing import Standing, Standings
from shoal.app.session.session import Session
from shoal.core.events import AgentEnded, AgentStarted, Event, Finished, Noted, ToolFinished, ToolStarted
from shoal.core.ids import LEAD
from shoal.core.names import AgentName
from shoal.core.tasks import Task
from shoal.core.wording import dollars, one_line, seconds
from shoal.surfaces.cli.demo.acts import Kill, Killer, StandIn, Target, pid_of
from shoal.surfaces.cli.demo.letters import Parts, letter_parts
from shoal.surfaces.cli.demo.team_files import Moved, TeamFiles
from shoal.surfaces.cli.demo.team_rows import Row, rule, state_of, team_rows
from shoal.surfaces.cli.demo.voices import Voices
from shoal.surfaces.cli.headless.progress import LiveRows
from shoal.surfaces.terminal.feed import Feed, to_the_end
from shoal.surfaces.terminal.paint import BOLD, BOLD_RED, DIM, GREEN, RED, cut, style_of, width
from shoal.surfaces.terminal.screen import Screen

_SILENT = frozenset({"Agent", "TeamCreate", "TaskCreate", "TaskUpdate", "TaskList", "SendMessage"})
_TOLD = frozenset({"Edit", "Write", "Bash"})
"""Tools of members whose calls get a line; other calls show only in the member's row while they run."""
_NAMES = 4
"""Columns of the longest name."""
_INDENT = 4
_DIED = re.compile(r"The process of (\S+) died \((.*)\)")


class Revival(Struct, frozen=True, kw_only=True):
    """Killed process, and the process that replaced it."""

    kill: Kill
    pid: int
    seconds: float


class TeamShow:
    def __init__(self, screen: Screen, session: Session, home: Path, target: Target, *, pause: float) -> None:
        self._screen = screen
        self._session = session
        self._clock = session.agent.clock
        self._since = self._clock.monotonic()
        self._feed = Feed(session)
        self.standings = Standings()
        self._voices = Voices(screen, self.standings, silent=_SILENT)
        self._calls: dict[tuple[str, str], str] = {}
        self._stand_in = StandIn(screen, session, self._voices, pause=3 * pause)
        self._killer = Killer(session, target, pause=9 * pause)
        self._kill: Kill | None = None
        self._board_told = False
        self.files = TeamFiles(home, self._clock)
        self.revival: Revival | None = None

    @property
    def seconds(self) -> float:
        return self._clock.monotonic() - self._since

    @property
    def answered(self) -> int:
        """Number of questions answered for the user."""
        return self._stand_in.answered

    async def run(self, task: str) -> Finished:
        rows = LiveRows(self._screen, self._rows)
        try:
            async with asyncio.TaskGroup() as group:
                acts = [self._tell(), self._stand_in.answer(), self._strike()]
                others = [group.create_task(act) for act in acts]
                finished = await to_the_end(self._session, task)
                for other in others:
                    other.cancel()
            await self._catch_up()
        finally:
            rows.close()
            self._feed.close()
        return finished

    async def _strike(self) -> None:
        kill = self._kill = await self._killer.strike()
        if kill is not None:
            said = f"The demo kills the process of {kill.name} while it works."
            self._voices.part()
            self._voices.add(("✗ ", BOLD_RED), (f"kill -9 {kill.pid}", BOLD_RED), (f"   {said}", RED))

    async def _tell(self) -> None:
        while True:
            await self._catch_up()
            await self._feed.news()

    async def _catch_up(self) -> None:
        # Mail is posted before the call that posts it ends; a task is completed after the last call for it.
        for letter in await self.files.new_mail():
            if (parts := letter_parts(letter, self._style)) is not None:
                self._add_wrapped(parts)
        for event in self._feed.taken():
            it = self.standings.hear(event, self._clock.monotonic())
            if event.agent == LEAD:
                await self._hear_lead(event)
            else:
                self._hear_member(event, it)
        for moved in self.files.moved():
            self._tell_moved(moved)

    async def _hear_lead(self, event: Event) -> None:
        died = _DIED.match(event.text) if isinstance(event, Noted) else None
        if died is not None and self._kill is not None and died[1] == self._kill.name:
            self._tell_revival(self._kill, died[2])
            return
        self._voices.hear_lead(event)
        match event:
            case ToolFinished(tool="TeamCreate"):
                self.files.team = self._session.agent.identity.team or ""
            case ToolStarted(tool="Agent") if not self._board_told:
                self._board_told = True
                self.files.moved()
                self._tell_board()
            case _:
                pass

    def _tell_board(self) -> None:
        for number, task in enumerate(self.files.tasks):
            head = f"  {'' if number else f'the board of {self.files.team}':<22}"
            subject = f"#{task.id} {task.subject}"
            if task.blocked_by:
                after = f"after {', '.join(task.blocked_by)}"
                self._voices.add((head, DIM), (f"{subject:<25}", ""), (after, DIM))
            else:
                self._voices.add((head, DIM), (subject, ""))

    def _hear_member(self, event: Event, it: Standing) -> None:
        match event:
            case AgentStarted() if it.who not in self.files.names:
                self.files.names.append(AgentName(it.who))
                plans = ", and plans first" if event.mode == "plan" else ""
                self._add(it, (f"joins, in process {pid_of(self._session, it.who)}{plans}", ""))
            case AgentEnded(completion=done) if done.status == "completed":
                self._add(it, ("has shut down", ""))
            case AgentEnded(completion=done):
                self._add(it, (f"ended: {one_line(done.detail)}", RED))
            case ToolStarted(call=call, tool=tool, preview=preview) if tool in _TOLD:
                self._calls[it.who, call] = f"{tool} {one_line(preview)}"
            case ToolFinished(call=call) if (it.who, call) in self._calls:
                words, style = _came_to(event)
                room = max(self._screen.columns - 2 - _NAMES - 4 - width(words), 12)
                preview = cut(self._calls.pop((it.who, call)), room)
                self._add(it, (preview, DIM), (f"  {words}", style))
            case _:
                pass

    def _tell_revival(self, kill: Kill, how: str) -> None:
        """Print the restart once the lead has noticed the death and a new process exists."""
        pid, it = pid_of(self._session, kill.name), self._standing(kill.name)
        if it is None or pid is None or pid == kill.pid:
            return
        took = self._clock.monotonic() - kill.at
        self.revival = Revival(kill=kill, pid=pid, seconds=took)
        self._add(it, (f"died: {how}", RED))
        self.files.moved()
        held = [f"#{task.id}" for task in self.files.tasks if self._is_held(task, kill.name)]
        kept = " and ".join(("its history", *held))
        self._add(it, (f"goes on in process {pid} after {seconds(took)}, with {kept}", BOLD))

    def _tell_moved(self, news: Moved) -> None:
        task, it = news.task, self._standing(news.task.owner or "")
        what = f"#{task.id} {task.subject}"
        if it is None:
            return
        if news.how == "taken":
            self._add(it, ("takes ", ""), (what, BOLD))
        else:
            self._add(it, ("✓ ", GREEN), (what, ""), (" is done", GREEN))

    def _add(self, it: Standing, *parts: tuple[str, str]) -> None:
        style = style_of(it.color)
        self._voices.add(("● ", style), (f"{it.who:<{_NAMES}}  ", style), *parts)

    def _add_wrapped(self, parts: Parts) -> None:
        """Add a line whose last part, if it is too long, continues on the next lines."""
        *head, (text, style) = parts
        room = self._screen.columns - sum(width(part) for part, _ in head)
        if not self._screen.live or width(text) <= room:
            self._voices.add(*parts)
            return
        first, *rest = wrap(text, max(room, 20))
        self._voices.add(*head, (first, style))
        for line in wrap(" ".join(rest), max(self._screen.columns - _INDENT, 20)):
            self._voices.add((" " * _INDENT, ""), (line, style))

    def _standing(self, name: str) -> Standing | None:
        return next((each for each in self.standings.children() if each.who == name), None)

    def _style(self, name: str) -> str:
        it = self._standing(name)
        return BOLD if it is None else style_of(it.color)

    def _is_held(self, task: Task, name: str) -> bool:
        return task.owner == name and task.status == "in_progress"

    def _rows(self, columns: int) -> list[str]:
        colours, rows = self._screen.colours, list[Row]()
        for it in sorted(self.standings.all.values(), key=lambda each: (each.agent != LEAD, each.who)):
            held = [task for task in self.files.tasks if self._is_held(task, it.who)]
            dead = self._kill is not None and self._kill.name == it.who and self.revival is None
            state, style = state_of(it, dead=dead, has_task=bool(held))
            task = ", ".join(f"#{task.id} {task.subject}" for task in held)
            rows.append(Row(standing=it, state=state, style=style, task=task))
        usd = sum(it.usd for it in self.standings.all.values())
        told = f"{dollars(usd)} · {self.seconds:.0f} s"
        above = rule(self.files.team or "no team yet", self.files.tasks, told, columns, colours=colours)
        return ["", above, *team_rows(rows, columns, colours=colours)]


def _came_to(event: ToolFinished) -> tuple[str, str]:
    """Summarize the result of a member's call; the lead gets only the beginning of its output."""
    if event.is_error:
        return "✗ fails", RED
    last = one_line(event.preview.strip().rsplit("\n", 1)[-1])
    return (f"→ {last}", GREEN) if event.tool == "Bash" else ("changed", GREEN)
