"""Standard output of a headless run: the final text, one result object, or every message."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, structs

import shoal
from shoal.app.run_view.agent_status import AgentStatusRecord, RunViewAgentsState
from shoal.app.session.lead_facts import list_lead_tools
from shoal.core.clock import format_iso_time
from shoal.core.conversation.messages import ToolResultBlock, ToolUseBlock, extract_tool_result_text
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    BudgetThresholdReached,
    ConversationCompacted,
    Event,
    HookRan,
    MessageAdded,
    ModelRequestSent,
    PartialReplyDiscarded,
    PermissionDenied,
    RunFinished,
    TextStreamed,
    ToolOutputReturned,
    ToolStarted,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli.headless.stdout import AsyncStdoutWriter
from shoal.surfaces.terminal import user_messages
from shoal.wire import stream_output_codec, stream_task_codec
from shoal.wire.stream_output_codec import OutputStreamLine, PartialMessageEncoder
from shoal.wire.tool_response_codec import build_tool_response, has_documented_response

if TYPE_CHECKING:
    from shoal.app.session.session import Session

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]


def build_task_stream_line(
    event: AgentStarted | AgentEnded | ToolStarted, agent: AgentStatusRecord, session: str
) -> OutputStreamLine:
    call, identity = agent.starting_call or None, str(uuid.uuid4())
    match event:
        case AgentStarted():
            return stream_task_codec.AgentTaskStartedStreamLine(
                task_id=event.agent,
                description=event.description,
                tool_use_id=call,
                subagent_type=event.kind,
                is_background=event.background,
                session_id=session,
                uuid=identity,
            )
        case AgentEnded(completion=completion):
            return stream_task_codec.build_agent_task_ended_line(
                completion, call=call, session=session, uuid=identity
            )
        case ToolStarted(tool=tool):
            return stream_task_codec.AgentTaskProgressStreamLine(
                task_id=event.agent,
                description=agent.activity,
                tool_use_id=call,
                last_tool_name=tool,
                usage=stream_task_codec.AgentTaskUsage(
                    total_tokens=agent.tokens,
                    tool_uses=agent.tool_calls,
                    duration_ms=round((agent.last_event_at - agent.since) * 1000),
                ),
                session_id=session,
                uuid=identity,
            )


class HeadlessOutputWriter(Protocol):
    """Output of a session. Events before the first turn count toward that turn."""

    async def begin_turn(self) -> None:
        """Begin a turn."""
        ...

    async def handle_event(self, event: Event) -> None: ...

    async def end_turn(self, finished: RunFinished) -> None:
        """End the turn."""
        ...

    async def report_idle(self) -> None:
        """Report that no turn is running, no agent is working, and nothing is waiting."""
        ...

    async def report_incomplete_result(self, why: str) -> None:
        """Report that agents were stopped before they were done: the last result is incomplete."""
        ...

    async def report_run_failure(self, why: str) -> None:
        """Report that the run failed, or that there will be no turn."""
        ...

    async def write_pending_result(self) -> None: ...


class HeadlessOutputOptions(Struct, frozen=True, kw_only=True):
    """Output options chosen by the caller."""

    format: OutputFormat = "text"
    partial_messages: bool = False
    replay_user_messages: bool = False
    hook_events: bool = False
    states: bool = False
    """Report when a turn starts and when none is running."""


def create_headless_output(
    options: HeadlessOutputOptions, stdout: AsyncStdoutWriter, session: Session
) -> HeadlessOutputWriter:
    match options.format:
        case "text":
            return TextResultOutputWriter(stdout, prints_each_turn=session.is_assistant)
        case "json":
            return JsonResultOutputWriter(stdout, session)
        case "stream-json":
            return StreamJsonOutputWriter(stdout, session, options)


async def send_stream_line(stdout: AsyncStdoutWriter, line: object) -> None:
    await stdout.write(stream_output_codec.encode_stream_line(line) + b"\n")


async def write_start_failure(output_format: OutputFormat, stdout: AsyncStdoutWriter, why: str) -> None:
    """Write the result of a run whose session could not be opened; text has none."""
    if output_format != "text":
        await send_stream_line(stdout, _build_failure_result(why))


class TextResultOutputWriter:
    """Writes the text of the last turn that has any; for an assistant, of each turn. Errors go to stderr."""

    def __init__(self, stdout: AsyncStdoutWriter, *, prints_each_turn: bool) -> None:
        self._stdout = stdout
        self._text = ""
        self._prints_each_turn = prints_each_turn

    async def begin_turn(self) -> None: ...

    async def handle_event(self, event: Event) -> None: ...

    async def end_turn(self, finished: RunFinished) -> None:
        self._text = finished.text or self._text
        if self._prints_each_turn:
            await self.write_pending_result()

    async def report_idle(self) -> None: ...

    async def report_incomplete_result(self, why: str) -> None: ...

    async def report_run_failure(self, why: str) -> None: ...

    async def write_pending_result(self) -> None:
        text, self._text = self._text, ""
        if text:
            # A program gets every byte; a terminal gets no control sequences.
            text = strip_terminal_codes(text) if self._stdout.is_terminal else text
            text = text if text.endswith("\n") else f"{text}\n"
            await self._stdout.write(text.encode("utf-8", "replace"))


class _TurnResultBuilder:
    """Collects what the result reports besides the `RunFinished` event, including background agents."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.denials: list[stream_output_codec.RunResultPermissionDenial] = []
        self.stop_reason: str | None = None
        self._inputs: dict[str, dict[str, object]] = {}

    def record_event(self, event: Event) -> None:
        match event:
            case MessageAdded(message=message, stop_reason=stop_reason):
                self._inputs.update({call.id: call.input for call in message.tool_uses})
                if event.agent == LEAD_ID:
                    self.stop_reason = stop_reason or self.stop_reason
            case PermissionDenied(call=call, tool=tool):
                denial = stream_output_codec.RunResultPermissionDenial(
                    tool_name=tool, tool_use_id=call, tool_input=self._inputs.get(call, {})
                )
                self.denials.append(denial)
            case _:
                pass

    def build_result(self, finished: RunFinished) -> stream_output_codec.RunResultStreamLine:
        is_done = finished.reason == "done"
        explanation = "" if is_done else user_messages.describe_turn_end(finished)
        return stream_output_codec.RunResultStreamLine(
            subtype=stream_output_codec.get_result_subtype(finished.reason),
            is_error=not is_done,
            work=stream_output_codec.RunResultWork(
                duration_ms=finished.duration_ms,
                duration_api_ms=finished.duration_api_ms,
                num_turns=finished.requests,
            ),
            result=finished.text or explanation,
            structured_output=UNSET if finished.output is None else finished.output,
            stop_reason=self.stop_reason,
            session_id=self.session.id,
            spending=stream_output_codec.RunResultSpending(
                total_cost_usd=finished.cost_usd,
                usage=finished.usage,
                model_usage=stream_output_codec.build_model_usage_totals(self.session.spending.by_model),
            ),
            permission_denials=self.denials,
            api_error_status=getattr(finished.error, "status", None),
            errors=() if is_done else (explanation,),
            uuid=str(uuid.uuid4()),
        )


