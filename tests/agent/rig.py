"""An agent made of real parts in memory, with a scripted model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.agent.agent import Agent, Bounds, Surroundings
from shoal.agent.conversation import Conversation
from shoal.agent.loop import Ended, run
from shoal.core.arrivals import Item
from shoal.core.budget import Purse
from shoal.core.caps import Limits
from shoal.core.clock import Clock, SystemClock
from shoal.core.decisions import Allow, Decision
from shoal.core.entries import Entry
from shoal.core.errors import NobodyToAsk
from shoal.core.events import Event, Journaled
from shoal.core.identity import Identity
from shoal.core.ids import LEAD, AgentId, Ids, SessionId
from shoal.core.messages import Text, user
from shoal.core.ports import Model
from shoal.core.questions import Answer, Question
from shoal.core.tools import Tool, all_readable
from shoal.models.scripted import ScriptedModel
from shoal.runs.queue import Queue
from shoal.stores.memory import MemoryJournal
from shoal.workspaces.local import LocalWorkspace


class Judge:
    """Returns the decisions it was given."""

    def __init__(self, decide: Callable[[Any], Decision] | None = None) -> None:
        self._decide = decide or (lambda _: Allow("all is allowed here"))
        self.remembered: list[Answer] = []

    def decide(self, call: Any, tool: Any, agent: Any) -> Decision:
        return self._decide(call)

    def remember(self, call: Any, answer: Answer) -> None:
        self.remembered.append(answer)

    def unreadable(self, tool: str, top: str) -> Callable[[str], bool]:
        return all_readable(top)

    def turn_over(self) -> None:
        """Do nothing: no permission was granted for one turn only."""


class Person:
    """Returns a prepared answer; without one the question is unanswerable."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        if self.answer is None:
            raise NobodyToAsk("nobody is there to ask.")
        return self.answer


class HeldTranscript:
    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)

    def close(self) -> None: ...


class HeldResults:
    """Records results under paths that do not exist on disk."""

    def __init__(self) -> None:
        self.kept: dict[Path, bytes] = {}

    def keep(self, name: str, content: bytes) -> Path:
        path = Path("/held") / f"{len(self.kept) + 1}" / name.replace("/", "-")
        self.kept[path] = content
        return path


class Rig(Struct, kw_only=True):
    agent: Agent
    transcript: HeldTranscript
    journal: MemoryJournal
    results: HeldResults
    queue: Queue
    heard: list[Event]

    def steer(self, text: str) -> None:
        self.queue.put(Item(id="steered", to=LEAD, content=(Text(text=text),), by="person"))

    async def run(self, prompt: str = "go") -> Ended:
        return await run(self.agent, user(prompt))

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.heard if isinstance(event, kind)]


def rig(
    mind: Any,
    *,
    tools: Sequence[Tool] = (),
    model: Model | None = None,
    bounds: Bounds | None = None,
    limits: Limits | None = None,
    purse: Purse | None = None,
    agent_id: AgentId = LEAD,
    judge: Judge | None = None,
    person: Person | None = None,
    clock: Clock | None = None,
    seed: int = 7,
    root: Path = Path("/tmp"),
) -> Rig:
    clock = clock or SystemClock()
    ids = Ids(seed)
    transcript, journal, results = HeldTranscript(), MemoryJournal(clock), HeldResults()
    queue, heard = Queue(), []
    model = model or ScriptedModel(mind, clock=clock)

    async def tell(event: Event) -> None:
        if isinstance(event, Journaled):
            journal.append(event)
        heard.append(event)

    purse = purse or Purse(limits or Limits(), clock=clock)
    account = purse.account(agent_id, "lead" if agent_id == LEAD else "worker")
    account.admit(model.card)
    agent = Agent(
        identity=Identity(session=SessionId("s"), agent=agent_id),
        model=model,
        system="You are a test.",
        tools={tool.schema.name: tool for tool in tools},
        conversation=Conversation(transcript, clock, ids),
        surroundings=Surroundings(
            workspace=LocalWorkspace(root),
            processes=None,  # type: ignore[arg-type]
            desk=person or Person(),
            results=results,
            env={},
        ),
        permissions=judge or Judge(),
        purse=account,
        inlet=queue.inlet(agent_id),
        tell=tell,
        clock=clock,
        ids=ids,
        bounds=bounds or Bounds(),
    )
    return Rig(agent=agent, transcript=transcript, journal=journal, results=results, queue=queue, heard=heard)
