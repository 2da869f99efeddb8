"""An agent made of real parts in memory, with a scripted model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.agent.agent_runner import AgentEnvironment, AgentRunner, LoopLimits
from shoal.agent.conversation import Conversation
from shoal.agent.loop import LoopResult, run_agent_loop
from shoal.core.agents.identity import AgentIdentity
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import BudgetLimits
from shoal.core.clock import Clock, SystemClock
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock, user_message
from shoal.core.conversation.tools import Tool, build_hide_nothing_filter
from shoal.core.conversation.transcript_entries import TranscriptEntry
from shoal.core.errors import QuestionUnanswerable
from shoal.core.events import Event, JournaledEvent
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator, SessionId
from shoal.core.permissions.permission_decisions import AllowDecision, PermissionDecision, PermissionMode
from shoal.core.permissions.questions import Answer, Question
from shoal.core.ports import Model
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.models.scripted_model import ScriptedModel
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.stores.memory.memory_store import MemoryJournal
from shoal.workspaces.local_workspace import LocalWorkspace


class FixedPermissionPolicy:
    """Returns the decisions it was given."""

    mode: PermissionMode = "default"

    def __init__(self, decide: Callable[[Any], PermissionDecision] | None = None) -> None:
        self._decide = decide or (lambda _: AllowDecision("all is allowed here"))
        self.remembered: list[Answer] = []

    def decide_tool_call(self, call: Any, tool: Any, agent: Any) -> PermissionDecision:
        return self._decide(call)

    def remember_permission_answer(self, call: Any, answer: Answer) -> None:
        self.remembered.append(answer)

    def build_unreadable_file_filter(self, tool: str, top: str) -> Callable[[str], bool]:
        return build_hide_nothing_filter(top)

    def drop_turn_permissions(self) -> None:
        """Do nothing: no permission was granted for one turn only."""


class FakeQuestionBroker:
    """Returns a prepared answer; without one the question is unanswerable."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.questions: list[Question] = []

    async def ask_person_or_deny(self, question: Question) -> Answer:
        self.questions.append(question)
        if self.answer is None:
            raise QuestionUnanswerable("nobody can answer the ask.")
        return self.answer


class RecordingTranscript:
    def __init__(self) -> None:
        self.entries: list[TranscriptEntry] = []

    def append(self, entry: TranscriptEntry) -> None:
        self.entries.append(entry)

    def close(self) -> None: ...


class RecordingResultStore:
    """Records results under paths that do not exist on disk."""

    def __init__(self) -> None:
        self.saved: dict[Path, bytes] = {}

    def save_result(self, name: str, content: bytes) -> Path:
        path = Path("/held") / f"{len(self.saved) + 1}" / name.replace("/", "-")
        self.saved[path] = content
        return path


class AgentHarness(Struct, kw_only=True):
    agent: AgentRunner
    transcript: RecordingTranscript
    journal: MemoryJournal
    results: RecordingResultStore
    queue: SharedInboxQueue
    events: list[Event]

    def send_steering(self, text: str) -> None:
        self.queue.put(InboxItem(id="steered", to=LEAD_ID, content=(TextBlock(text=text),), by="person"))

    async def run_prompt(self, prompt: str = "go") -> LoopResult:
        return await run_agent_loop(self.agent, user_message(prompt))

    def list_events(self, event_type: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, event_type)]


def create_harness(
    script: Any,
    *,
    tools: Sequence[Tool] = (),
    model: Model | None = None,
    loop_limits: LoopLimits | None = None,
    budget_limits: BudgetLimits | None = None,
    budget: Budget | None = None,
    agent_id: AgentId = LEAD_ID,
    permissions: FixedPermissionPolicy | None = None,
    question_broker: FakeQuestionBroker | None = None,
    clock: Clock | None = None,
    seed: int = 7,
    root: Path = Path("/tmp"),
) -> AgentHarness:
    clock = clock or SystemClock()
    ids = IdGenerator(seed)
    transcript, journal, results = (
        RecordingTranscript(),
        MemoryJournal(clock, KEY_SHAPE_REDACTOR),
        RecordingResultStore(),
    )
    queue, heard = SharedInboxQueue(), []
    model = model or ScriptedModel(script, clock=clock)

    async def record_event(event: Event) -> None:
        if isinstance(event, JournaledEvent):
            journal.append(event)
        heard.append(event)

    budget = budget or Budget(budget_limits or BudgetLimits(), clock=clock)
    account = budget.get_or_create_agent_budget(agent_id, "lead" if agent_id == LEAD_ID else "worker")
    account.require_priced_model(model.card)
    agent = AgentRunner(
        identity=AgentIdentity(session=SessionId("s"), agent=agent_id),
        model=model,
        system="You are a test.",
        tools={tool.schema.name: tool for tool in tools},
        conversation=Conversation(transcript, clock, ids),
        environment=AgentEnvironment(
            workspace=LocalWorkspace(root),
            processes=None,  # type: ignore[arg-type]
            question_broker=question_broker or FakeQuestionBroker(),
            results=results,
            env={},
            clock=clock,
            ids=ids,
            emit=record_event,
            session_tools={},
            journal=journal,
        ),
        permissions=permissions or FixedPermissionPolicy(),
        budget=account,
        inbox=queue.open_inbox(agent_id),
        limits=loop_limits or LoopLimits(),
    )
    return AgentHarness(
        agent=agent, transcript=transcript, journal=journal, results=results, queue=queue, events=heard
    )
