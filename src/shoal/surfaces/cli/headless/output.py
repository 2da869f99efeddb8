"""Standard output of a headless run: the final text, one result object, or every message."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, structs

from shoal.app.picture.standing import Standing, Standings
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    BudgetWarned,
    ConversationCompacted,
    Event,
    Finished,
    Heard,
    HookRan,
    MessageAdded,
    PermissionDenied,
    RequestSent,
    ToolStarted,
)
from shoal.core.ids import LEAD, AgentId
from shoal.core.messages import ToolResult
from shoal.core.usage import Usage
from shoal.core.wording import clean
from shoal.surfaces.cli.headless.stdout import Stdout
from shoal.surfaces.cli.headless.task_lines import task_line
from shoal.surfaces.terminal import sentences
from shoal.wire import stream_json
from shoal.wire.content import dump
from shoal.wire.stream_partial import PartialMessage

if TYPE_CHECKING:
    from shoal.app.session.session import Session

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]


class Output(Protocol):
    def meet(self, session: Session) -> None:
        """Set the session; events before the first turn count towards that turn."""
        ...

    async def begin(self, session: Session) -> None:
        """Begin a turn."""
        ...

    async def hear(self, event: Event) -> None: ...

    async def end(self, finished: Finished) -> None:
        """End the turn."""
        ...

    async def rest(self) -> None:
        """Report that no turn runs, no agent works, and nothing waits."""
        ...

    async def cut_short(self, why: str) -> None:
        """Report that agents were stopped before they were done: the last result is incomplete."""
        ...

    async def fail(self, why: str) -> None:
        """Report that there will be no turn."""
        ...

    async def close(self) -> None: ...


class Wanted(Struct, frozen=True, kw_only=True):
    """Output options chosen by the caller."""

    format: OutputFormat = "text"
    partial_messages: bool = False
    replay_user_messages: bool = False
    hook_events: bool = False
    states: bool = False
    """Report when a turn runs and when none does."""


def output_for(wanted: Wanted, stdout: Stdout) -> Output:
    match wanted.format:
        case "text":
            return TextOutput(stdout)
        case "json":
            return JsonOutput(stdout)
        case "stream-json":
            return StreamOutput(stdout, wanted)


class TextOutput:
    """Writes the text of the last turn that has any; for an assistant, of each turn. Errors go to stderr."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._text = ""
        self._each = False

    def meet(self, session: Session) -> None:
        self._each = session.parts.assistant

    async def begin(self, session: Session) -> None: ...

    async def hear(self, event: Event) -> None: ...

    async def end(self, finished: Finished) -> None:
        self._text = finished.text or self._text
        if self._each:
            await self.close()

    async def rest(self) -> None: ...

    async def cut_short(self, why: str) -> None: ...

    async def fail(self, why: str) -> None: ...

    async def close(self) -> None:
        text, self._text = self._text, ""
        if text:
            # A program gets every byte; a terminal gets no control sequences.
            text = clean(text) if self._stdout.is_terminal else text
            text = text if text.endswith("\n") else f"{text}\n"
            await self._stdout.write(text.encode("utf-8", "replace"))


