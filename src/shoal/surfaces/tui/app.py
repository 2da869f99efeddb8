"""The full-screen terminal: a conversation, an input line, and panels one key away.

Drawing is rate-limited, however many events arrive, so that typing is never blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Horizontal, Vertical
from textual.filter import LineFilter
from textual.widgets import Static
from textual.worker import WorkerFailed

from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.text.text_format import strip_control_characters
from shoal.surfaces.terminal.foreign_keys import FOREIGN_KEYS, ForeignKeyNotes
from shoal.surfaces.terminal.prompt_history import prepend_to_draft
from shoal.surfaces.terminal.text_styles import YELLOW
from shoal.surfaces.tui.answer_screen import AnswerScreen
from shoal.surfaces.tui.attachments import build_prompt_message
from shoal.surfaces.tui.completions import (
    InputCompletionProposal,
    PartialWordAtCursor,
    list_project_files,
    propose_mentions,
    rank_matching_proposals,
)
from shoal.surfaces.tui.composer import Composer, ProposalList
from shoal.surfaces.tui.conversation_view import ConversationView
from shoal.surfaces.tui.panels.agents_panel import AgentsPanel
from shoal.surfaces.tui.panels.board_panel import BoardPanel
from shoal.surfaces.tui.panels.mail_panel import MailPanel
from shoal.surfaces.tui.panels.panel import TuiPanel
from shoal.surfaces.tui.panels.questions_panel import QuestionsPanel
from shoal.surfaces.tui.run_client import TuiRunClient
from shoal.surfaces.tui.run_presenter import TuiRunPresenter
from shoal.surfaces.tui.status_lines import build_activity_line, build_foot_line, build_head_line

PACE = 1 / 15
"""Seconds between two draws."""
TICK = 0.5
"""Seconds between two updates of elapsed times."""
STARTING = 1.0
"""Seconds after which a session that is not open yet shows that it is starting."""
QUIET = 0.8
"""Seconds without a key press after which a question may open automatically."""
WIDE = 100
"""Minimum columns to show a panel next to the conversation instead of over it."""
_ALWAYS = frozenset({"redraw", "suspend_process", "nothing", "end_of_input", "interrupt"})
PANELS: dict[str, type[TuiPanel]] = {
    "agents": AgentsPanel,
    "tasks": BoardPanel,
    "mail": MailPanel,
    "questions": QuestionsPanel,
}


class SidePanel(Vertical):
    """Next to the conversation if there is room, else over it."""

    def __init__(self) -> None:
        super().__init__(id="side")
        self._panels: dict[str, TuiPanel] = {}
        self._shown = ""
        self.display = False

    @property
    def shown_panel(self) -> str:
        """Name of the shown panel; empty if none is."""
        return self._shown

    async def attach_run(self, presenter: TuiRunPresenter) -> None:
        """Show this run from now on."""
        self._panels = {
            name: panel(presenter.run_view, presenter.controller, clock=presenter.clock)
            for name, panel in PANELS.items()
        }
        for name, panel in self._panels.items():
            panel.display = name == self._shown
        await self.remove_children()
        await self.mount_all(self._panels.values())

    def refresh_panels(self) -> None:
        """Refresh all panels, because the run view changed."""
        for panel in self._panels.values():
            panel.request_refresh()

    def show_panel(self, name: str) -> None:
        """Show this panel and focus it."""
        self._set_shown_panel(name)
        self.focus_panel()

    def close(self) -> None:
        self._set_shown_panel("")

    def _set_shown_panel(self, name: str) -> None:
        self._shown = name
        for panel_name, panel in self._panels.items():
            panel.display = panel_name == name
        self.display = bool(name)

    def focus_panel(self) -> None:
        if self._shown in self._panels:
            self._panels[self._shown].focus()


class ControlCharacterLineFilter(LineFilter):
    """Textual passes escape codes through. Only zero-width characters are replaced, so that no line moves."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(strip_control_characters(text), style, control) for text, style, control in segments]


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
        *(
            Binding(key.lower().replace("-", "+"), f"explain_key('{key}')", show=False)
            for key in FOREIGN_KEYS
        ),
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

    def __init__(
        self, history: Path, run_inside: Callable[[ShoalApp], Coroutine[Any, Any, int]] | None = None
    ) -> None:
        """`run_inside` runs as a task of the app once it is ready: only such tasks can use the widgets."""
        super().__init__()
        self._foreign_key_notes = ForeignKeyNotes()
        self.run_client: TuiRunClient | None = None
        self.exit_status = 0
        """Exit status if the user left before any run was attached."""
        self.fault: BaseException | None = None
        """Exception that ended the app."""
        self._pending_texts: list[str] = []
        """Texts submitted while no run could accept them."""
        self._leave_status: int | None = None
        self._files: list[str] | None = None
        self._resources: list[InputCompletionProposal] = []
        self._resource_servers: tuple[str, ...] = ()
        self._due = self._drawing = False
        self.draw_count = 0
        self._shown_questions: set[str] = set()
        """Questions that were opened once; those left open are answered from the panel."""
        self._awaited_answer: asyncio.Future[str] | None = None
        self._draft = ""
        self._escape_filter = ControlCharacterLineFilter()
        self._proposals = ProposalList(id="proposals")
        self._head, self._activity, self._foot = Static(id="head"), Static(id="activity"), Static(id="foot")
        self._box = Vertical(id="line")
        self.composer = Composer(history, self._proposals, self._propose_completions)
        self.view = ConversationView()
        self.side_panel = SidePanel()
        self.startup_task: asyncio.Task[int] | None = None
        self._run_inside = run_inside
        self._mounted_at = 0.0

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._escape_filter]

    def compose(self) -> ComposeResult:
        yield self._head
        with Horizontal(id="middle"):
            yield self.view
            yield self.side_panel
        yield self._proposals
        yield self._activity
        with self._box:
            yield self.composer
        yield self._foot

    def on_ready(self) -> None:
        if self._run_inside is not None:
            self.startup_task = asyncio.create_task(self._run_inside(self))

    def on_mount(self) -> None:
        self._proposals.display = self._activity.display = False
        self._mounted_at = asyncio.get_running_loop().time()
        self.composer.focus()
        self.set_interval(TICK, self._handle_tick)

    def _handle_exception(self, error: Exception) -> None:
        # Textual would print the values of all variables, and not how to continue.
        self.fault = self.fault or (error.error if isinstance(error, WorkerFailed) else error)
        super()._handle_exception(error)
        self._exit_renderables.clear()

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()

    # The run

    async def attach_run(self, run_client: TuiRunClient) -> None:
        """Show this run from now on."""
        self.run_client, self._files = run_client, None
        self._resources, self._resource_servers = [], ()
        await self.side_panel.attach_run(run_client.presenter)
        await self.view.show_conversation(run_client.presenter.get_conversation(run_client.viewed))
        self.schedule_draw()

    def schedule_draw(self) -> None:
        """Schedule a draw."""
        if not self._due and self.is_running:
            self._due = True
            self.set_timer(PACE, self._queue_draw)

    @property
    def has_pending_draw(self) -> bool:
        """True if a draw is scheduled or running."""
        return self._due or self._drawing

    @property
    def unsent_texts(self) -> tuple[str, ...]:
        """Texts typed that no run has accepted."""
        return (*self._pending_texts, self.composer.full_text)

    def is_unsent_text(self, text: str) -> bool:
        """Return True if the text was submitted and waits for a run that accepts it."""
        return text in self._pending_texts

    def _queue_draw(self) -> None:
        # On the view's own message pump: keys go through the app's and do not wait for drawing.
        self.view.call_later(self._draw_run)

    async def _draw_run(self) -> None:
        self._due = False
        run_client = self.run_client
        if run_client is None or self._drawing or not self.view.is_attached:
            return
        self._drawing = True
        self.draw_count += 1
        try:
            run_client.process_queued_events()
            if run_client.is_open and self._leave_status is not None:
                run_client.leave_run(self._leave_status)
            await self._send_pending_texts()
            conversation = run_client.presenter.get_conversation(run_client.viewed)
            if self.view.conversation is not conversation:
                await self.view.show_conversation(conversation)
            await self.view.draw_changes()
            self.side_panel.refresh_panels()
            self._update_head_and_foot_lines()
            self._show_next_question()
        finally:
            self._drawing = False

    def _handle_tick(self) -> None:
        if self.run_client is None:
            self._show_that_session_starts()
        elif self.run_client.activity_text:
            self._update_head_and_foot_lines()
        self._show_next_question()

    def _show_that_session_starts(self) -> None:
        """Show how long the start takes: a resumed session may wait for the lease of a lost machine."""
        seconds = asyncio.get_running_loop().time() - self._mounted_at
        if seconds >= STARTING:
            self._activity.display = True
            self._activity.update(f"The session is starting… {seconds:.0f} s")

    # Questions

    @property
    def is_person_answering(self) -> bool:
        """True if the user is answering a question."""
        return self._awaited_answer is not None or any(
            isinstance(each, AnswerScreen) for each in self.screen_stack
        )

    def pop_screen(self) -> AwaitComplete:
        # Closing a question unblocks what arrived meanwhile.
        self.schedule_draw()
        return super().pop_screen()

    def _show_next_question(self) -> None:
        """Open the oldest question not shown before, unless the user is typing."""
        run_client = self.run_client
        if (
            run_client is None
            or len(self.screen_stack) > 1
            or self.composer.text
            or self._awaited_answer is not None
        ):
            return
        if self.side_panel.shown_panel == "questions" or self.composer.idle_seconds < QUIET:
            return
        for row in run_client.presenter.run_view.list_open_questions():
            if row.id not in self._shown_questions:
                self._shown_questions.add(row.id)
                screen = AnswerScreen(
                    row,
                    run_client.presenter.controller,
                    run_view=run_client.presenter.run_view,
                    unprompted=True,
                )
                self.push_screen(screen, lambda _: self.schedule_draw())
                return

    def _update_head_and_foot_lines(self) -> None:
        run_client = self.run_client
        if run_client is None:
            return
        columns = self.size.width
        self._head.update(build_head_line(run_client, columns))
        self._foot.update(build_foot_line(run_client, columns))
        self._activity.display = bool(run_client.activity_text)
        self._activity.update(build_activity_line(run_client))
        line = self._box
        mode = run_client.presenter.run_view.run.mode
        for marked_mode in ("acceptEdits", "plan", "bypassPermissions"):
            line.set_class(mode == marked_mode, f"-{marked_mode}")
        if self._awaited_answer is None:
            row = run_client.presenter.run_view.find_agent_row(run_client.viewed)
            recipient_note = "" if row is None or run_client.viewed == LEAD_ID else f" to {row.name} "
            line.border_title = recipient_note

    def on_resize(self) -> None:
        self._update_head_and_foot_lines()

    @property
    def _client_if_open(self) -> TuiRunClient | None:
        return self.run_client if self.run_client is not None and self.run_client.is_open else None

    # Input

    @on(Composer.TextEntered)
    async def _submit_entered_text(self, event: Composer.TextEntered) -> None:
        if self._awaited_answer is not None:
            if not self._awaited_answer.done():
                self._awaited_answer.set_result(event.text)
            return
        if event.text.strip():
            self.view.anchor()
            self._pending_texts.append(event.text)
            await self._send_pending_texts()

    async def _send_pending_texts(self) -> None:
        """Send the submitted texts in order, as soon as the run accepts them."""
        while self._pending_texts and self.run_client is not None and self.run_client.is_open:
            await self._send_prompt_text(self.run_client, self._pending_texts.pop(0))

    async def _send_prompt_text(self, run_client: TuiRunClient, text: str) -> None:
        message, warnings = build_prompt_message(text, run_client.root, images=run_client.takes_images)
        for warning in warnings:
            run_client.presenter.get_conversation(run_client.viewed).timeline.add_remark(warning, YELLOW)
        run_client.submit_message(message)

    async def ask_line(self, label: str) -> str:
        """Return the next typed line as the answer to a question of the program."""
        self._awaited_answer = asyncio.get_running_loop().create_future()
        composer = self.composer
        self._draft, composer.is_asking = composer.text, True
        composer.set_text("")
        line = self._box
        line.border_title = f" {label} "
        line.add_class("-asks")
        composer.focus()
        try:
            return await self._awaited_answer
        finally:
            self._awaited_answer, composer.is_asking = None, False
            if self.is_running:
                line.border_title = ""
                line.remove_class("-asks")
                composer.set_text(self._draft)

    def restore_text_to_draft(self, text: str) -> None:
        """Put the text before the draft; if a question is open, before the draft that returns after it."""
        if self._awaited_answer is not None:
            self._draft = prepend_to_draft(text, self._draft)
        else:
            self.composer.set_text(prepend_to_draft(text, self.composer.text))

    def clear_line(self) -> None:
        self.composer.clear_line()

    def _propose_completions(self, word: PartialWordAtCursor) -> Sequence[InputCompletionProposal]:
        run_client = self.run_client
        if run_client is None:
            return ()
        if word.kind == "command":
            return rank_matching_proposals(word.typed, run_client.list_command_proposals())
        if self._files is None:
            self._files = []
            self.run_worker(self._load_project_files(run_client), exclusive=True, group="files")
        if (servers := run_client.list_resource_servers()) != self._resource_servers:
            self._resource_servers = servers
            self.run_worker(self._load_resources(run_client), exclusive=True, group="resources")
        others = [*run_client.list_agent_proposals(), *self._resources]
        return propose_mentions(word.typed, self._files, others)

    async def _load_resources(self, run_client: TuiRunClient) -> None:
        self._resources = await run_client.load_resource_proposals()
        self.composer.update_proposals()

    async def _load_project_files(self, run_client: TuiRunClient) -> None:
        self._files = await asyncio.to_thread(list_project_files, run_client.root)
        self.composer.update_proposals()

    # Keys

    def action_interrupt(self) -> None:
        composer = self.composer
        if composer.has_focus and composer.selected_text:
            composer.action_copy()
        elif (selected_text := self.screen.get_selected_text()) is not None and selected_text:
            self.copy_to_clipboard(selected_text)
            self.screen.clear_selection()
        elif self._awaited_answer is not None:
            # A canceled question cancels the command that asked it.
            self._awaited_answer.cancel()
        elif (run_client := self._client_if_open) is not None:
            run_client.handle_interrupt(composer.text)
        else:
            self.leave_run(130)

    def action_end_of_input(self) -> None:
        if self.composer.has_focus and self.composer.text:
            self.composer.action_delete_right()
        else:
            self.leave_run()

    def leave_run(self, status: int = 0) -> None:
        """Leave now; if no run can be left yet, as soon as one can; the second time, exit at once."""
        if self.run_client is not None and self.run_client.is_open:
            self.run_client.leave_run(status)
        elif self._leave_status is None:
            self._leave_status = status
        else:
            self.exit_status = status
            self.exit()

    def action_escape(self) -> None:
        """Leave the innermost thing: a panel, a turn, or an agent's conversation."""
        if self.side_panel.shown_panel and not self.composer.has_focus:
            self.close_panel()
        elif (run_client := self._client_if_open) is None or run_client.interrupt_current_work():
            pass
        elif run_client.viewed != LEAD_ID:
            self.action_lead()
        elif self.side_panel.shown_panel:
            self.close_panel()

    def action_next_mode(self) -> None:
        if (run_client := self._client_if_open) is not None:
            run_client.cycle_permission_mode()

    def action_to_background(self) -> None:
        if (run_client := self._client_if_open) is None or not run_client.move_to_background():
            self.composer.action_cursor_left()

    def action_explain_key(self, key: str) -> None:
        run_client = self._client_if_open
        if run_client is not None and (note := self._foreign_key_notes.take_note(key)):
            run_client.presenter.get_conversation(run_client.viewed).timeline.add_remark(note, YELLOW)
            run_client.presenter.request_draw()

    def action_help(self) -> None:
        from shoal.core.conversation.messages import user_message

        if (run_client := self._client_if_open) is not None:
            run_client.submit_message(user_message("/help"))

    def action_panel(self, name: str) -> None:
        """Show the panel and focus it; close it if it has the focus already."""
        if name == self.side_panel.shown_panel and self.side_panel.has_focus_within:
            self.close_panel()
        else:
            self.side_panel.show_panel(name)
            self.screen.add_class("-side")

    def close_panel(self) -> None:
        self.side_panel.close()
        self.screen.remove_class("-side")
        self.composer.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the app's keys while a question or another screen is open."""
        return len(self.screen_stack) == 1 or action in _ALWAYS

    @on(TuiPanel.CloseRequested)
    def _close_panel_on_request(self) -> None:
        if self.side_panel.shown_panel:
            self.close_panel()

    @on(AgentsPanel.AgentChosen)
    def _view_chosen_agent(self, event: AgentsPanel.AgentChosen) -> None:
        if self.size.width < WIDE:
            self.close_panel()
        self.view_agent(AgentId(event.agent.id), event.agent.name)

    def action_lead(self) -> None:
        self.view_agent(LEAD_ID, "lead")

    def view_agent(self, agent: AgentId, name: str) -> None:
        if (run_client := self._client_if_open) is not None:
            run_client.view_agent(agent, name)
            self.composer.focus()
            self.schedule_draw()

    def action_other_side(self) -> None:
        """Move the focus from the input line to the conversation, to the panel, and back."""
        if self.composer.has_focus:
            self.view.focus_next_block(0)
            if self.composer.has_focus:
                self.view.focus()
        elif self.side_panel.shown_panel and not self.side_panel.has_focus_within:
            self.side_panel.focus_panel()
        else:
            self.composer.focus()

    def action_fold(self) -> None:
        self.view.toggle_all_calls()

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
