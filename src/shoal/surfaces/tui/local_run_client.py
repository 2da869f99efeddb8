"""Client of a session in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shoal.app.run_view.run_view import RunView
from shoal.app.session.delegate_mode import is_in_delegate_mode
from shoal.app.session.lead_facts import compute_context_percent
from shoal.app.session.run_controller import LocalRunController
from shoal.core.conversation.messages import Message
from shoal.core.errors import ShoalError
from shoal.core.events import Event
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.terminal.slash_commands import describe_slash_commands
from shoal.surfaces.terminal.slash_team_commands import AddressedAgent, describe_agent_mentions
from shoal.surfaces.terminal.terminal_controller import StyledTextWriter, TerminalController, TerminalOutcome
from shoal.surfaces.terminal.text_styles import DIM, RED
from shoal.surfaces.tui.completions import InputCompletionProposal
from shoal.surfaces.tui.conversation_timeline import ConversationTimelineState
from shoal.surfaces.tui.mode_cycle import PermissionModeCycle
from shoal.surfaces.tui.run_presenter import TuiRunPresenter
from shoal.wire.control_codec import InterruptTurnControlCommand

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class PromptInput(Protocol):
    """Input line of the terminal."""

    @property
    def is_person_answering(self) -> bool:
        """True if the user is answering a question."""
        ...

    async def ask_line(self, label: str) -> str: ...

    def restore_text_to_draft(self, text: str) -> None: ...

    def clear_line(self) -> None: ...

    def schedule_draw(self) -> None: ...


class ConversationNoticeWriter:
    """Writes notices into the conversation that is shown."""

    def __init__(self, run_client: TuiLocalRunClient) -> None:
        self._run_client = run_client

    def write_note(self, text: str, style: str = DIM) -> None:
        self._timeline.add_remark(text, style)
        self._run_client.presenter.request_draw()

    @contextmanager
    def open_notice_block(self) -> Iterator[StyledTextWriter]:
        pieces: list[tuple[str, str]] = []

        def write_piece(text: str, style: str = "") -> None:
            pieces.append((text, style))

        yield write_piece
        self._timeline.add_remark_pieces(pieces)
        self._run_client.presenter.request_draw()

    @property
    def _timeline(self) -> ConversationTimelineState:
        return self._run_client.presenter.get_conversation(self._run_client.viewed).timeline


class TuiLocalRunClient(TerminalController):
    shows_entries = True
    key_help = (
        "F2 agents · Ctrl-T tasks · F3 mail · F4 questions · F5 back to the lead · F6 to the conversation",
        "Alt-Enter, Ctrl-J, or \\ and Enter: new line. Text that you type while the agent works steers it.",
        "@NAME TEXT sends a message to a teammate; after /to NAME, all messages go to that member until F5.",
        "Esc interrupts the turn; Shift-Tab selects the next permission mode; Ctrl-O expands all calls.",
        "Ctrl-B moves foreground agents to the background.",
        "Ctrl-C clears the line or stops the turn; press it twice, or Ctrl-D, to exit.",
    )

    def __init__(self, session: Session, prompt_input: PromptInput) -> None:
        run_view = create_session_run_view(session)
        super().__init__(session, run_view.statuses)
        self._prompt_input = prompt_input
        self._leave_event = asyncio.Event()
        self._modes = PermissionModeCycle()
        self.is_open = False
        clock, cwd = session.clock, str(session.cwd)
        self.presenter = TuiRunPresenter(
            run_view, LocalRunController(session), clock, cwd, prompt_input.schedule_draw
        )
        self.presenter.get_conversation(LEAD_ID)
        self.notices = ConversationNoticeWriter(self)

    # Implementation of the controller's abstract methods

    async def run_until_user_leaves(self, first: str | None = None) -> TerminalOutcome:
        async with asyncio.TaskGroup() as tasks:
            background_tasks = self.start_tasks(tasks, first)
            self.is_open = True
            self.presenter.request_draw()
            await self._leave_event.wait()
            self.is_open = False
            for task in background_tasks:
                task.cancel()
            self.cancel_running_work()
        self.feed.close()
        assert self.outcome is not None
        return self.outcome

    @property
    def can_start_turn(self) -> bool:
        return super().can_start_turn and not self._prompt_input.is_person_answering

    async def ask_user_for_line(self, label: str) -> str:
        return await self._prompt_input.ask_line(label)

    def schedule_event_processing(self) -> None:
        self.presenter.request_draw()

    def show_event(self, event: Event) -> None:
        self.presenter.apply_event(event, self._clock.now())

    def echo_user_prompt(self, text: str) -> None:
        is_awaited = bool(text.strip())
        self.presenter.get_conversation(self.viewed).timeline.add_prompt(text, is_awaited=is_awaited)
        self.presenter.request_draw()

    def restore_unsent_message(self, message: Message) -> None:
        self._prompt_input.restore_text_to_draft(message.text)

    def clear_input_line(self) -> None:
        self._prompt_input.clear_line()

    def wake_input(self) -> None:
        self._leave_event.set()

    # Input and display

    @property
    def root(self) -> Path:
        return self.session.cwd

    @property
    def viewed(self) -> AgentId:
        return LEAD_ID if self.addressee is None else AgentId(self.addressee.agent)

    @property
    def takes_images(self) -> bool:
        return self.session.model_card.images

    @property
    def activity_text(self) -> str:
        return "" if self.activity is None else self.activity.format_activity_line(1_000)

    @property
    def footer_facts(self) -> Sequence[str]:
        percent = compute_context_percent(self.session)
        return [
            *(["delegate"] if is_in_delegate_mode(self.session) else ()),
            *([] if percent is None else [f"{percent}% context"]),
        ]

    def list_command_proposals(self) -> list[InputCompletionProposal]:
        return [InputCompletionProposal(name, about) for name, about in describe_slash_commands(self.session)]

    def list_agent_proposals(self) -> list[InputCompletionProposal]:
        return [InputCompletionProposal(*each) for each in describe_agent_mentions(self.session)]

    def list_resource_servers(self) -> tuple[str, ...]:
        servers = self.session.list_mcp_servers()
        return tuple(each.name for each in servers if each.status == "connected" and each.resources)

    async def load_resource_proposals(self) -> list[InputCompletionProposal]:
        resources = await self.session.list_resource_mentions()
        return [InputCompletionProposal(f"@{mention}", about) for mention, about in resources]

    def submit_message(self, message: Message) -> None:
        self.submit_input(message)

    def view_agent(self, agent: AgentId, name: str) -> None:
        """Show the agent's conversation and send input to it."""
        self.addressee = None if agent == LEAD_ID else AddressedAgent(agent, name)
        self.presenter.request_draw()

    def interrupt_current_work(self) -> bool:
        if self.viewed == LEAD_ID:
            return super().interrupt_current_work()
        row = self.presenter.run_view.find_agent_row(self.viewed)
        if row is None or row.state not in ("working", "waiting"):
            return False
        self.run_alongside_work(partial(self._interrupt_agent, self.viewed))
        return True

    async def _interrupt_agent(self, agent: AgentId) -> None:
        answer = await self.presenter.controller.send_command(InterruptTurnControlCommand(task_id=agent))
        if isinstance(answer, dict) and not answer.get("interrupted"):
            self.notices.write_note("There is no turn to interrupt.")

    def move_to_background(self) -> bool:
        return bool(self.session.move_to_background())

    def cycle_permission_mode(self) -> None:
        session = self.session
        try:
            session.set_mode(
                self._modes.next_mode(session.permission_mode, may_skip=session.can_bypass_permissions)
            )
        except ShoalError as error:
            self.notices.write_note(f"✗ {to_one_line(str(error))}", RED)

    def leave_run(self, status: int = 0) -> None:
        self.status = status
        self.finish_with_outcome()


def create_session_run_view(session: Session) -> RunView:
    """Return the current view of the run; nothing may be awaited before events are applied to it."""
    return session.journal.replay(RunView)
