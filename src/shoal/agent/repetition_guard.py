"""Guard against endless loops: repeated tool calls, messages and claims of tasks that change nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from shoal.agent.agent_texts import format_notice
from shoal.core.conversation.messages import Message, ToolResultBlock, ToolUseBlock, user_message
from shoal.core.conversation.tools import ToolOutput
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import QuestionUnanswerable
from shoal.core.events import (
    JournalRecord,
    NoteAdded,
    RepetitionStopped,
    TaskChanged,
    ToolFinished,
)
from shoal.core.permissions.questions import (
    Answer,
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
)
from shoal.core.text.text_format import format_count_with_noun

if TYPE_CHECKING:
    from shoal.agent.agent_runner import AgentRunner

WAIT_MILLISECONDS = 10_000
"""A call that runs for at least this long waits for something, and may be repeated."""
LONGEST_CYCLE = 4
"""Replies after which a sequence of calls may start again and still counts as one that repeats."""
FAILURE_FACTOR = 5
"""So many times more replies in a row may have only calls that fail, whatever they are."""
CONTINUE_LABEL, STOP_LABEL = "Continue", "Stop the agent"
_FILE_TOOLS = frozenset(("Write", "Edit", "NotebookEdit"))
_MAX_TASK_STATES = 256
_MAX_CLAIMED_TASKS = 256
_READING_COMMANDS = frozenset(
    (
        *("cat", "date", "echo", "env", "false", "file", "find", "grep", "head", "id", "ls", "pwd"),
        *("rg", "sleep", "stat", "tail", "test", "tree", "true", "wc", "which"),
    )
)
"""Shell commands that change nothing when they are not combined with others."""
_SHELL_OPERATORS = frozenset("|&;<>`$\n")
_STARTING_TOOLS = frozenset(("Agent", "Task", "Workflow", "CronCreate"))
"""Tools whose results contain the id of the thing that they start."""
_VARYING_TOOLS = _STARTING_TOOLS | {"Bash", "Read"}
"""Tools whose calls or results differ although they do the same."""
_PAUSE = "pause_turn"
"""Stands for the tool in the record of an answer that the provider paused."""
_NEW_IDS = re.compile(
    r"<usage>.*?</usage>|agentId: \S+|bash_\d+|/\S+/(?:results|tasks)/\S+|about [\d,]+ tokens", re.DOTALL
)
"""Parts of the results of such tools that are different each time."""


_COMMENT = re.compile(r"""(^|\s)#[^'"]*$""")
"""Comment at the end of a shell command."""


class _VaryingResult:
    """Result of a call that started something. Its ids are removed only if the same call is made again."""

    __slots__ = ("_content", "_text")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, content: object) -> None:
        self._content = content
        self._text: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _VaryingResult) and self._remove_ids() == other._remove_ids()

    def _remove_ids(self) -> str:
        if self._text is None:
            self._text, self._content = _NEW_IDS.sub("", str(self._content)), None
        return self._text


class _CallRecord(Struct, frozen=True):
    """A tool call and its result. Records are equal if the calls do the same with the same result."""

    tool: str
    input: dict[str, Any]
    result: object
    is_error: bool = False

    @property
    def starts_agent(self) -> bool:
        return self.tool in _STARTING_TOOLS

    @property
    def works_in_background(self) -> bool:
        return self.starts_agent and bool(self.input.get("run_in_background"))


def _record_varying_call(call: ToolUseBlock, result: ToolResultBlock) -> _CallRecord:
    """Record a call without the parts that make no difference if the result is the same.

    These are the description, the spaces and the comment of a command, the position in a file that is read,
    and the ids of things that the call started.
    """
    name, call_input, content = call.name, call.input, result.content
    if name == "Bash":
        command = " ".join(_COMMENT.sub("", str(call_input.get("command", ""))).split())
        call_input = {**call_input, "command": command, "description": ""}
    elif name == "Read":
        call_input = {"file_path": call_input.get("file_path")}
    if name in _STARTING_TOOLS or call_input.get("run_in_background"):
        return _CallRecord(name, call_input, _VaryingResult(content), result.is_error)
    return _CallRecord(name, call_input, content, result.is_error)


