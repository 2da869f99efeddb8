"""Execution of the tool calls of one message: concurrently where allowed, else in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import groupby, islice
from typing import Any

from msgspec import Struct

from shoal.agent.agent import Agent
from shoal.agent.bounding import enterable
from shoal.agent.hooked import after_call, before_call, permission_asked, with_context
from shoal.core.clock import within
from shoal.core.decisions import Allow, Ask, Decision, Deny
from shoal.core.errors import NobodyToAsk, ShoalError, StoreError
from shoal.core.events import PREVIEW, PermissionDenied, ToolFinished, ToolProgress, ToolReturned, ToolStarted
from shoal.core.hooks import UNMOVED, HookEvent, Verdict
from shoal.core.messages import MALFORMED, Message, ToolResult, ToolUse, result_text, user
from shoal.core.permissions import for_session
from shoal.core.questions import Allowed, Answer, Denied, MayRun, Question
from shoal.core.tools import ALIASES, Outcome, Site, Tool, failed
from shoal.wire.content import dump

_TELLING = ("command", "file_path", "pattern", "url", "path", "subject", "description", "prompt", "plan")
"""Input fields that describe a call; the first one present is its preview."""
_MOST_SHOWN = 8


class _Done(Struct, frozen=True):
    result: ToolResult
    milliseconds: int


class _Heeded:
    """Question broker of a call that halts the agent if a denial ends the turn."""

    __slots__ = ("_agent",)

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def ask(self, question: Question) -> Answer:
        given = await self._agent.surroundings.desk.ask(question)
        if isinstance(given, Denied) and given.ends_turn and not self._agent.halted:
            self._agent.halted = f"it was told to stop: {given.reason}"
        return given


async def answer(agent: Agent, calls: tuple[ToolUse, ...]) -> None:
    """Execute every call and add its result.

    Results enter the conversation in the order of the calls, each as soon as the earlier ones are there:
    the transcript does not depend on which of two reads was faster.
    """
    for group in _side_by_side(agent, calls):
        for call in group:
            await agent.tell(
                ToolStarted(agent=agent.identity.agent, call=call.id, tool=call.name, preview=preview(call))
            )
        if len(group) == 1:
            await _enter(agent, group[0], await _run(agent, group[0], calls))
            continue
        await _together(agent, group, calls)
    if agent.held is not None:
        # After all results: providers accept no text between them.
        await agent.add(user(agent.held.reminder), meta=True)


async def _together(agent: Agent, group: list[ToolUse], calls: tuple[ToolUse, ...]) -> None:
    try:
        async with asyncio.TaskGroup() as together:
            tasks = [together.create_task(_run(agent, call, calls)) for call in group]
            for call, task in zip(group, tasks, strict=True):
                await _enter(agent, call, await task)
    except ExceptionGroup as errors:
        # An error that ends a call like this ends the turn, and callers expect it unwrapped.
        raise errors.exceptions[0] from errors


async def carry_out(agent: Agent, call: ToolUse, tool: Tool) -> Outcome:
    """Run a call on behalf of the agent: with its permissions, outside its conversation."""
    return await _made(agent, call, tool, (call,))


def _side_by_side(agent: Agent, calls: Sequence[ToolUse]) -> Iterator[list[ToolUse]]:
    if len(calls) == 1:
        yield list(calls)
        return

    def beside(call: ToolUse) -> bool:
        tool = _named(agent, call.name)
        return tool is not None and tool.side_by_side

    for together, group in groupby(calls, key=beside):
        if together:
            yield list(group)
        else:
            yield from ([call] for call in group)


async def _enter(agent: Agent, call: ToolUse, done: _Done) -> None:
    await agent.add(Message(role="user", content=(done.result,)))
    text = result_text(done.result)
    await agent.tell(
        ToolFinished(
            agent=agent.identity.agent,
            call=call.id,
            tool=call.name,
            is_error=done.result.is_error,
            size=len(text),
            duration_ms=done.milliseconds,
            preview=text[:PREVIEW],
        )
    )


async def _run(agent: Agent, call: ToolUse, calls: tuple[ToolUse, ...]) -> _Done:
    since = agent.clock.monotonic()
    outcome = enterable(
        await _outcome(agent, call, calls), call, agent.surroundings.results, agent.bounds.result_limit
    )
    result = ToolResult(tool_use_id=call.id, content=outcome.content, is_error=outcome.is_error)
    await agent.tell(
        ToolReturned(
            agent=agent.identity.agent, call=call.id, tool=call.name, result=result, data=outcome.data
        )
    )
    return _Done(result, round((agent.clock.monotonic() - since) * 1000))


async def _outcome(agent: Agent, call: ToolUse, calls: tuple[ToolUse, ...]) -> Outcome:
    tool = _named(agent, call.name)
    if tool is None:
        return failed(_no_such_tool(call.name, list(agent.tools)))
    if MALFORMED in call.input:
        return failed(
            f"The arguments of this {call.name} call were not valid JSON, so it was not run: "
            f"{str(call.input[MALFORMED])[:PREVIEW]!r}. Call it again with valid arguments."
        )
    if agent.held is not None and tool.schema.name not in agent.held.tools:
        return await _refused(agent, call, agent.held.why)
    return await _made(agent, call, tool, calls)


async def _made(agent: Agent, call: ToolUse, tool: Tool, calls: tuple[ToolUse, ...]) -> Outcome:
    """Run a call with its hooks. Permissions apply to the input that hooks return."""
    verdict = UNMOVED
    if agent.hooks.wants("PreToolUse") and not agent.halted:
        verdict = await before_call(agent, call)
        if verdict.updated_input is not None:
            call = ToolUse(id=call.id, name=call.name, input=verdict.updated_input)
    if agent.halted:
        return failed(f"{call.name} was not run: {agent.halted}")
    if (refusal := verdict.refusal) is not None:
        return failed(f"{call.name} was not run: a PreToolUse hook says no: {refusal}")
    permitted = await _permitted(agent, call, tool, verdict)
    if isinstance(permitted, Outcome):
        return permitted
    outcome = await _guarded(tool, permitted, _site(agent, permitted, calls))
    event: HookEvent = "PostToolUseFailure" if outcome.is_error else "PostToolUse"
    if agent.hooks.wants(event):
        outcome = await after_call(agent, event, permitted, outcome)
    return with_context(outcome, "PreToolUse", verdict)


async def _permitted(agent: Agent, call: ToolUse, tool: Tool, verdict: Verdict) -> ToolUse | Outcome:
    """Return the permitted call (a hook or a person may have changed its input), or the refusal."""
    match _with_hooks(agent.permissions.decide(call, tool, agent.identity), verdict):
        case Allow():
            return call
        case Deny(reason=reason):
            return await _refused(agent, call, reason)
        case Ask() as unsure:
            if agent.hooks.wants("PermissionRequest"):
                said = await permission_asked(agent, call)
                if agent.halted or said.refusal is not None:
                    why = agent.halted or f"a PermissionRequest hook says no: {said.refusal}"
                    return failed(f"{call.name} was not run: {why}")
                if said.decision == "allow":
                    return await _changed(agent, call, tool, said.updated_input)
            return await _asked(agent, call, tool, unsure)


async def _asked(agent: Agent, call: ToolUse, tool: Tool, unsure: Ask) -> ToolUse | Outcome:
    question = MayRun(
        id=agent.ids.short(),
        agent=agent.identity.agent,
        tool_use_id=call.id,
        tool=call.name,
        input=call.input,
        reason=unsure.reason,
        rule=for_session(unsure.suggestions),
        suggestions=unsure.suggestions,
    )
    try:
        reply = await _Heeded(agent).ask(question)
    except NobodyToAsk as nobody:
        return await _refused(agent, call, str(nobody))
    match reply:
        case Allowed(input=changed):
            made = await _changed(agent, call, tool, changed)
            if isinstance(made, ToolUse):
                agent.permissions.remember(made, reply)
            return made
        case Denied(reason=reason):
            return await _refused(agent, call, reason)
        case _:
            return await _refused(agent, call, "the answer was not about permission")


def _with_hooks(decision: Decision, verdict: Verdict) -> Decision:
    """Apply a hook's decision: it may require a question, or answer one that no rule demands; never more."""
    if isinstance(decision, Allow) and verdict.decision == "ask":
        return Ask(verdict.decision_reason or "a hook wants you to be asked")
    if isinstance(decision, Ask) and decision.rule is None and verdict.decision == "allow":
        return Allow(verdict.decision_reason or "a hook allows it")
    return decision