def _build_failure_result(explanation: str) -> stream_output_codec.RunResultStreamLine:
    return stream_output_codec.RunResultStreamLine(
        subtype="error_during_execution",
        is_error=True,
        result=explanation,
        session_id="",
        permission_denials=(),
        errors=(explanation,),
        uuid=str(uuid.uuid4()),
    )


def _mark_result_incomplete(
    result: stream_output_codec.RunResultStreamLine, explanation: str
) -> stream_output_codec.RunResultStreamLine:
    return structs.replace(
        result,
        subtype="error_during_execution",
        is_error=True,
        errors=(*result.errors, explanation),
        uuid=str(uuid.uuid4()),
    )


class JsonResultOutputWriter:
    """Writes the result of the last turn as one object."""

    def __init__(self, stdout: AsyncStdoutWriter, session: Session) -> None:
        self._stdout = stdout
        self._turn = _TurnResultBuilder(session)
        self._result: stream_output_codec.RunResultStreamLine | None = None

    async def begin_turn(self) -> None: ...

    async def handle_event(self, event: Event) -> None:
        self._turn.record_event(event)

    async def end_turn(self, finished: RunFinished) -> None:
        self._result = self._turn.build_result(finished)
        # Events between turns count toward the next turn.
        self._turn = _TurnResultBuilder(self._turn.session)

    async def report_idle(self) -> None: ...

    async def report_incomplete_result(self, why: str) -> None:
        if self._result is not None:
            self._result = _mark_result_incomplete(self._result, why)

    async def report_run_failure(self, why: str) -> None:
        self._result = _build_failure_result(why)

    async def write_pending_result(self) -> None:
        if self._result is not None:
            result, self._result = self._result, None
            await send_stream_line(self._stdout, result)