class _ExchangeCounts(Struct, kw_only=True):
    """Messages and claims of one agent since a task or a file last changed."""

    sent: dict[str, int] = field(default_factory=dict[str, int])
    """Number of messages by recipient."""
    claims: dict[str, int] = field(default_factory=dict[str, int])
    """Number of times that the agent claimed a task, by task."""
    journal_offset: int | None = None
    """Offset from which changes count; None until the first message or the second claim of a task."""
    was_told_of_messages: bool = False
    was_told_of_claims: bool = False
    task_states: dict[TaskChanged, None] = field(default_factory=dict[TaskChanged, None])
    """Latest states of tasks; a task that returns to one of them has not changed."""

    def add_claim(self, task: str) -> int:
        """Return how often the agent has claimed this task since the last change."""
        count = self.claims.pop(task, 0) + 1
        self.claims[task] = count
        if len(self.claims) > _MAX_CLAIMED_TASKS:
            del self.claims[next(iter(self.claims))]
        return count

    def forget_counts(self) -> None:
        """Start the counts of messages and claims again: a task or a file has changed."""
        self.sent.clear()
        self.claims.clear()
        self.was_told_of_messages = self.was_told_of_claims = False

    def add_task_state(self, state: TaskChanged) -> bool:
        """Return True if the task was not in this state before."""
        is_new = state not in self.task_states
        self.task_states.pop(state, None)
        self.task_states[state] = None
        if len(self.task_states) > _MAX_TASK_STATES:
            del self.task_states[next(iter(self.task_states))]
        return is_new


