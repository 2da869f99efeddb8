"""Presentation state of a run: its view, and the conversation of each agent that was opened."""

from __future__ import annotations

from collections.abc import Callable

from shoal.app.outside.conversations import conversation_path
from shoal.app.picture.picture import Picture
from shoal.app.session.helm import Helm
from shoal.core.clock import Clock
from shoal.core.events import (
    AgentEnded,
    Answered,
    Asked,
    AssistantSaid,
    Event,
    MessageAdded,
    RequestSent,
    ToolFinished,
)
from shoal.core.ids import LEAD, AgentId
from shoal.surfaces.terminal.event_words import agent_words
from shoal.surfaces.terminal.paint import style_of
from shoal.surfaces.terminal.question_words import answered
from shoal.surfaces.tui.script import Script
from shoal.surfaces.tui.transcripts import Transcript

_WRITTEN = (ToolFinished, RequestSent, AgentEnded)
"""Events before which the transcript was written."""


class Conversation:
    """One agent's conversation: the timeline, and the transcript it is read from."""

    def __init__(self, agent: AgentId, transcript: Transcript, root: str) -> None:
        self.agent = agent
        self.script = Script(root)
        self._transcript = transcript
        self.is_shown = False
        """True while a view shows it: then the view decides when items are dropped."""
        self._told_whole = False
        """True if whole messages arrive as events, so that the transcript need not be read."""
        self.look()

    def look(self) -> None:
        for entry in self._transcript.new():
            self.script.entry(entry)

    def hear(self, event: Event) -> None:
        self._told_whole = self._told_whole or isinstance(event, MessageAdded)
        if isinstance(event, AssistantSaid):
            known = self.script.knows(event.entry)
        else:
            known = self._told_whole or not isinstance(event, _WRITTEN)
        if not known:
            self.look()
        self.script.hear(event)
        if not self.is_shown:
            self.let_go()

    def let_go(self) -> int:
        """Drop the oldest items of a long conversation and return their number."""
        if not self.script.is_long:
            return 0
        # Everything written so far is shown: if read again, dropped entries would count as new.
        self._transcript.pass_by() if self._told_whole else self.look()
        return self.script.let_go()

    @property
    def has_older(self) -> bool:
        return bool(self.script.begins_with) or self._transcript.has_older

    def older(self) -> None:
        if self.script.begins_with:
            self._transcript.go_back_to(self.script.begins_with)
        self.script.earlier(self._transcript.older())


class Stage:
    """Receives every event of a run, in order."""

    def __init__(self, picture: Picture, helm: Helm, clock: Clock, cwd: str) -> None:
        self.picture = picture
        self.helm = helm
        self.clock = clock
        self.cwd = cwd
        self.stir: Callable[[], None] = lambda: None
        """Called when there is something new to draw."""
        self._conversations: dict[AgentId, Conversation] = {}

    def conversation(self, agent: AgentId = LEAD) -> Conversation:
        known = self._conversations.get(agent)
        if known is None:
            place = conversation_path(self.helm.run, self.cwd, agent)
            known = self._conversations[agent] = Conversation(agent, Transcript(place), self.cwd)
            row = self.picture.agent(agent)
            if row is not None and row.state in ("working", "waiting"):
                known.script.at_work()
        return known

    def hear(self, event: Event, at: int) -> None:
        self.picture.hear(event, at)
        self.show(event)

    def show(self, event: Event) -> None:
        """Show the event in the conversations that were opened."""
        conversation = self._conversations.get(event.agent)
        if conversation is not None:
            conversation.hear(event)
        if event.agent != LEAD and LEAD in self._conversations:
            self._tell_lead(event)

    def _tell_lead(self, event: Event) -> None:
        """Add a remark to the lead's conversation when another agent starts, ends or asks."""
        standing = self.picture.standings.all.get(event.agent)
        if standing is None:
            return
        script = self._conversations[LEAD].script
        match event:
            case Asked(question=question):
                script.asked(question, standing.who)
            case Answered(question=ident, answer=answer):
                script.answered(ident, answered(answer) or "no")
            case _:
                if (words := agent_words(event, standing)) is not None:
                    script.remarks([("● ", style_of(standing.color)), (words, "")])
