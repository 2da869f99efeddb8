"""Presentation state of a run: its view, and the conversation of each agent that was opened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from shoal.app.run_access.conversation_path import find_agent_transcript_path
from shoal.app.run_view.run_view import RunView
from shoal.app.session.run_controller import RunController
from shoal.core.clock import Clock
from shoal.core.errors import StateFileError
from shoal.core.events import (
    AgentEnded,
    AssistantReplied,
    Event,
    MessageAdded,
    ModelRequestSent,
    QuestionAnswered,
    QuestionAsked,
    ToolFinished,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.surfaces.terminal.event_text import describe_background_agent_event
from shoal.surfaces.terminal.question_text import describe_answer
from shoal.surfaces.terminal.text_styles import get_agent_style
from shoal.surfaces.tui.conversation_timeline import ConversationTimelineState
from shoal.surfaces.tui.transcript_pager import PagedTranscriptReader

_WRITTEN = (ToolFinished, ModelRequestSent, AgentEnded)
"""Events that are published after the transcript was written."""


class TuiAgentConversation:
    """One agent's conversation: the timeline, and the transcript it is read from."""

    def __init__(
        self,
        agent: AgentId,
        transcript: PagedTranscriptReader,
        root: str,
        *,
        refresh: Callable[[], object] | None = None,
    ) -> None:
        """`refresh` brings the transcript up to date before new entries are read."""
        self.agent = agent
        self._refresh = refresh
        self.timeline = ConversationTimelineState(root)
        self._transcript = transcript
        self.is_shown = False
        """True while a view shows it: then the view decides when items are dropped."""
        self._has_whole_messages = False
        """True if whole messages arrive as events, so that the transcript need not be read."""
        self.add_new_transcript_entries()

    def add_new_transcript_entries(self) -> None:
        if self._refresh is not None:
            with suppress(StateFileError):  # the database may return
                self._refresh()
        for entry in self._transcript.read_new_entries():
            self.timeline.add_transcript_entry(entry)

    def apply_event(self, event: Event) -> None:
        self._has_whole_messages = self._has_whole_messages or isinstance(event, MessageAdded)
        if isinstance(event, AssistantReplied):
            is_known = self.timeline.has_shown_entry(event.entry)
        else:
            is_known = self._has_whole_messages or not isinstance(event, _WRITTEN)
        if not is_known:
            self.add_new_transcript_entries()
        self.timeline.apply_event(event)
        if not self.is_shown:
            self.drop_oldest_items()

    def drop_oldest_items(self) -> int:
        """Drop the oldest items of a long conversation and return their number."""
        if not self.timeline.has_too_many_items:
            return 0
        # Everything written so far is shown: if read again, dropped entries would count as new.
        self._transcript.skip_new_entries() if self._has_whole_messages else self.add_new_transcript_entries()
        return self.timeline.drop_oldest_items()

    @property
    def has_older_entries(self) -> bool:
        return bool(self.timeline.first_entry) or self._transcript.has_older_entries

    def load_older_entries(self) -> None:
        if self.timeline.first_entry:
            self._transcript.rewind_to_entry(self.timeline.first_entry)
        self.timeline.prepend_entries(self._transcript.read_older_entries())


class TuiRunPresenter:
    """Receives every event of a run, in order."""

    def __init__(
        self,
        run_view: RunView,
        controller: RunController,
        clock: Clock,
        cwd: str,
        request_draw: Callable[[], None],
    ) -> None:
        """`request_draw` is called when there is something new to draw."""
        self.run_view = run_view
        self.controller = controller
        self.clock = clock
        self.cwd = cwd
        self._conversations: dict[AgentId, TuiAgentConversation] = {}
        self.request_draw = request_draw

    def get_conversation(self, agent: AgentId = LEAD_ID) -> TuiAgentConversation:
        conversation = self._conversations.get(agent)
        if conversation is None:
            copy_transcript = partial(find_agent_transcript_path, self.controller.run, self.cwd, agent)
            conversation = self._conversations[agent] = TuiAgentConversation(
                agent,
                PagedTranscriptReader(copy_transcript()),
                self.cwd,
                refresh=None if self.controller.run.copies is None else copy_transcript,
            )
            row = self.run_view.find_agent_row(agent)
            if row is not None and row.state in ("working", "waiting"):
                conversation.timeline.mark_calls_running()
        return conversation

    def apply_event(self, event: Event, at: int) -> None:
        self.run_view.apply_event(event, at)
        self.show_event(event)

    def show_event(self, event: Event) -> None:
        """Show the event in the conversations that were opened."""
        conversation = self._conversations.get(event.agent)
        if conversation is not None:
            conversation.apply_event(event)
        if event.agent != LEAD_ID and LEAD_ID in self._conversations:
            self._add_lead_remark(event)

    def _add_lead_remark(self, event: Event) -> None:
        """Add a remark to the lead's conversation when another agent starts, ends or asks."""
        status = self.run_view.statuses.all.get(event.agent)
        if status is None:
            return
        lead_timeline = self._conversations[LEAD_ID].timeline
        match event:
            case QuestionAsked(question=question):
                lead_timeline.add_question(question, status.display_name)
            case QuestionAnswered(question=question_id, answer=answer):
                lead_timeline.append_answer_to_question(question_id, describe_answer(answer) or "no")
            case _:
                if (text := describe_background_agent_event(event, status)) is not None:
                    lead_timeline.add_remark_pieces([("● ", get_agent_style(status.color)), (text, "")])