class _Turn:
    """Collects what the result reports about a turn besides its `Finished`, including background agents."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.denials: list[stream_json.Denial] = []
        self.stop_reason: str | None = None
        self._inputs: dict[str, dict[str, object]] = {}

    def hear(self, event: Event) -> None:
        match event:
            case MessageAdded(message=message, stop_reason=stop_reason):
                self._inputs.update({call.id: call.input for call in message.tool_uses})
                if event.agent == LEAD:
                    self.stop_reason = stop_reason or self.stop_reason
            case PermissionDenied(call=call, tool=tool):
                denial = stream_json.Denial(
                    tool_name=tool, tool_use_id=call, tool_input=self._inputs.get(call, {})
                )
                self.denials.append(denial)
            case _:
                pass

    def result(self, finished: Finished) -> stream_json.Result:
        done = finished.reason == "done"
        why = "" if done else sentences.ending(finished)
        return stream_json.Result(
            subtype=stream_json.subtype_of(finished.reason),
            is_error=not done,
            duration_ms=finished.duration_ms,
            duration_api_ms=finished.duration_api_ms,
            num_turns=finished.requests,
            result=finished.text or why,
            structured_output=UNSET if finished.output is None else finished.output,
            stop_reason=self.stop_reason,
            session_id=self.session.id,
            total_cost_usd=finished.cost_usd,
            usage=finished.usage,
            model_usage=stream_json.model_usage(self.session.agent.purse.tree.by_model),
            permission_denials=self.denials,
            api_error_status=getattr(finished.error, "status", None),
            errors=() if done else (why,),
            uuid=str(uuid.uuid4()),
        )


def _no_result(why: str) -> stream_json.Result:
    return stream_json.Result(
        subtype="error_during_execution",
        is_error=True,
        duration_ms=0,
        duration_api_ms=0,
        num_turns=0,
        result=why,
        session_id="",
        total_cost_usd=0.0,
        usage=Usage(),
        model_usage={},
        permission_denials=(),
        errors=(why,),
        uuid=str(uuid.uuid4()),
    )


def _unfinished(result: stream_json.Result, why: str) -> stream_json.Result:
    return structs.replace(
        result,
        subtype="error_during_execution",
        is_error=True,
        errors=(*result.errors, why),
        uuid=str(uuid.uuid4()),
    )


class JsonOutput:
    """Writes the result of the last turn as one object."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._turn: _Turn | None = None
        self._result: stream_json.Result | None = None

    def meet(self, session: Session) -> None:
        self._turn = _Turn(session)

    async def begin(self, session: Session) -> None: ...

    async def hear(self, event: Event) -> None:
        assert self._turn is not None
        self._turn.hear(event)

    async def end(self, finished: Finished) -> None:
        assert self._turn is not None
        self._result = self._turn.result(finished)
        # Events between turns count towards the next turn.
        self._turn = _Turn(self._turn.session)

    async def rest(self) -> None: ...

    async def cut_short(self, why: str) -> None:
        if self._result is not None:
            self._result = _unfinished(self._result, why)

    async def fail(self, why: str) -> None:
        self._result = _no_result(why)

    async def close(self) -> None:
        if self._result is not None:
            result, self._result = self._result, None
            await self._stdout.write(dump(result) + b"\n")