async def _changed(
    agent: Agent, call: ToolUse, tool: Tool, changed: dict[str, Any] | None
) -> ToolUse | Outcome:
    if changed is None:
        return call
    call = ToolUse(id=call.id, name=call.name, input=changed)
    # A rule's denial also applies to changed input.
    if isinstance(again := agent.permissions.decide(call, tool, agent.identity), Deny):
        return await _refused(agent, call, again.reason)
    return call


async def _refused(agent: Agent, call: ToolUse, reason: str) -> Outcome:
    await agent.tell(
        PermissionDenied(agent=agent.identity.agent, call=call.id, tool=call.name, reason=reason)
    )
    return failed(f"{call.name} was not run: {reason}")


async def _guarded(tool: Tool, call: ToolUse, site: Site) -> Outcome:
    try:
        if tool.deadline is None:
            return await tool.run(call.input, site)
        return await within(site.clock, tool.deadline, tool.run(call.input, site))
    except TimeoutError:
        return failed(f"{call.name} did not finish within {tool.deadline or 0:g} s and was ended.")
    except StoreError:
        raise  # the transcript cannot be written: stop this turn, not the next one
    except ShoalError as error:
        return failed(str(error))
    except Exception as error:  # noqa: BLE001 - boundary around tools: a crash becomes a result for the model
        return failed(f"{call.name} failed: {type(error).__name__}: {error}")


