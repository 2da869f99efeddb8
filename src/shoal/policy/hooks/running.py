"""Tells hooks of an event, side by side, and makes one verdict of what they answer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from shoal.core.errors import ShoalError
from shoal.core.events import PREVIEW, HookRan, Journaled, Noted
from shoal.core.hooks import TOLD_ONLY, UNMOVED, Called, Command, Hook, HookEvent, Post, Verdict, merged
from shoal.core.ids import AgentId
from shoal.policy.hooks.commands import CommandRan, Shop, run_command
from shoal.policy.hooks.posting import post
from shoal.wire.content import dump, load
from shoal.wire.hook_output import BadAnswer, cut, verdict_of, verdict_of_text

BLOCKS = 2
"""The exit status that blocks."""


class _Said(Struct, frozen=True, kw_only=True):
    verdict: Verdict = UNMOVED
    trouble: str = ""
    """Why it said nothing that counts."""


class _Heard(Struct, frozen=True, kw_only=True):
    hook: Hook
    said: _Said
    milliseconds: int


class HookRunner:
    """For all agents of a session; `emit` keeps what is run on the record."""

    def __init__(self, shop: Shop, emit: Callable[[Journaled], None]) -> None:
        self._shop = shop
        self._emit = emit

    async def run(
        self, event: HookEvent, hooks: Sequence[Hook], fields: Mapping[str, Any], *, agent: AgentId, cwd: Path
    ) -> Verdict:
        data = _written(fields)
        if len(hooks) == 1:
            heard = [await self._one(hooks[0], data, cwd)]
        else:
            async with asyncio.TaskGroup() as together:
                tasks = [together.create_task(self._one(hook, data, cwd)) for hook in hooks]
            heard = [task.result() for task in tasks]
        for each in heard:
            self._record(event, each, agent)
        verdict = merged([each.said.verdict for each in heard]) if heard else UNMOVED
        if verdict.message:
            self._emit(Noted(agent=agent, text=verdict.message))
        if verdict.blocked is not None and event in TOLD_ONLY:
            self._emit(Noted(agent=agent, text=f"A {event} hook objects: {verdict.blocked}"))
            return replace(verdict, blocked=None)
        return verdict

    async def _one(self, hook: Hook, data: bytes, cwd: Path) -> _Heard:
        clock = self._shop.clock
        since = clock.monotonic()
        try:
            said = await self._asked(hook, data, cwd)
        except TimeoutError:
            said = _Said(trouble=f"it did not end within {hook.seconds:g} s and was ended")
        except (BadAnswer, ShoalError) as error:
            said = _Said(trouble=str(error))
        except Exception as error:  # noqa: BLE001 - the wall around hooks: what one does harms nobody else
            said = _Said(trouble=f"{type(error).__name__}: {error}")
        if said.trouble and hook.blocks_on_failure:
            blocked = f"the hook failed, and is set to block then: {said.trouble}"
            said = replace(said, verdict=Verdict(blocked=cut(blocked)))
        return _Heard(hook=hook, said=said, milliseconds=round((clock.monotonic() - since) * 1000))

    async def _asked(self, hook: Hook, data: bytes, cwd: Path) -> _Said:
        match hook.does:
            case Command(command=command):
                ran = await run_command(command, data, seconds=hook.seconds, cwd=cwd, shop=self._shop)
                return _of_command(hook.event, ran)
            case Post() as to:
                answer = await post(to, data, seconds=hook.seconds, clock=self._shop.clock)
                return _Said(verdict=verdict_of_text(hook.event, answer))
            case Called(function=function):
                async with self._shop.clock.deadline(hook.seconds):
                    # A copy: what a function does to it must not change the call.
                    answered = await _called(function, load(data))
                return _Said(verdict=_of_answer(hook.event, answered))

    def _record(self, event: HookEvent, heard: _Heard, agent: AgentId) -> None:
        hook, said = heard.hook, heard.said
        name = hook.name[:PREVIEW]
        self._emit(
            HookRan(
                agent=agent,
                event=event,
                hook=name,
                origin=hook.origin,
                duration_ms=heard.milliseconds,
                verdict=_word(said),
                detail="" if said.verdict.suppressed else _detail(said)[:PREVIEW],
            )
        )
        if said.trouble:
            told = f"The {event} hook `{name}` ({hook.origin}) failed: {said.trouble[: 4 * PREVIEW]}"
            self._emit(Noted(agent=agent, text=told))


def _written(fields: Mapping[str, Any]) -> bytes:
    """As JSON; a tool of somebody's own may have put anything into its result."""
    try:
        return dump(fields)
    except TypeError:
        import json

        return json.dumps(to_builtins(fields, str_keys=True, enc_hook=str), default=str).encode()


def _of_command(event: HookEvent, ran: CommandRan) -> _Said:
    complaint = cut(ran.err.strip())
    if ran.status is None:
        raise TimeoutError
    if ran.status == BLOCKS:
        return _Said(verdict=Verdict(blocked=complaint or "it gave no reason"))
    if ran.status:
        how = f"signal {-ran.status}" if ran.status < 0 else f"exit status {ran.status}"
        return _Said(trouble=f"{how}{': ' if complaint else ''}{complaint}")
    return _Said(verdict=verdict_of_text(event, ran.out))


async def _called(function: Callable[[dict[str, Any]], Any], fields: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(fields)
    # In a thread: one that waits must not hold everybody up.
    answered = await asyncio.to_thread(function, fields)
    return await answered if inspect.isawaitable(answered) else answered


def _of_answer(event: HookEvent, answered: Any) -> Verdict:
    match answered:
        case None:
            return UNMOVED
        case Verdict():
            return answered
        case str():
            return verdict_of_text(event, answered)
        case _:
            return verdict_of(event, answered)


def _word(said: _Said) -> str:
    verdict = said.verdict
    if said.trouble:
        return "failed"
    if verdict.blocked is not None:
        return "blocked"
    if verdict.stop is not None:
        return "stopped"
    return verdict.decision or "went on"


def _detail(said: _Said) -> str:
    verdict = said.verdict
    return said.trouble or verdict.blocked or verdict.stop or verdict.decision_reason or verdict.context
