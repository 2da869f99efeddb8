"""Runs the hooks of an event concurrently and merges the decisions of those that are awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from shoal.core.errors import ShoalError, StoreError
from shoal.core.events import PREVIEW, HookRan, Journaled, Noted
from shoal.core.hooks import (
    TOLD_ONLY,
    UNMOVED,
    Called,
    Command,
    Hook,
    HookEvent,
    HookNews,
    HookWord,
    Post,
    Unheard,
    Verdict,
    merged,
)
from shoal.core.ids import AgentId
from shoal.policy.hooks.background import AT_ONCE, IN_LINE, Background
from shoal.policy.hooks.commands import CommandRan, RunningCommand, Shop, start_command
from shoal.policy.hooks.posting import post
from shoal.wire.content import dump, load
from shoal.wire.hook_output import BadAnswer, cut, verdict_of, verdict_of_text

BLOCKS = 2
"""Exit status that blocks."""
_NO_REASON = "it gave no reason"


class _Said(Struct, frozen=True, kw_only=True):
    verdict: Verdict = UNMOVED
    trouble: str = ""
    """Reason why the hook returned nothing usable."""
    wakes: bool = False
    """True if the agent is to be woken with the reason for the block."""
    milliseconds: int = 0


class _About(Struct, frozen=True, kw_only=True):
    """Event data that is passed to hooks."""

    event: HookEvent
    data: bytes
    agent: AgentId
    cwd: Path
    since: float


class _LetGo(Exception):
    """The hook continues in the background and is no longer awaited."""


class HookRunner:
    """Runs hooks for all agents of a session; `emit` records each run in the journal."""

    def __init__(self, shop: Shop, emit: Callable[[Journaled], None]) -> None:
        self._shop = shop
        self._emit = emit
        self.background: Background[tuple[Hook, _About]] = Background()
        """Every hook runs in the foreground until this context is entered."""
        self.news: HookNews = Unheard()

    async def run(
        self, event: HookEvent, hooks: Sequence[Hook], fields: Mapping[str, Any], *, agent: AgentId, cwd: Path
    ) -> Verdict:
        since = self._shop.clock.monotonic()
        about = _About(event=event, data=_written(fields), agent=agent, cwd=cwd, since=since)
        hooks = [hook for hook in hooks if not self._left_alone(hook, about)]
        if not hooks:
            return UNMOVED
        if len(hooks) == 1:
            heard = [await self._one(hooks[0], about)]
        else:
            async with asyncio.TaskGroup() as together:
                tasks = [together.create_task(self._one(hook, about)) for hook in hooks]
            heard = [task.result() for task in tasks]
        verdicts = []
        for hook, said in zip(hooks, heard, strict=True):
            if said is not None:
                self._record(hook, about, said)
                verdicts.append(said.verdict)
        verdict = merged(verdicts) if verdicts else UNMOVED
        if verdict.message:
            self._emit(Noted(agent=agent, text=verdict.message))
        if verdict.blocked is not None and event in TOLD_ONLY:
            self._emit(Noted(agent=agent, text=f"A {event} hook objects: {verdict.blocked}"))
            return replace(verdict, blocked=None)
        return verdict

    async def end(self, why: str) -> None:
        """Stop all background hooks and record each one that was stopped."""
        for hook, about in await self.background.stop_all():
            trouble = f"{why} before it had ended, and it was ended"
            ended = _Said(trouble=trouble, milliseconds=self._since(about))
            with suppress(StoreError):  # the journal itself failed; its next writer reports that
                self._record(hook, about, ended, background=True)

    async def _one(self, hook: Hook, about: _About) -> _Said | None:
        """Run one hook; return None if it moved to the background."""
        try:
            said = await self._guarded(about, self._asked(hook, about), hook.seconds)
        except _LetGo:
            return None
        if said.trouble and hook.blocks_on_failure:
            blocked = f"the hook failed, and is set to block then: {said.trouble}"
            said = replace(said, verdict=Verdict(blocked=cut(blocked)))
        return said

    async def _guarded(self, about: _About, asked: Coroutine[Any, Any, _Said], seconds: float) -> _Said:
        try:
            said = await asked
        except TimeoutError:
            said = _Said(trouble=f"it did not end within {seconds:g} s and was ended")
        except _LetGo:
            raise
        except (BadAnswer, ShoalError) as error:
            said = _Said(trouble=str(error))
        except Exception as error:  # noqa: BLE001 - the wall around hooks: what one does harms nobody else
            said = _Said(trouble=f"{type(error).__name__}: {error}")
        return replace(said, milliseconds=self._since(about))

    def _since(self, about: _About) -> int:
        return round((self._shop.clock.monotonic() - about.since) * 1000)

    async def _asked(self, hook: Hook, about: _About) -> _Said:
        match hook.does:
            case Command(command=command):
                running = await start_command(command, about.data, cwd=about.cwd, shop=self._shop)
                ran = await running.waited(hook.seconds)
                if ran is not None:
                    return _of_command(hook.event, ran)
                self._hand_over(hook, about, running)
                said = _of_command(hook.event, await running.ended(hook.seconds))
                self._tell_late(hook, about, said)
                return replace(said, verdict=_undecided(said.verdict))
            case Post() as to:
                answer = await post(to, about.data, seconds=hook.seconds, clock=self._shop.clock)
                return _Said(verdict=verdict_of_text(hook.event, answer))
            case Called(function=function):
                async with self._shop.clock.deadline(hook.seconds):
                    # A copy: changes made by the function must not affect the call.
                    answered = await _called(function, load(about.data))
                return _Said(verdict=_of_answer(hook.event, answered))

    def _left_alone(self, hook: Hook, about: _About) -> bool:
        """Start a background hook and return True; other hooks, and all at a session's end, are awaited."""
        if not hook.background or about.event == "SessionEnd" or not self.background.is_open:
            return False
        if self.background.is_full:
            trouble = f"it was not run: {AT_ONCE} run in the background already, and {IN_LINE} wait"
            self._record(hook, about, _Said(trouble=trouble), background=True)
        else:
            work = partial(self._alone, hook, about, hook.seconds)
            self.background.begin((hook, about), work, awaited=hook.rewakes)
        return True

    def _hand_over(self, hook: Hook, about: _About, running: RunningCommand) -> None:
        """Raise `_HookDetached`; without a free slot the hook is awaited and its decision ignored."""
        if about.event == "SessionEnd" or not self.background.has_place:
            return
        wished = None if running.let_go is None else running.let_go.seconds
        work = partial(self._alone, hook, about, wished or hook.seconds, running)
        self.background.begin((hook, about), work, awaited=hook.rewakes)
        raise _LetGo

    async def _alone(
        self, hook: Hook, about: _About, seconds: float, running: RunningCommand | None = None
    ) -> None:
        said = await self._guarded(about, self._late(hook, about, seconds, running), seconds)
        with suppress(StoreError):  # the journal itself failed; its next writer reports that
            self._record(hook, about, said, background=True)
            self._tell_late(hook, about, said)
            if said.verdict.message:
                self._emit(Noted(agent=about.agent, text=said.verdict.message))
        verdict = said.verdict
        words = (verdict.blocked,) if said.wakes else (verdict.message, verdict.context)
        if text := "\n\n".join(filter(None, words)):
            self.news.told(
                HookWord(
                    agent=about.agent,
                    event=about.event,
                    hook=hook.name[:PREVIEW],
                    origin=hook.origin,
                    text=text,
                    wakes=said.wakes,
                )
            )

    async def _late(self, hook: Hook, about: _About, seconds: float, running: RunningCommand | None) -> _Said:
        if not isinstance(hook.does, Command):
            return await self._asked(hook, about)
        if running is None:
            running = await start_command(hook.does.command, about.data, cwd=about.cwd, shop=self._shop)
        ran = await running.ended(seconds)
        if hook.rewakes and ran.status == BLOCKS:
            why = cut(ran.err.strip() or ran.out.strip()) or _NO_REASON
            return _Said(verdict=Verdict(blocked=why), wakes=True)
        return _of_command(hook.event, ran)

    def _tell_late(self, hook: Hook, about: _About, said: _Said) -> None:
        """Warn the user, who may rely on the decision of a background hook."""
        if _decides(said.verdict) and not said.wakes:
            which = f"The {about.event} hook `{hook.name[:PREVIEW]}` ({hook.origin})"
            late = f"{which} decided something, and that has no effect: it runs in the background."
            self._emit(Noted(agent=about.agent, text=late))

    def _record(self, hook: Hook, about: _About, said: _Said, *, background: bool = False) -> None:
        name = hook.name[:PREVIEW]
        self._emit(
            HookRan(
                agent=about.agent,
                event=about.event,
                hook=name,
                origin=hook.origin,
                duration_ms=said.milliseconds,
                verdict=_word(said),
                detail="" if said.verdict.suppressed else _detail(said)[:PREVIEW],
                background=background,
            )
        )
        if said.trouble:
            told = f"The {about.event} hook `{name}` ({hook.origin}) failed: {said.trouble[: 4 * PREVIEW]}"
            self._emit(Noted(agent=about.agent, text=told))


def _written(fields: Mapping[str, Any]) -> bytes:
    """Encode the fields as JSON; a custom tool may have put any object into its result."""
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
        return _Said(verdict=Verdict(blocked=complaint or _NO_REASON))
    if ran.status:
        how = f"signal {-ran.status}" if ran.status < 0 else f"exit status {ran.status}"
        return _Said(trouble=f"{how}{': ' if complaint else ''}{complaint}")
    return _Said(verdict=verdict_of_text(event, ran.out))


async def _called(function: Callable[[dict[str, Any]], Any], fields: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(fields)
    # In a thread: a blocking function must not stall the event loop.
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


def _decides(verdict: Verdict) -> bool:
    said = (verdict.blocked, verdict.decision, verdict.updated_input, verdict.stop)
    return any(each is not None for each in said)


def _undecided(verdict: Verdict) -> Verdict:
    return Verdict(context=verdict.context, message=verdict.message, suppressed=verdict.suppressed)


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