def _site(agent: Agent, call: ToolUse, calls: tuple[ToolUse, ...]) -> Site:
    async def progress(text: str) -> None:
        await agent.tell(ToolProgress(agent=agent.identity.agent, call=call.id, text=text))

    around = agent.surroundings
    return Site(
        call_id=call.id,
        calls=calls,
        agent=agent.identity,
        workspace=around.workspace,
        processes=around.processes,
        desk=_Heeded(agent),
        results=around.results,
        clock=agent.clock,
        ids=agent.ids,
        progress=progress,
        env=around.env,
        unreadable=partial(agent.permissions.unreadable, call.name),
        sandbox=around.sandbox,
        hooks=agent.hooks,
    )


def _named(agent: Agent, name: str) -> Tool | None:
    tool = agent.tools.get(name)
    return agent.tools.get(ALIASES.get(name, "")) if tool is None else tool


def _no_such_tool(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"There is no tool named {name!r}.{meant} The tools are: {', '.join(known)}."


def preview(call: ToolUse) -> str:
    """Return a short description of a call."""
    for key in _TELLING:
        value = call.input.get(key)
        if isinstance(value, str):
            return value[:PREVIEW]
    match call.input:
        case {"questions": [{"question": str(asked)}, *_]}:
            return asked[:PREVIEW]
    return ", ".join(f"{key}: {_shown(value)}" for key, value in islice(call.input.items(), _MOST_SHOWN))[
        :PREVIEW
    ]


def _shown(value: Any) -> str:
    return value[:PREVIEW] if isinstance(value, str) else dump(value)[: 4 * PREVIEW].decode(errors="ignore")