class StreamJsonOutputWriter:
    """Writes every message as it enters the conversation, between an `init` and a `result` for each turn."""

    def __init__(self, stdout: AsyncStdoutWriter, session: Session, options: HeadlessOutputOptions) -> None:
        self._stdout = stdout
        self._session = session
        self._options = options
        self._turn = _TurnResultBuilder(session)
        self._result: stream_output_codec.RunResultStreamLine | None = None
        self._statuses = RunViewAgentsState()
        self._state: stream_output_codec.SessionState = "idle"
        self._partial: dict[AgentId, PartialMessageEncoder] = {}
        self._tool_data: dict[str, Any] = {}
        """Result data by call, until the message with the result arrives."""
        self._tool_inputs: dict[str, Mapping[str, Any]] = {}
        """Inputs of the calls that have not returned."""
        self._replays: list[stream_output_codec.UserMessageStreamLine] = []
        """Messages of the program that are sent back once the agent has them."""

    def queue_replay(self, message: Mapping[str, Any], identity: str) -> None:
        """Send a message of the program back when the agent gets it, if the program wants that."""
        if self._options.replay_user_messages:
            self._replays.append(
                stream_output_codec.UserMessageStreamLine(
                    message=message,
                    session_id=self._session.id,
                    uuid=identity or str(uuid.uuid4()),
                    timestamp=format_iso_time(self._session.clock.now()),
                    is_replay=True,
                )
            )

    async def _send_replays(self) -> None:
        replays, self._replays = self._replays, []
        for line in replays:
            await self.send_line(line)

    async def send_line(self, line: object) -> None:
        await send_stream_line(self._stdout, line)

    async def begin_turn(self) -> None:
        await self.send_session_state("running")
        await self.send_line(_build_init_line(self._session))

    async def handle_event(self, event: Event) -> None:
        self._turn.record_event(event)
        session = self._session.id
        status = self._statuses.apply_event(event, self._session.clock.monotonic())
        match event:
            case MessageAdded():
                if event.message.role == "assistant":
                    self._tool_inputs |= {
                        block.id: block.input
                        for block in event.message.content
                        if isinstance(block, ToolUseBlock)
                    }
                    await self._write_partial_message(event, status)
                elif event.by == "person" and event.agent == LEAD_ID:
                    await self._send_replays()
                if _is_message_event_shown(event):
                    await self.send_line(self._build_message_line(event, status))
            case ToolOutputReturned():
                arguments = self._tool_inputs.pop(event.call, {})
                self._tool_data[event.call] = _get_tool_use_result(event, arguments)
            case TextStreamed() | ModelRequestSent():
                await self._write_partial_message(event, status)
            case AgentStarted() | AgentEnded() | ToolStarted() if event.agent != LEAD_ID:
                await self.send_line(build_task_stream_line(event, status, session))
            case ConversationCompacted(trigger=trigger, tokens_before=tokens):
                compact_metadata = {"trigger": trigger, "pre_tokens": tokens}
                boundary = stream_output_codec.CompactBoundaryStreamLine(
                    compact_metadata=compact_metadata, session_id=session, uuid=str(uuid.uuid4())
                )
                await self.send_line(boundary)
            case HookRan() | BudgetThresholdReached() | PartialReplyDiscarded():
                await self._write_notice(event)
            case _:
                pass

    async def _write_notice(self, event: HookRan | BudgetThresholdReached | PartialReplyDiscarded) -> None:
        session = self._session
        match event:
            case HookRan() if self._options.hook_events:
                await self.send_line(_build_hook_response(event, session.id))
            case BudgetThresholdReached():
                await self.send_line(_build_budget_warning(event, session.id))
            case PartialReplyDiscarded() if event.agent == LEAD_ID:
                await self.send_line(_build_api_retry(event, session))
            case _:
                pass

    def _build_message_line(self, event: MessageAdded, status: AgentStatusRecord) -> object:
        calls = [block.tool_use_id for block in event.message.content if isinstance(block, ToolResultBlock)]
        results = [self._tool_data.pop(call, UNSET) for call in calls]
        return stream_output_codec.build_stream_message_line(
            event,
            self._session.id,
            parent=status.starting_call or None,
            timestamp=format_iso_time(self._session.clock.now()),
            tool_use_result=results[0] if len(results) == 1 else UNSET,
        )

    async def end_turn(self, finished: RunFinished) -> None:
        await self._send_replays()
        self._result = self._turn.build_result(finished)
        await self.send_line(self._result)
        self._turn = _TurnResultBuilder(self._session)

    async def report_idle(self) -> None:
        await self.send_session_state("idle")

    async def report_incomplete_result(self, why: str) -> None:
        """Send one more result: the turn's own result was sent before the run was cut short."""
        if self._result is not None:
            await self.send_line(_mark_result_incomplete(self._result, why))

    async def report_run_failure(self, why: str) -> None:
        await self.send_line(_build_failure_result(why))

    async def write_pending_result(self) -> None: ...

    async def _write_partial_message(
        self, event: TextStreamed | ModelRequestSent | MessageAdded, status: AgentStatusRecord
    ) -> None:
        if not self._options.partial_messages:
            return
        encoder = self._partial.setdefault(event.agent, PartialMessageEncoder())
        match event:
            case TextStreamed(kind="text" | "thinking" as kind, text=text, reply=reply):
                encoded_lines = encoder.encode_delta(kind, text, reply)
            case MessageAdded():
                encoded_lines = encoder.encode_message_end(event)
            case ModelRequestSent(model=model):
                encoded_lines = encoder.start_request(model)
            case _:
                encoded_lines = ()
        for encoded_line in encoded_lines:
            line = stream_output_codec.PartialMessageStreamLine(
                event=encoded_line,
                parent_tool_use_id=status.starting_call or None,
                session_id=self._session.id,
                uuid=str(uuid.uuid4()),
            )
            await self.send_line(line)

    async def send_session_state(self, state: stream_output_codec.SessionState) -> None:
        """Send the state, only to a program that feeds us, and only when it changes."""
        if self._options.states and state != self._state:
            self._state = state
            session = self._session
            await self.send_line(
                stream_output_codec.SessionStateStreamLine(
                    state=state,
                    session_id=session.id,
                    uuid=str(uuid.uuid4()),
                    sdk_host_only=session.settings.hides_session_state_events or UNSET,
                )
            )