class StreamOutput:
    """Writes every message as it enters the conversation, between an `init` and a `result` for each turn."""

    def __init__(self, stdout: Stdout, wanted: Wanted) -> None:
        self._stdout = stdout
        self._wanted = wanted
        self._turn: _Turn | None = None
        self._result: stream_json.Result | None = None
        self._standings = Standings()
        self._state: stream_json.State = "idle"
        self._partial: dict[AgentId, PartialMessage] = {}

    async def send(self, line: object) -> None:
        await self._stdout.write(dump(line) + b"\n")

    def meet(self, session: Session) -> None:
        self._turn = _Turn(session)

    async def begin(self, session: Session) -> None:
        await self.state("running")
        await self.send(_init(session))

    async def hear(self, event: Event) -> None:
        assert self._turn is not None
        self._turn.hear(event)
        session = self._turn.session.id
        speaker = self._standings.hear(event, self._turn.session.agent.clock.monotonic())
        match event:
            case MessageAdded():
                if event.message.role == "assistant":
                    await self._tell_pieces(event, speaker)
                if self._shown(event):
                    await self.send(stream_json.message_line(event, session, parent=speaker.call or None))
            case Heard() | RequestSent():
                await self._tell_pieces(event, speaker)
            case AgentStarted() | AgentEnded() | ToolStarted() if event.agent != LEAD:
                await self.send(task_line(event, speaker, session))
            case ConversationCompacted(trigger=trigger, tokens_before=tokens):
                facts = {"trigger": trigger, "pre_tokens": tokens}
                boundary = stream_json.CompactBoundary(
                    compact_metadata=facts, session_id=session, uuid=str(uuid.uuid4())
                )
                await self.send(boundary)
            case HookRan() if self._wanted.hook_events:
                await self.send(_hook_response(event, session))
            case BudgetWarned():
                await self.send(_budget_warning(event, session))
            case _:
                pass

    async def end(self, finished: Finished) -> None:
        assert self._turn is not None
        self._result = self._turn.result(finished)
        await self.send(self._result)
        self._turn = _Turn(self._turn.session)

    async def rest(self) -> None:
        await self.state("idle")

    async def cut_short(self, why: str) -> None:
        """Send one more result: the turn's own result was sent before the run was cut short."""
        if self._result is not None:
            await self.send(_unfinished(self._result, why))

    async def fail(self, why: str) -> None:
        await self.send(_no_result(why))

    async def close(self) -> None: ...

    async def _tell_pieces(self, event: Heard | RequestSent | MessageAdded, speaker: Standing) -> None:
        if not self._wanted.partial_messages:
            return
        assert self._turn is not None
        partial = self._partial.setdefault(event.agent, PartialMessage())
        match event:
            case Heard(kind="text" | "thinking" as kind, text=text):
                pieces = partial.heard(kind, text, speaker.model)
            case MessageAdded():
                pieces = partial.ended(event)
            case RequestSent():
                pieces = partial.begun_anew()
            case _:
                pieces = ()
        for piece in pieces:
            line = stream_json.StreamEvent(
                event=piece,
                parent_tool_use_id=speaker.call or None,
                session_id=self._turn.session.id,
                uuid=str(uuid.uuid4()),
            )
            await self.send(line)

    def _shown(self, added: MessageAdded) -> bool:
        # The caller's own messages are replayed only on request.
        if added.message.role == "assistant" or self._wanted.replay_user_messages:
            return True
        return any(isinstance(block, ToolResult) for block in added.message.content)

    async def state(self, state: stream_json.State) -> None:
        """Send the state, only to a program that feeds us, and only when it changes."""
        if self._wanted.states and self._turn is not None and state != self._state:
            self._state = state
            session = self._turn.session
            await self.send(
                stream_json.StateChanged(
                    state=state,
                    session_id=session.id,
                    uuid=str(uuid.uuid4()),
                    sdk_host_only=session.parts.settings.hides_states or UNSET,
                )
            )


def _hook_response(ran: HookRan, session: str) -> stream_json.HookResponse:
    return stream_json.HookResponse(
        hook_event=ran.event,
        hook_name=ran.hook,
        outcome=ran.verdict,
        output=ran.detail,
        duration_ms=ran.duration_ms,
        session_id=session,
        uuid=str(uuid.uuid4()),
    )


def _budget_warning(warned: BudgetWarned, session: str) -> stream_json.BudgetWarning:
    return stream_json.BudgetWarning(
        limit=warned.limit,
        percent=warned.percent,
        spent=warned.spent,
        of=warned.of,
        whose=warned.whose,
        session_id=session,
        uuid=str(uuid.uuid4()),
    )


def _init(session: Session) -> stream_json.Init:
    parts, agent = session.parts, session.agent
    return stream_json.Init(
        cwd=str(parts.workspace.root),
        session_id=session.id,
        tools=stream_json.tool_names(agent.tools),
        mcp_servers=[{"name": each.name, "status": each.status} for each in parts.servers.standings()],
        model=agent.model.card.id,
        permission_mode=parts.permissions.mode,
        agents=[definition.name for definition in parts.definitions.all()],
        plugins=[{"name": each.name, "path": str(each.root)} for each in parts.plugins.all],
        slash_commands=[each.name for each in parts.knowledge.commands()],
        shoal_version=parts.version,
        uuid=str(uuid.uuid4()),
    )
