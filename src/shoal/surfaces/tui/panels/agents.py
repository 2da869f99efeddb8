"""Panel of the agents of a run, with keys to view, interrupt, move, stop and kill one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from shoal.app.picture.rows import AgentRow, Frame, QuestionRow
from shoal.core.ids import LEAD
from shoal.core.wording import dollars, many
from shoal.surfaces.tui.panels.agent_lines import ENDED, agent_line, detail_lines, last_heard, titles
from shoal.surfaces.tui.panels.cells import ASKS, GOOD, MUTED, Part, line
from shoal.surfaces.tui.panels.dialogs import ConfirmScreen
from shoal.surfaces.tui.panels.list_panel import ListPanel
from shoal.surfaces.tui.panels.panel import tell
from shoal.surfaces.tui.panels.rows import Entry, Rows
from shoal.wire.control import Background, Command, Interrupt, ShutDown, StopTask

_FOLD = "ended agents"
"""Key of the line above the ended agents."""


class AgentsPanel(ListPanel):
    HAS_TITLES = HAS_DETAIL = True
    TICK = 1.0
    DEFAULT_CSS = """
    AgentsPanel > .panel--detail { height: 4; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "Interrupt its turn", show=False),
        Binding("b", "background", "To the background", show=False),
        Binding("x", "stop", "Stop", show=False),
        Binding("k", "kill", "Kill", show=False),
        Binding("a", "answer", "Answer its question", show=False),
        Binding("e", "fold", "Show or hide the ended", show=False),
    ]
    HINTS = "⏎ view · esc interrupt · b background · x stop · k kill · a answer · e ended · q close"

    class Chosen(Message):
        """Posted when the person chooses an agent to view and talk to."""

        def __init__(self, agent: AgentRow) -> None:
            super().__init__()
            self.agent = agent

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._agents: dict[str, AgentRow] = {}
        self._depths: dict[str, int] = {}
        self._ages: dict[str, str] = {}
        """Ages as last drawn."""
        self._unfolded = False

    @property
    def current(self) -> AgentRow | None:
        """Agent at the cursor."""
        return self._agents.get(str(self.rows.cursor))

    # Drawing

    def take(self, frame: Frame, *, anew: bool) -> None:
        if not frame.agents and not anew:
            return
        for row in frame.agents:
            known = self._agents.get(row.id)
            anew = anew or known is None or (known.state in ENDED) != (row.state in ENDED)
            self._agents[row.id] = row
            self.rows.touch(row.id)
        if anew:
            self._arrange()
        self._tell_sums()
        self.show_detail()

    def _arrange(self) -> None:
        living: list[Entry] = []
        ended: list[Entry] = []
        for standing in self.picture.standings.tree():
            row = self._agents.get(standing.agent)
            if row is not None:
                self._place(row)
                (ended if row.state in ENDED else living).append(Entry(row.id))
        if ended:
            self.rows.touch(_FOLD)
            living.append(Entry(_FOLD))
        self.rows.put_in_order([*living, *(ended if self._unfolded else ())])

    def _place(self, row: AgentRow) -> None:
        """Set the row's depth: the number of its ancestors that are shown above it."""
        depth, parent = 0, self._agents.get(row.parent)
        seen = {row.id}
        while parent is not None and parent.id not in seen:
            seen.add(parent.id)
            depth += parent.state not in ENDED or row.state in ENDED
            parent = self._agents.get(parent.parent)
        if self._depths.get(row.id) != depth:
            self._depths[row.id] = depth
            self.rows.touch(row.id)

    def draw_row(self, key: Hashable, width: int) -> list[Content]:
        if key == _FOLD:
            return [self._fold_line()]
        row, now = self._agents[str(key)], self.clock.now()
        self._ages[row.id] = last_heard(row, now)
        depth = self._depths.get(row.id, 0)
        return [agent_line(row, depth=depth, now=now, width=width, question=self._question(row))]

    def _fold_line(self) -> Content:
        ended = sum(row.state in ENDED for row in self._agents.values())
        failed = sum(row.state in ("failed", "gone") for row in self._agents.values())
        told = f"{ended} ended" + (f", {failed} of them not well" if failed else "")
        return line((f"{'▾' if self._unfolded else '▸'} {told}", MUTED))

    def _question(self, row: AgentRow) -> QuestionRow | None:
        return self.picture.questions.get(row.question) if row.question else None

    def _tell_sums(self) -> None:
        states = [row.state for row in self._agents.values()]
        parts: list[Part] = [("Agents", "bold")]
        for state, style in (("working", GOOD), ("waiting", ASKS), ("idle", MUTED)):
            if number := states.count(state):
                parts.append((f"  {number} {state}", style))
        costs = self.picture.costs
        priced = "" if not costs.unpriced else f" and {many(costs.unpriced, 'request')} without a price"
        parts.append((f"  {dollars(costs.usd)}{priced}", MUTED))
        self.head(line(*parts))

    def show_detail(self) -> None:
        row, detail = self.current, self.query_one(".panel--detail", Static)
        if row is None:
            detail.update("", layout=False)
            return
        told = detail_lines(row, self._question(row), self.clock.now())
        detail.update(Content("\n").join(told), layout=False)

    def tick(self) -> None:
        """Redraw the visible rows whose displayed age changed."""
        now = self.clock.now()
        for key in self.rows.in_sight() if self._shown else ():
            row = self._agents.get(str(key))
            if row is not None and self._ages.get(row.id) not in (None, last_heard(row, now)):
                self.rows.touch(row.id)
                if key == self.rows.cursor:
                    self.show_detail()

    def on_resize(self) -> None:
        width = self.rows.scrollable_content_region.width or self.size.width - 2
        self.query_one(".panel--titles", Static).update(titles(width), layout=False)

    # Keys

    def on_rows_chosen(self, message: Rows.Chosen) -> None:
        message.stop()
        if message.key == _FOLD:
            self.action_fold()
        elif (row := self._agents.get(str(message.key))) is not None:
            self.post_message(self.Chosen(row))

    def action_fold(self) -> None:
        self._unfolded = not self._unfolded
        self._arrange()

    def action_interrupt(self) -> None:
        for row in self._acted_on():
            command = Interrupt() if row.id == LEAD else Interrupt(task_id=_called(row))
            self.steer(command, partial(_interrupted, row))

    def action_background(self) -> None:
        for row in self._acted_on():
            if row.id == LEAD:
                tell(self, "Nobody waits for the lead: choose one of its agents.", "warning")
                return
            self.steer(Background(task_id=row.id), partial(_moved, row))

    def action_stop(self) -> None:
        for row in self._acted_on(but_lead=True):
            how = (
                "It is asked to finish, and ended when its grace is over."
                if row.team
                else "Its work so far is told to the one that started it."
            )
            self._when_sure(f"Stop {row.name}?", f"{row.task}\n\n{how}", "stop it", partial(self._stop, row))

    def _when_sure(self, title: str, text: str, yes: str, act: Callable[[], None]) -> None:
        self.app.push_screen(ConfirmScreen(title, text, yes=yes), lambda sure: act() if sure else None)

    def _stop(self, row: AgentRow) -> None:
        command: Command = ShutDown(name=row.name) if row.team else StopTask(task_id=row.id)
        if row.team:
            tell(self, f"{row.name} is asked to shut down.")
        self.steer(command, lambda _: f"{row.name} has ended.")

    def action_kill(self) -> None:
        for row in self._acted_on(but_lead=True):
            how = "It is ended at once, in the middle of what it does. What it did so far is kept."
            self._when_sure(f"Kill {row.name}?", f"{row.task}\n\n{how}", "kill it", partial(self._kill, row))

    def _kill(self, row: AgentRow) -> None:
        self.steer(StopTask(task_id=_called(row)), lambda _: f"{row.name} is killed.")

    def action_answer(self) -> None:
        from shoal.surfaces.tui.answering import answer_here

        for row in self._acted_on():
            question = self._question(row)
            if question is None:
                tell(self, f"{row.name} asks nothing.")
            else:
                answer_here(self, question)

    def _acted_on(self, *, but_lead: bool = False) -> Iterator[AgentRow]:
        row = self.current
        if row is None:
            return
        if but_lead and row.id == LEAD:
            tell(self, "The lead ends with its run. Esc interrupts its turn.", "warning")
        elif row.state in ENDED:
            tell(
                self,
                f"{row.name} has ended. Enter shows what it did; what you type there resumes it.",
                "warning",
            )
        else:
            yield row


def _called(row: AgentRow) -> str:
    """Return the id for commands: teammates are addressed by name, other agents by id."""
    return row.name if row.team else row.id


def _interrupted(row: AgentRow, answer: Any) -> str:
    worked = isinstance(answer, dict) and answer.get("interrupted")
    return f"{row.name}'s turn is interrupted." if worked else f"{row.name} is in no turn now."


def _moved(row: AgentRow, answer: Any) -> str:
    if isinstance(answer, dict) and answer.get("moved"):
        return f"{row.name} goes on in the background."
    return f"Nobody waits for {row.name}: it is in the background already."
