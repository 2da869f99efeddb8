"""The full-screen terminal: a conversation, an input line, and panels one key away.

Drawing is rate-limited, however many events arrive, so that typing is never blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.filter import LineFilter
from textual.widgets import Static
from textual.worker import WorkerFailed

from shoal.core.ids import LEAD, AgentId
from shoal.surfaces.terminal.dialogue import in_front
from shoal.surfaces.terminal.paint import YELLOW
from shoal.surfaces.tui.answering import AnswerScreen
from shoal.surfaces.tui.attaching import message_of
from shoal.surfaces.tui.completing import Half, Proposal, files_of, fitting, mentions
from shoal.surfaces.tui.composer import Composer, Proposals
from shoal.surfaces.tui.conversation import ConversationView
from shoal.surfaces.tui.foot import activity_line, foot_line, head_line
from shoal.surfaces.tui.harmless import Harmless
from shoal.surfaces.tui.panels.agents import AgentsPanel
from shoal.surfaces.tui.panels.panel import Panel
from shoal.surfaces.tui.seat import Seat
from shoal.surfaces.tui.side import Side

PACE = 1 / 15
"""Seconds between two draws."""
TICK = 0.5
"""Seconds between two updates of elapsed times."""
QUIET = 0.8
"""Seconds without a key press after which a question may open by itself."""
WIDE = 100
"""Columns from which on a panel is shown beside the conversation and not over it."""
_ALWAYS = frozenset({"redraw", "suspend_process", "nothing", "end_of_input", "interrupt"})


class ShoalApp(App[None]):
    """Shows one run at a time, set by `attach_run`."""

    CSS_PATH = "shoal.tcss"
    TITLE = "shoal"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - as Textual has it
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+d", "end_of_input", show=False, priority=True),
        Binding("escape", "escape", show=False),
        Binding("shift+tab", "next_mode", show=False, priority=True),
        Binding("ctrl+b", "to_background", show=False, priority=True),
        Binding("f1", "help", show=False, priority=True),
        Binding("f2", "panel('agents')", show=False, priority=True),
        Binding("ctrl+t", "panel('tasks')", show=False, priority=True),
        Binding("f3", "panel('mail')", show=False, priority=True),
        Binding("f4", "panel('questions')", show=False, priority=True),
        Binding("f5", "lead", show=False, priority=True),
        Binding("f6", "other_side", show=False, priority=True),
        Binding("ctrl+o", "fold", show=False, priority=True),
        Binding("ctrl+l", "redraw", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
        Binding("ctrl+q", "nothing", show=False, priority=True),
        Binding("pageup", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(1)", show=False),
    ]

    def __init__(self, history: Path) -> None:
        super().__init__()
        self.seat: Seat | None = None
        self.hung_up = 0
        """Exit status if the person left before any run was attached."""
        self.broke: BaseException | None = None
        """Exception that ended the app."""
        self._early: list[str] = []
        """Texts submitted while no run could accept them."""
        self._leaving: int | None = None
        self._files: list[str] | None = None
        self._due = self._drawing = False
        self.drawings = 0
        self._put_off: set[str] = set()
        """Questions that were opened once; those left open are answered from the panel."""
        self._answer: asyncio.Future[str] | None = None
        self._draft = ""
        self._harmless = Harmless()
        self._proposals = Proposals(id="proposals")
        self._head, self._activity, self._foot = Static(id="head"), Static(id="activity"), Static(id="foot")
        self._box = Vertical(id="line")
        self.composer = Composer(history, self._proposals, self._propose)
        self.view = ConversationView()
        self.side = Side()
        self.when_ready: Callable[[], object] = lambda: None

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._harmless]

    def compose(self) -> ComposeResult:
        yield self._head
        with Horizontal(id="middle"):
            yield self.view
            yield self.side
        yield self._proposals
        yield self._activity
        with self._box:
            yield self.composer
        yield self._foot

    def on_ready(self) -> None:
        self.when_ready()

    def on_mount(self) -> None:
        self._proposals.display = self._activity.display = False
        self.composer.focus()
        self.set_interval(TICK, self._tick)

    def _handle_exception(self, error: Exception) -> None:
        # Textual would print the values of all variables, and not how to continue.
        self.broke = self.broke or (error.error if isinstance(error, WorkerFailed) else error)
        super()._handle_exception(error)
        self._exit_renderables.clear()

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()

    # The run

    async def sit(self, seat: Seat) -> None:
        """Show this run from now on."""
        self.seat, self._files = seat, None
        seat.stage.stir = self.stir
        await self.side.sit(seat.stage)
        await self.view.show(seat.stage.conversation(seat.viewed))
        self.stir()

    def stir(self) -> None:
        """Schedule a draw."""
        if not self._due and self.is_running:
            self._due = True
            self.set_timer(PACE, self._draw_soon)

    @property
    def is_behind(self) -> bool:
        """True if a draw is scheduled or running."""
        return self._due or self._drawing

    @property
    def unsent(self) -> tuple[str, ...]:
        """Texts typed that no run has accepted."""
        return (*self._early, self.composer.whole)

    def is_holding(self, text: str) -> bool:
        """Return True if the text was submitted and waits for a run that accepts it."""
        return text in self._early

    def _draw_soon(self) -> None:
        # On the view's own message pump: keys go through the app's and do not wait for drawing.
        self.view.call_later(self._draw)

    async def _draw(self) -> None:
        self._due = False
        seat = self.seat
        if seat is None or self._drawing or not self.view.is_attached:
            return
        self._drawing = True
        self.drawings += 1
        try:
            seat.catch_up()
            if seat.open and self._leaving is not None:
                seat.leave(self._leaving)
            await self._say_all()
            conversation = seat.stage.conversation(seat.viewed)
            if self.view.showing is not conversation:
                await self.view.show(conversation)
            await self.view.draw()
            self.side.look()
            self._tell()
            self._put_question()
        finally:
            self._drawing = False

    def _tick(self) -> None:
        if self.seat is not None and self.seat.doing:
            self._tell()
        self._put_question()

    # Questions

    @property
    def is_asking(self) -> bool:
        """True if the person is answering a question."""
        return self._answer is not None or any(isinstance(each, AnswerScreen) for each in self.screen_stack)

    def pop_screen(self) -> AwaitComplete:
        # Closing a question unblocks what arrived meanwhile.
        self.stir()
        return super().pop_screen()

    def _put_question(self) -> None:
        """Open the oldest question not shown before, unless the person is typing."""
        seat = self.seat
        if seat is None or len(self.screen_stack) > 1 or self.composer.text or self._answer is not None:
            return
        if self.side.shown == "questions" or self.composer.quiet_for < QUIET:
            return
        for row in seat.stage.picture.open_questions():
            if row.id not in self._put_off:
                self._put_off.add(row.id)
                screen = AnswerScreen(row, seat.stage.helm, picture=seat.stage.picture, unasked=True)
                self.push_screen(screen, lambda _: self.stir())
                return

    def _tell(self) -> None:
        seat = self.seat
        if seat is None:
            return
        columns = self.size.width
        self._head.update(head_line(seat, columns))
        self._foot.update(foot_line(seat, columns))
        self._activity.display = bool(seat.doing)
        self._activity.update(activity_line(seat))
        line = self._box
        mode = seat.stage.picture.run.mode
        for each in ("acceptEdits", "plan", "bypassPermissions"):
            line.set_class(mode == each, f"-{each}")
        if self._answer is None:
            row = seat.stage.picture.agent(seat.viewed)
            to = "" if row is None or seat.viewed == LEAD else f" to {row.name} "
            line.border_title = to

    def on_resize(self) -> None:
        self._tell()

    @property
    def _open_seat(self) -> Seat | None:
        return self.seat if self.seat is not None and self.seat.open else None

    # Input

    @on(Composer.Entered)
    async def _entered(self, event: Composer.Entered) -> None:
        if self._answer is not None:
            if not self._answer.done():
                self._answer.set_result(event.text)
            return
        if event.text.strip():
            self.view.anchor()
            self._early.append(event.text)
            await self._say_all()

    async def _say_all(self) -> None:
        """Send the submitted texts in order, as soon as the run accepts them."""
        while self._early and self.seat is not None and self.seat.open:
            await self._say(self.seat, self._early.pop(0))

    async def _say(self, seat: Seat, text: str) -> None:
        message, told = message_of(text, seat.root, images=seat.takes_images)
        for words in told:
            seat.stage.conversation(seat.viewed).script.remark(words, YELLOW)
        seat.say(message)

    async def ask(self, label: str) -> str:
        """Return the next typed line as the answer to a question of the program."""
        self._answer = asyncio.get_running_loop().create_future()
        composer = self.composer
        self._draft, composer.asking = composer.text, True
        composer.put("")
        line = self._box
        line.border_title = f" {label} "
        line.add_class("-asks")
        composer.focus()
        try:
            return await self._answer
        finally:
            self._answer, composer.asking = None, False
            if self.is_running:
                line.border_title = ""
                line.remove_class("-asks")
                composer.put(self._draft)

    def offer(self, text: str) -> None:
        """Put the text before the draft; if a question is open, before the draft that returns after it."""
        if self._answer is not None:
            self._draft = in_front(text, self._draft)
        else:
            self.composer.put(in_front(text, self.composer.text))

    def clear_line(self) -> None:
        self.composer.clear_line()

    def _propose(self, half: Half) -> Sequence[Proposal]:
        seat = self.seat
        if seat is None:
            return ()
        if half.kind == "command":
            return fitting(half.typed, seat.commands())
        if self._files is None:
            self._files = []
            self.run_worker(self._look_for_files(seat), exclusive=True, group="files")
        return mentions(half.typed, self._files, seat.agents())

    async def _look_for_files(self, seat: Seat) -> None:
        self._files = await asyncio.to_thread(files_of, seat.root)
        self.composer.look_for_proposals()

    # Keys

    def action_interrupt(self) -> None:
        composer = self.composer
        if composer.has_focus and composer.selected_text:
            composer.action_copy()
        elif (words := self.screen.get_selected_text()) is not None and words:
            self.copy_to_clipboard(words)
            self.screen.clear_selection()
        elif self._answer is not None:
            # A cancelled question cancels the command that asked it.
            self._answer.cancel()
        elif (seat := self._open_seat) is not None:
            seat.interrupt(composer.text)
        else:
            self.leave(130)

    def action_end_of_input(self) -> None:
        if self.composer.has_focus and self.composer.text:
            self.composer.action_delete_right()
        else:
            self.leave()

    def leave(self, status: int = 0) -> None:
        """Leave now; if no run can be left yet, as soon as one can; the second time, exit at once."""
        if self.seat is not None and self.seat.open:
            self.seat.leave(status)
        elif self._leaving is None:
            self._leaving = status
        else:
            self.hung_up = status
            self.exit()

    def action_escape(self) -> None:
        """Leave the innermost thing: a panel, a turn, or an agent's conversation."""
        if self.side.shown and not self.composer.has_focus:
            self.close_panel()
        elif (seat := self._open_seat) is None or seat.stop_turn():
            pass
        elif seat.viewed != LEAD:
            self.action_lead()
        elif self.side.shown:
            self.close_panel()

    def action_next_mode(self) -> None:
        if (seat := self._open_seat) is not None:
            seat.next_mode()

    def action_to_background(self) -> None:
        if (seat := self._open_seat) is None or not seat.to_background():
            self.composer.action_cursor_left()

    def action_help(self) -> None:
        from shoal.core.messages import user

        if (seat := self._open_seat) is not None:
            seat.say(user("/help"))

    def action_panel(self, name: str) -> None:
        """Show the panel and focus it; close it if it has the focus already."""
        if name == self.side.shown and self.side.has_focus_within:
            self.close_panel()
        else:
            self.side.show(name)
            self.screen.add_class("-side")

    def close_panel(self) -> None:
        self.side.close()
        self.screen.remove_class("-side")
        self.composer.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the app's keys while a question or another screen is open."""
        return len(self.screen_stack) == 1 or action in _ALWAYS

    @on(Panel.Left)
    def _panel_left(self) -> None:
        if self.side.shown:
            self.close_panel()

    @on(AgentsPanel.Chosen)
    def _agent_chosen(self, event: AgentsPanel.Chosen) -> None:
        if self.size.width < WIDE:
            self.close_panel()
        self.talk_to(AgentId(event.agent.id), event.agent.name)

    def action_lead(self) -> None:
        self.talk_to(LEAD, "lead")

    def talk_to(self, agent: AgentId, name: str) -> None:
        if (seat := self._open_seat) is not None:
            seat.view(agent, name)
            self.composer.focus()
            self.stir()

    def action_other_side(self) -> None:
        """Move the focus from the input line to the conversation, to the panel, and back."""
        if self.composer.has_focus:
            self.view.step(0)
            if self.composer.has_focus:
                self.view.focus()
        elif self.side.shown and not self.side.has_focus_within:
            self.side.go_there()
        else:
            self.composer.focus()

    def action_fold(self) -> None:
        self.view.fold_all()

    def action_scroll(self, by: int) -> None:
        view = self.view
        if by < 0:
            view.scroll_page_up(animate=False)
        elif view.max_scroll_y - view.scroll_y <= view.size.height:
            view.anchor()
        else:
            view.scroll_page_down(animate=False)

    def action_redraw(self) -> None:
        self.refresh(layout=True, repaint=True)

    def action_nothing(self) -> None:
        """Do nothing, for a key that would end the app by accident."""