class RepetitionGuard(Struct, kw_only=True):
    """Counts of one agent. A change of a task or a file by any agent of the run resets the exchanges."""

    round: list[_CallRecord] = field(default_factory=list)
    """Calls of the current reply."""
    last: list[_CallRecord] = field(default_factory=list)
    repeats: int = 0
    """Number of times in a row that `last` was called."""
    earlier: list[list[_CallRecord]] = field(default_factory=list)
    """Calls of the latest replies, the newest last."""
    cycles: dict[int, int] = field(default_factory=dict[int, int])
    """Replies in a row that were equal to the one so many replies before."""
    failures: int = 0
    """Replies in a row whose calls all failed."""
    is_waiting: bool = False
    """True if a call of the current reply waited for something."""
    counted_at: float = 0.0
    """Time at which the calls of the latest reply were counted."""
    has_notification: bool = False
    """True if background work of the agent has ended since then."""
    told_repeats: int = 0
    """Number of repetitions that the agent was told about; 0 if it was not told about any."""
    exchanges: _ExchangeCounts = field(default_factory=_ExchangeCounts)
    stop_reason: str = ""
    """Reason why the agent was stopped; empty if it was not."""

    def add_call(self, call: ToolUseBlock, result: ToolResultBlock, milliseconds: int) -> None:
        name = call.name
        self.round.append(
            _record_varying_call(call, result)
            if name in _VARYING_TOOLS
            else _CallRecord(name, call.input, result.content, result.is_error)
        )
        if milliseconds >= WAIT_MILLISECONDS:
            self.is_waiting = True
        if name == "SendMessage" and not result.is_error:
            # One recipient, however it is written: with its team, or in capitals.
            recipient = str(call.input.get("to", "")).strip().partition("@")[0].casefold()
            sent = self.exchanges.sent
            sent[recipient] = sent.get(recipient, 0) + 1

    def add_paused_answer(self, answer: Message) -> None:
        self.round.append(_CallRecord(_PAUSE, {}, answer.content))

    def forget_round(self) -> None:
        self.is_waiting, self.round = False, []

    def count_round(self, now: float) -> None:
        """Compare the calls of the reply with those of the reply before."""
        calls = self.round
        if self.is_waiting or not calls:
            self.forget_round()
            return
        self.round = []
        has_notification, self.has_notification = self.has_notification, False
        self.counted_at = now
        is_failure = calls[0].is_error and all(call.is_error for call in calls)
        self.failures = self.failures + 1 if is_failure else 0
        times = 1
        if len(calls) > 1 and calls.count(calls[0]) == len(calls):
            # Several agents with the same job, started together, are no loop.
            calls, times = calls[:1], 1 if calls[0].starts_agent else len(calls)
        earlier = self.earlier
        if calls not in earlier:  # nor equal to `last`, which is the last of them
            if self.cycles:
                self.cycles = {}
            self.last, self.repeats = calls, times
        else:
            is_same = calls == self.last
            if is_same and not has_notification and calls[0].works_in_background:
                return  # several agents with the same job again, started one after the other
            for length in range(2, LONGEST_CYCLE + 1):
                is_equal = len(earlier) >= length and earlier[-length] == calls
                self.cycles[length] = self.cycles.get(length, 0) + 1 if is_equal else 0
            self.last, self.repeats = calls, self.repeats + times if is_same else times
        earlier.append(calls)
        if len(earlier) > LONGEST_CYCLE:
            del earlier[0]

    def find_repetition(self) -> tuple[int, list[_CallRecord]]:
        """Return how often in a row the latest calls or a short sequence of them were made, and the calls."""
        found = self.repeats, self.last
        if not self.cycles:
            return found
        for length, equal_replies in self.cycles.items():
            if (times := equal_replies // length + 1) > found[0]:
                found = times, [call for calls in self.earlier[-length:] for call in calls]
        return found

    def on_notification(self, now: float) -> None:
        """Note that background work of the agent has ended: work that took long was worth waiting for."""
        self.has_notification = True
        if (now - self.counted_at) * 1000 >= WAIT_MILLISECONDS:
            self.forget_calls()

    def forget_calls(self) -> None:
        """Start the count of calls again: something new arrived for the agent."""
        self.last, self.repeats, self.told_repeats = [], 0, 0
        self.earlier, self.cycles = [], {}
        self.failures = 0

    def forget_all(self) -> None:
        """Start all counts again, because a person wants the agent to continue."""
        self.forget_calls()
        self.exchanges = _ExchangeCounts()
        self.stop_reason = ""


async def enforce_repetition_limits(agent: AgentRunner) -> None:
    """Tell the agent about a loop once, then ask the user. Without an answer, stop the agent."""
    guard, max_messages = agent.state.repetition, agent.limits.max_unproductive_messages
    max_calls = agent.limits.max_repeated_calls
    if max_calls is None:
        guard.forget_round()
    else:
        guard.count_round(agent.clock.monotonic())
    if agent.state.halt_reason or (max_calls is not None and await _check_calls(agent, guard, max_calls)):
        return
    guard.told_repeats = 0
    if max_messages is not None and guard.exchanges.sent:
        await _check_exchanges(agent, guard.exchanges, max_messages)


async def _check_calls(agent: AgentRunner, guard: RepetitionGuard, limit: int) -> bool:
    """Return True if the latest calls repeat earlier ones or failed too often."""
    repeats, calls = guard.find_repetition()
    if repeats >= limit:
        if repeats > guard.told_repeats:  # else the sequence is not complete again
            times = format_count_with_noun(repeats, "time")
            tools = ", ".join(dict.fromkeys(call.tool for call in calls))
            if tools == _PAUSE:
                subject = format_notice("loop_of_pauses", times=times)
                notice = format_notice("repeated_pause", times=times)
            else:
                subject = format_notice("loop_of_calls", tools=tools, times=times)
                notice = format_notice("repeated_call", tools=tools, times=times)
            await _tell_or_ask(agent, was_told=guard.told_repeats > 0, subject=subject, notice=notice)
            guard.told_repeats = repeats if guard.last else 0
        return True
    if guard.failures >= FAILURE_FACTOR * limit:
        times = format_count_with_noun(guard.failures, "time")
        await _tell_or_ask(
            agent,
            was_told=guard.failures > FAILURE_FACTOR * limit,
            subject=format_notice("loop_of_failures", times=times),
            notice=format_notice("failed_calls", times=times),
        )
        return True
    return False


async def _check_exchanges(agent: AgentRunner, counts: _ExchangeCounts, limit: int) -> None:
    recipient, count = max(counts.sent.items(), key=lambda item: item[1])
    if _has_changed_anything(agent, counts, is_limit_reached=count >= limit):
        return
    if counts.was_told_of_messages and count <= limit:
        return
    await _tell_or_ask(
        agent,
        was_told=counts.was_told_of_messages,
        subject=format_notice("loop_of_messages", count=count, recipient=recipient),
        notice=format_notice("unproductive_messages", count=count, recipient=recipient),
    )
    counts.was_told_of_messages = True


async def enforce_claim_limit(agent: AgentRunner, task: str) -> None:
    """Tell the agent once that it claims the same task again and again, then ask the user or stop it."""
    counts, limit = agent.state.repetition.exchanges, agent.limits.max_unproductive_messages
    count = counts.add_claim(task)
    if limit is None or count < 2 or _has_changed_anything(agent, counts, is_limit_reached=count >= limit):
        return
    await _tell_or_ask(
        agent,
        was_told=counts.was_told_of_claims,
        subject=format_notice("loop_of_claims", count=count, task=task),
        notice=format_notice("repeated_claims", count=count, task=task),
    )
    counts.was_told_of_claims = True


def _has_changed_anything(agent: AgentRunner, counts: _ExchangeCounts, *, is_limit_reached: bool) -> bool:
    """Return True if a task or a file has changed since the first message or claim, or if nobody knows."""
    journal = agent.environment.journal
    if journal is None:
        return True
    if counts.journal_offset is None:
        counts.journal_offset = journal.get_position()
    if not is_limit_reached:
        return True
    # Read only now: changes of agents in other processes are in the journal, and here the wait is rare.
    changed, counts.journal_offset = _find_change(
        counts, journal.read_records(counts.journal_offset), counts.journal_offset
    )
    if changed:
        counts.forget_counts()
    return changed


def _find_change(counts: _ExchangeCounts, records: Iterable[JournalRecord], offset: int) -> tuple[bool, int]:
    """Return whether the events contain a change of a task or a file, and the offset after them."""
    changed = False
    for record in records:
        offset = record.next
        match record.event:
            case TaskChanged() as state:
                changed = counts.add_task_state(state) or changed
            case ToolFinished(may_change_files=True):
                changed = True
            case _:
                pass
    return changed, offset


def may_change_files(call: ToolUseBlock, output: ToolOutput) -> bool:
    """Return True if the call may have changed a file, as far as a command, or the data of a write, shows."""
    if output.is_error:
        return False
    if call.name == "Bash":
        return not is_reading_command(str(call.input.get("command", "")))
    return call.name in _FILE_TOOLS and not (
        isinstance(output.data, Mapping) and output.data.get("changed") is False
    )


def is_reading_command(command: str) -> bool:
    """Return True if the shell command only reads, as far as its first word and its characters show."""
    first_word = command.split(maxsplit=1)[0] if command.strip() else ""
    return first_word in _READING_COMMANDS and not _SHELL_OPERATORS & set(command)


async def _tell_or_ask(agent: AgentRunner, *, was_told: bool, subject: str, notice: str) -> None:
    name = agent.identity.name or agent.identity.agent
    if not was_told:
        await agent.add_message(user_message(notice), meta=True)
        await agent.environment.emit(
            NoteAdded(agent=agent.identity.agent, text=f"{name} may be in a loop: {subject}.")
        )
        return
    question = MultipleChoice(
        question=f"{name} seems to be in a loop: {subject}. Should it continue?",
        header="Loop",
        options=(
            ChoiceOption(label=CONTINUE_LABEL, description="It continues, and the count starts again."),
            ChoiceOption(label=STOP_LABEL, description="It ends now, and its conversation is kept."),
        ),
    )
    try:
        answer = await agent.environment.question_broker.ask_person_or_deny(
            ChoiceQuestion(id=agent.ids.new_short_id(), agent=agent.identity.agent, choices=(question,))
        )
    except QuestionUnanswerable as error:
        answer = DenyAnswer(reason=str(error), by="policy")
    if _means_continue(answer, question):
        agent.state.repetition.forget_all()
        if isinstance(answer, ChoiceAnswer) and answer.answers[question.question] != CONTINUE_LABEL:
            text = format_notice("loop_answer", answer=answer.answers[question.question])
            await agent.add_message(user_message(text), meta=True)
        return
    why = format_end_reason("in_loop", subject=subject)
    agent.state.repetition.stop_reason = why
    agent.state.halt_reason = agent.state.halt_reason or why
    await agent.environment.emit(RepetitionStopped(agent=agent.identity.agent, reason=why))


def _means_continue(answer: Answer, question: MultipleChoice) -> bool:
    """Return True for `Continue` and for any other text from the user; a denial stops the agent."""
    if isinstance(answer, DenyAnswer) or not isinstance(answer, ChoiceAnswer):
        return False
    return answer.answers.get(question.question, STOP_LABEL) != STOP_LABEL