def _is_message_event_shown(event: MessageAdded) -> bool:
    """Return False for prompts, and for context that hooks and the runtime add."""
    if event.message.role == "assistant":
        return True
    return any(isinstance(block, ToolResultBlock) for block in event.message.content)


def _get_tool_use_result(event: ToolOutputReturned, arguments: Mapping[str, Any]) -> Any:
    text = extract_tool_result_text(event.result)
    data = event.data if isinstance(event.data, Mapping) else None
    if event.result.is_error or (data is None and not has_documented_response(event.tool)):
        return text if data is None else data
    return build_tool_response(event.tool, arguments, text, data)


def _build_api_retry(
    event: PartialReplyDiscarded, session: Session
) -> stream_output_codec.ApiRetryStreamLine:
    return stream_output_codec.ApiRetryStreamLine(
        attempt=event.attempt,
        max_retries=session.settings.foreign.max_retries,
        retry_delay_ms=round(event.retry_in * 1000),
        error_status=event.status,
        error=event.reason,
        session_id=session.id,
        uuid=str(uuid.uuid4()),
    )


def _build_hook_response(event: HookRan, session: str) -> stream_output_codec.HookOutcomeStreamLine:
    return stream_output_codec.HookOutcomeStreamLine(
        hook_event=event.event,
        hook_name=event.hook,
        outcome=event.verdict,
        output=event.detail,
        duration_ms=event.duration_ms,
        session_id=session,
        uuid=str(uuid.uuid4()),
    )


def _build_budget_warning(
    event: BudgetThresholdReached, session: str
) -> stream_output_codec.BudgetWarningStreamLine:
    return stream_output_codec.BudgetWarningStreamLine(
        limit=event.limit,
        percent=event.percent,
        spent=event.spent,
        of=event.of,
        whose=event.whose,
        session_id=session,
        uuid=str(uuid.uuid4()),
    )


def _build_init_line(session: Session) -> stream_output_codec.SessionInitStreamLine:
    return stream_output_codec.SessionInitStreamLine(
        cwd=str(session.cwd),
        session_id=session.id,
        tools=stream_output_codec.to_protocol_tool_names(list_lead_tools(session)),
        mcp_servers=[{"name": each.name, "status": each.status} for each in session.list_mcp_servers()],
        model=session.model_card.id,
        permission_mode=session.permission_mode,
        api_key_source=session.key_source,
        agents=[definition.name for definition in session.list_agent_definitions()],
        skills=[skill.name for skill in session.skills.list_skills_for_model()],
        plugins=[{"name": each.name, "path": str(each.root)} for each in session.list_plugins()],
        slash_commands=[each.name for each in session.list_slash_commands()],
        output_style=session.output_style,
        shoal_version=shoal.__version__,
        uuid=str(uuid.uuid4()),
    )
