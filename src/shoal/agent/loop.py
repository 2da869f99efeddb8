"""Agent loop: call the model, execute its tool calls, check the inbox, until nothing is left to do.

There is one path for every use; a lead, a child and a test differ only in the agent's dependencies.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import format_notice
from shoal.agent.compaction import compact_conversation, is_compaction_due
from shoal.agent.hook_points import (
    add_inbox_item_after_hooks,
    add_prompt_after_hooks,
    add_server_instructions,
    run_stop_failure_hooks,
    run_stop_hooks,
)
from shoal.agent.model_call import call_model
from shoal.agent.refused_images import drop_refused_images
from shoal.agent.repetition_guard import enforce_repetition_limits
from shoal.agent.tool_calls import execute_tool_calls
from shoal.agent.work_checkpoints import send_back_unstored_work
from shoal.core.budgets.limits import BudgetRefusal, LimitKind
from shoal.core.conversation.messages import Message, TextBlock, ToolUseBlock, user_message
from shoal.core.conversation.model_requests import ModelReply
from shoal.core.conversation.transcript_entries import ModelReplyMetadata
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import BadRequest, BudgetExhausted, ContextTooLong, ModelError
from shoal.core.events import PREVIEW_LENGTH, AssistantReplied, MessageAuthor, TurnEndReason
from shoal.core.ids import LEAD_ID, RequestId
from shoal.core.text.text_format import format_count_with_noun
from shoal.wire.notification_text import format_system_reminder

MAX_CONTINUATIONS = 5
_PLAN_TOOLS = frozenset({"EnterPlanMode", "ExitPlanMode"})


class LoopResult(Struct, frozen=True, kw_only=True):
    reason: TurnEndReason
    text: str = ""
    detail: str = ""
    requests: int = 0
    limit: LimitKind | None = None
    """Limit that was reached, for `budget` and for a `deadline` set by a budget."""
    interrupted_results: Message | None = None
    """Results for calls that this end interrupted."""


async def run_agent_loop(
    agent: AgentRunner, prompt: Message | None = None, *, by: MessageAuthor = "person"
) -> LoopResult:
    """Run the loop. Without a prompt it starts from the inbox. After a limit it can continue later."""
    seconds = agent.budget.start_work_timer()
    replies_before = agent.state.reply_count
    agent.state.halt_reason = ""
    agent.state.has_unstored_files = False
    if prompt is not None and by == "person":
        agent.state.repetition.forget_all()
    elif prompt is not None:
        agent.state.repetition.forget_calls()
    try:
        blocked_prompt = None if prompt is None else await add_prompt_after_hooks(agent, prompt, by=by)
        has_items, blocked_item = await _drain_inbox(agent, is_start=True)
        if agent.state.halt_reason or (
            (blocked_prompt or blocked_item) and not has_items and (prompt is None or blocked_prompt)
        ):
            return LoopResult(
                reason="blocked", detail=agent.state.halt_reason or blocked_prompt or blocked_item
            )
        if not _has_message_to_answer(agent):
            return LoopResult(reason="done", detail=format_end_reason("no_message"))
        if seconds is None:
            return await _run_tool_rounds(agent)
        async with agent.clock.deadline(seconds):
            return await _run_tool_rounds(agent)
    except ModelError as error:
        await run_stop_failure_hooks(agent, error)
        raise
    except BudgetExhausted as error:
        return _result_from_budget_refusal(error.refusal, agent.state.reply_count - replies_before)
    except TimeoutError:
        refusal = agent.budget.check_time_limit()
        if refusal is None:
            raise
        interrupted = agent.conversation.add_interrupted_call_results()
        return replace(
            _result_from_budget_refusal(refusal, agent.state.reply_count - replies_before),
            interrupted_results=interrupted,
        )
    finally:
        agent.permissions.drop_turn_permissions()
        agent.state.turn_thinking_tokens = None
        agent.budget.stop_work_timer()


def _result_from_budget_refusal(refusal: BudgetRefusal, requests: int) -> LoopResult:
    reason: TurnEndReason = "deadline" if refusal.limit == "seconds" else "budget"
    return LoopResult(reason=reason, detail=refusal.sentence, requests=requests, limit=refusal.limit)


def _has_message_to_answer(agent: AgentRunner) -> bool:
    """Return True if there is a message to answer: queued input may have been withdrawn meanwhile."""
    messages = agent.conversation.messages
    return bool(messages) and messages[-1].role == "user"


async def _run_tool_rounds(agent: AgentRunner) -> LoopResult:
    requests = continuations = stop_returns = 0
    parts: list[str] = []
    calls: Sequence[ToolUseBlock] = ()
    while True:
        if agent.limits.max_turns is not None and requests >= agent.limits.max_turns:
            return LoopResult(
                reason="max_turns",
                requests=requests,
                detail=format_end_reason(
                    "request_limit", requests=format_count_with_noun(requests, "request")
                ),
            )
        if is_compaction_due(agent):
            await compact_conversation(agent, "auto")
        await _announce_plan_mode(agent, calls)

        reply, request = await _call_model_again_if_empty(agent)
        requests += 1
        agent.state.reply_count += 1
        text, calls = reply.message.text, reply.message.tool_uses
        await _record_model_reply(agent, reply, request, text=text, call_count=len(calls))
        parts.append(text)

        if calls:
            await execute_tool_calls(agent, calls)
            parts.clear()
            await enforce_repetition_limits(agent)
        elif (
            reply.stop_reason == "max_tokens" and reply.message.content and continuations < MAX_CONTINUATIONS
        ):
            continuations += 1
            await agent.add_message(user_message(format_notice("answer_cut")), meta=True)
            continue
        elif await _can_continue_paused_answer(agent, reply):
            continue

        if agent.state.halt_reason:
            return LoopResult(
                reason="blocked", text="".join(parts), requests=requests, detail=agent.state.halt_reason
            )
        has_items, _ = await _drain_inbox(agent, only_waking=not calls)
        if has_items or (not calls and await _is_sent_back(agent, parts, stop_returns)):
            parts.clear()
            stop_returns = 0 if has_items else stop_returns + 1
        elif not calls:
            return _build_end_result(agent, reply, parts, requests)
        continuations = 0


async def _is_sent_back(agent: AgentRunner, parts: Sequence[str], return_count: int) -> bool:
    """Return True if hooks, or files that are not stored, send the agent back to work."""
    return await run_stop_hooks(agent, "".join(parts), return_count) or await send_back_unstored_work(
        agent, return_count
    )


def _build_end_result(
    agent: AgentRunner, reply: ModelReply, parts: Sequence[str], requests: int
) -> LoopResult:
    if agent.state.has_unstored_files:
        return LoopResult(
            reason="blocked", text="".join(parts), requests=requests, detail=agent.state.halt_reason
        )
    return LoopResult(
        reason="done", text="".join(parts), requests=requests, detail=_explain_stop_reason(reply)
    )


async def _announce_plan_mode(agent: AgentRunner, calls: Sequence[ToolUseBlock]) -> None:
    """Tell the lead that a person started or ended plan mode. Other agents learn it from their prompts."""
    is_planning = agent.permissions.mode == "plan"
    if is_planning is agent.state.is_told_to_plan:
        return
    agent.state.is_told_to_plan = is_planning
    # The results of the plan tools say so themselves.
    has_planned = any(call.name in _PLAN_TOOLS for call in calls)
    if agent.identity.agent == LEAD_ID and "ExitPlanMode" in agent.tools and not has_planned:
        text = format_notice("plan_mode" if is_planning else "plan_mode_ended")
        await agent.add_message(user_message(format_system_reminder(text)), meta=True)


async def _can_continue_paused_answer(agent: AgentRunner, reply: ModelReply) -> bool:
    if reply.stop_reason != "pause_turn" or not reply.message.content:
        return False
    agent.state.repetition.add_paused_answer(reply.message)
    await enforce_repetition_limits(agent)
    return not agent.state.halt_reason


async def _drain_inbox(
    agent: AgentRunner, *, only_waking: bool = False, is_start: bool = False
) -> tuple[bool, str]:
    """Add the inbox items. Return True if any was added, and the reason if a hook blocked one."""
    was_added, block_reason = False, ""
    while (item := agent.inbox.take_next(only_waking=only_waking and not was_added)) is not None:
        blocked = await add_inbox_item_after_hooks(agent, item)
        if item.by == "person":
            agent.state.repetition.forget_all()
        elif item.mode == "task-notification":
            agent.state.repetition.on_notification(agent.clock.monotonic())
        elif is_start:
            agent.state.repetition.forget_calls()
        was_added, block_reason = was_added or blocked is None, blocked or block_reason
    return was_added, block_reason


async def _call_model_again_if_empty(agent: AgentRunner) -> tuple[ModelReply, RequestId]:
    """Send the same request once more if the reply is blank: providers sometimes send nothing."""
    if agent.context.server_instructions is not None:
        await add_server_instructions(agent)
    reply, request = await _call_model_compact_on_overflow(agent)
    if reply.stop_reason not in ("end_turn", "tool_use") or not _is_blank(reply.message):
        return reply, request
    return await _call_model_compact_on_overflow(agent)


def _is_blank(message: Message) -> bool:
    """Return True if the message has no content except white space."""
    for block in message.content:  # noqa: SIM110 - `all` would need a generator for every reply
        if type(block) is not TextBlock or block.text.strip():
            return False
    return True


async def _call_model_compact_on_overflow(agent: AgentRunner) -> tuple[ModelReply, RequestId]:
    while True:
        try:
            return await call_model(agent, agent.build_model_request())
        except BadRequest as error:
            if not await drop_refused_images(agent, error):
                raise
        except ContextTooLong:
            await compact_conversation(agent, "overflow")
            return await call_model(agent, agent.build_model_request())


async def _record_model_reply(
    agent: AgentRunner, reply: ModelReply, request: RequestId, *, text: str, call_count: int
) -> None:
    # Every provider rejects a message without content.
    if not reply.message.content:
        return
    billing = ModelReplyMetadata(
        message_id=reply.id,
        model=reply.model,
        stop_reason=reply.stop_reason,
        usage=reply.usage,
        request=request,
    )
    await agent.add_message(reply.message, billing=billing)
    entry = agent.conversation.last_entry
    assert entry is not None
    await agent.environment.emit(
        AssistantReplied(
            agent=agent.identity.agent,
            entry=entry,
            preview=text[:PREVIEW_LENGTH],
            tool_uses=call_count,
        )
    )


def _explain_stop_reason(reply: ModelReply) -> str:
    match reply.stop_reason:
        case "refusal":
            return format_end_reason("model_refused")
        case "max_tokens":
            return format_end_reason("answer_cut_off")
        case _:
            return ""
