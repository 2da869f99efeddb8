"""What a run shows: its picture, and the conversation of each agent that somebody has looked at."""

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
"""Events before which a transcript was written to."""


class Conversation:
    """One agent's: the blocks, and the transcript they come from."""

    def __init__(self, agent: AgentId, transcript: Transcript, root: str) -> None:
        self.agent = agent
        self.script = Script(root)
        self._transcript = transcript
        self.is_shown = False
        """Nothing is taken from under the eyes of a person: who shows it lets blocks go."""
        self._told_whole = False
        """Whole messages are told live, so that the transcript need not be read."""
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
        """Forget the oldest blocks of a long conversation, and how many were."""
        if not self.script.is_long:
            return 0
        # What was written so far is shown: read again, what is forgotten now would come as new.
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
    """Fed with every event of a run, in order."""

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
        """In the conversations, where somebody has looked at its agent."""
        conversation = self._conversations.get(event.agent)
        if conversation is not None:
            conversation.hear(event)
        if event.agent != LEAD and LEAD in self._conversations:
            self._tell_lead(event)

    def _tell_lead(self, event: Event) -> None:
        """That others start, end and ask is told in a line each where the person talks to the lead."""
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
