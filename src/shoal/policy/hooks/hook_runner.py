"""Runs the hooks of an event concurrently and merges the decisions of those that are awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from shoal.core.clock import Clock
from shoal.core.errors import ShoalError, StateFileError
from shoal.core.events import PREVIEW_LENGTH, HookRan, JournaledEvent, NoteAdded
from shoal.core.extensions.hooks import (
    NO_DECISION,
    NOTIFY_ONLY_EVENTS,
    VARIABLE_EVENTS,
    BackgroundHookNotice,
    Hook,
    HookDecision,
    HookEvent,
    HookServices,
    HttpPostHookAction,
    McpToolHookAction,
    ModelPromptHookAction,
    PythonCallbackHookAction,
    ShellCommandHookAction,
    merge_hook_decisions,
)
from shoal.core.ids import AgentId
from shoal.core.program_calls import CONTAIN_EXITS, contain_stop_iteration
from shoal.core.tls_contexts import TlsVariables, get_tls_context
from shoal.policy.hooks.background_hooks import MAX_QUEUED, MAX_RUNNING, BackgroundHookRunner
from shoal.policy.hooks.hook_process import (
    HookCommandResult,
    HookProcess,
    HookRunResources,
    start_hook_command,
)
from shoal.policy.policy_texts import format_policy_notice
from shoal.wire.hook_output_codec import (
    InvalidHookOutputError,
    check_hook_decision,
    fill_mcp_hook_input,
    format_hook_prompt,
    parse_hook_function_text,
    parse_hook_judgement,
    parse_hook_output_json,
    parse_hook_output_text,
    truncate_hook_text,
)
from shoal.wire.json_codec import decode_json, encode_json

BLOCKING_STATUS = 2
"""Exit status that blocks."""
_MAX_BODY = 1 << 20


class HookHttpRequestError(ShoalError):
    """The URL returned no usable response."""


class _HookResult(Struct, frozen=True, kw_only=True):
    verdict: HookDecision = NO_DECISION
    trouble: str = ""
    """Reason why the hook returned nothing usable."""
    wakes: bool = False
    """True if the agent should be woken with the reason for the block."""
    milliseconds: int = 0


class _HookInput(Struct, frozen=True, kw_only=True):
    """Event data that is passed to hooks."""

    event: HookEvent
    data: bytes
    agent: AgentId
    cwd: Path
    since: float
    variables_file: Path | None = None
    """File in which the hook may set variables for agents' shell commands."""


class _HookMovedToBackgroundException(Exception):
    """The hook continues in the background and is no longer awaited."""


class HookRunner:
    """Runs hooks for all agents of a session; `emit` records each run in the journal."""

    def __init__(
        self, environment: HookRunResources, emit: Callable[[JournaledEvent], None], services: HookServices
    ) -> None:
        self._environment = environment
        self._emit = emit
        self._services = services
        self.background: BackgroundHookRunner[tuple[Hook, _HookInput]] = BackgroundHookRunner()
        """Every hook runs in the foreground until this context is entered."""
        self._notice_listeners: tuple[Callable[[BackgroundHookNotice], None], ...] = ()

    @property
    def clock(self) -> Clock:
        return self._environment.clock

    async def run_hooks(
        self, event: HookEvent, hooks: Sequence[Hook], fields: Mapping[str, Any], *, agent: AgentId, cwd: Path
    ) -> HookDecision:
        started_at = self._environment.clock.monotonic()
        hook_input = _HookInput(
            event=event, data=_encode_hook_fields(fields), agent=agent, cwd=cwd, since=started_at
        )
        runs = [(hook, hook_input) for hook in hooks]
        if event in VARIABLE_EVENTS:
            runs = [
                (hook, self._add_variables_file(hook, position, hook_input))
                for position, hook in enumerate(hooks)
            ]
        runs = [run for run in runs if not self._start_if_background_hook(*run)]
        if not runs:
            return NO_DECISION
        if len(runs) == 1:
            results = [await self._run_hook(*runs[0])]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_hook(*run)) for run in runs]
            results = [task.result() for task in tasks]
        verdicts = []
        for (hook, _), result in zip(runs, results, strict=True):
            if result is not None:
                self._record_hook_run(hook, hook_input, result)
                verdict = result.verdict
                is_widening = verdict.decision == "allow" and not hook.can_allow
                if is_widening:
                    verdict = replace(verdict, decision=None, permission_updates=())
                verdicts.append(verdict)
        verdict = merge_hook_decisions(verdicts) if verdicts else NO_DECISION
        if verdict.message:
            self._emit(NoteAdded(agent=agent, text=verdict.message))
        if verdict.blocked is not None and event in NOTIFY_ONLY_EVENTS:
            self._emit(NoteAdded(agent=agent, text=f"A {event} hook objected: {verdict.blocked}"))
            return replace(verdict, blocked=None)
        return verdict

    def subscribe_to_notices(self, listener: Callable[[BackgroundHookNotice], None]) -> None:
        """Call the listener with each notice of a background hook."""
        self._notice_listeners = (*self._notice_listeners, listener)

    async def stop_background_hooks(self, why: str) -> None:
        """Stop all background hooks and record each one that was stopped."""
        for hook, hook_input in await self.background.stop_all():
            trouble = f"{why} before it finished, so it was stopped"
            result = _HookResult(trouble=trouble, milliseconds=self._measure_elapsed(hook_input))
            with suppress(StateFileError):  # the journal itself failed; its next writer reports that
                self._record_hook_run(hook, hook_input, result, background=True)

    async def _run_hook(self, hook: Hook, hook_input: _HookInput) -> _HookResult | None:
        """Run one hook; return None if it moved to the background."""
        try:
            result = await self._run_catching_hook_errors(
                hook_input, self._invoke_hook(hook, hook_input), hook.seconds
            )
        except _HookMovedToBackgroundException:
            return None
        if result.trouble and hook.blocks_on_failure:
            reason = format_policy_notice("hook_failed", trouble=result.trouble)
            result = replace(result, verdict=HookDecision(blocked=truncate_hook_text(reason)))
        return result

    async def _run_catching_hook_errors(
        self, hook_input: _HookInput, invocation: Coroutine[Any, Any, _HookResult], seconds: float
    ) -> _HookResult:
        try:
            with CONTAIN_EXITS:
                result = await invocation
        except TimeoutError:
            result = _HookResult(trouble=format_policy_notice("hook_timeout", seconds=f"{seconds:g}"))
        except _HookMovedToBackgroundException:
            raise
        except (InvalidHookOutputError, ShoalError) as error:
            result = _HookResult(trouble=str(error))
        except Exception as error:  # noqa: BLE001 - boundary around hooks: a failure must not affect anything else
            result = _HookResult(trouble=f"{type(error).__name__}: {error}")
        return replace(result, milliseconds=self._measure_elapsed(hook_input))

    def _measure_elapsed(self, hook_input: _HookInput) -> int:
        return round((self._environment.clock.monotonic() - hook_input.since) * 1000)

    async def _invoke_hook(self, hook: Hook, hook_input: _HookInput) -> _HookResult:
        match hook.action:
            case ShellCommandHookAction() as action:
                process = await self._start_hook_command(action, hook_input)
                command_result = await process.wait_or_detach(hook.seconds)
                if command_result is not None:
                    return _parse_hook_command_result(hook.event, command_result)
                self._move_to_background(hook, hook_input, process)
                result = _parse_hook_command_result(hook.event, await process.wait_for_exit(hook.seconds))
                self._warn_ignored_decision(hook, hook_input, result)
                return replace(result, verdict=_drop_hook_decision(result.verdict))
            case HttpPostHookAction() as to:
                answer = await post_hook_event(
                    to, hook_input.data, seconds=hook.seconds, clock=self._environment.clock
                )
                return _HookResult(verdict=parse_hook_output_text(hook.event, answer))
            case ModelPromptHookAction() as action:
                async with self._environment.clock.deadline(hook.seconds):
                    answer = await self._services.ask_model(
                        format_hook_prompt(action.prompt, hook_input.data),
                        action.model,
                        agent=hook_input.agent,
                        can_read=action.can_read,
                    )
                return _HookResult(verdict=parse_hook_judgement(hook.event, action, answer))
            case McpToolHookAction() as action:
                action = fill_mcp_hook_input(action, decode_json(hook_input.data))
                async with self._environment.clock.deadline(hook.seconds):
                    answer = await self._services.call_mcp_tool(
                        action, agent=hook_input.agent, seconds=hook.seconds
                    )
                return _HookResult(verdict=parse_hook_output_text(hook.event, answer))
            case PythonCallbackHookAction(function=function):
                async with self._environment.clock.deadline(hook.seconds):
                    # A copy: changes made by the function must not affect the call.
                    returned = await _call_hook_function(function, decode_json(hook_input.data))
                return _HookResult(verdict=_parse_hook_function_result(hook, returned))

    async def _start_hook_command(
        self, action: ShellCommandHookAction, hook_input: _HookInput
    ) -> HookProcess:
        return await start_hook_command(
            action,
            hook_input.data,
            cwd=hook_input.cwd,
            environment=self._environment,
            variables_file=hook_input.variables_file,
        )

    def _add_variables_file(self, hook: Hook, position: int, hook_input: _HookInput) -> _HookInput:
        """Return the input with a new file for variables; it replaces the one of the hook's last run."""
        directory = self._environment.variables_directory
        if directory is None or not isinstance(hook.action, ShellCommandHookAction):
            return hook_input
        digest = sha256(f"{hook.origin} {hook.name}".encode("utf-8", "replace")).hexdigest()[:12]
        directory.mkdir(mode=0o700, exist_ok=True)
        for earlier in directory.glob(f"*-{digest}.sh"):
            earlier.unlink(missing_ok=True)
        file = directory / f"{position:03}-{digest}.sh"
        file.touch(mode=0o600)
        return replace(hook_input, variables_file=file)

    def _start_if_background_hook(self, hook: Hook, hook_input: _HookInput) -> bool:
        """Start a background hook and return True; other hooks, and all at a session's end, are awaited."""
        if not hook.background or hook_input.event == "SessionEnd" or not self.background.is_open:
            return False
        if self.background.is_full:
            trouble = (
                f"it was not run because {MAX_RUNNING} hooks are already running in the background and "
                f"{MAX_QUEUED} are waiting"
            )
            self._record_hook_run(hook, hook_input, _HookResult(trouble=trouble), background=True)
        else:
            work = partial(self._run_background_hook, hook, hook_input, hook.seconds)
            self.background.start_hook_job((hook, hook_input), work, awaited=hook.rewakes)
        return True

    def _move_to_background(self, hook: Hook, hook_input: _HookInput, process: HookProcess) -> None:
        """Raise `_HookMovedToBackgroundException`; without a free slot, await the hook and ignore it."""
        if hook_input.event == "SessionEnd" or not self.background.has_free_slot:
            return
        requested_seconds = process.detach_request and process.detach_request.seconds
        work = partial(
            self._run_background_hook, hook, hook_input, requested_seconds or hook.seconds, process
        )
        self.background.start_hook_job((hook, hook_input), work, awaited=hook.rewakes)
        raise _HookMovedToBackgroundException

    async def _run_background_hook(
        self, hook: Hook, hook_input: _HookInput, seconds: float, process: HookProcess | None = None
    ) -> None:
        result = await self._run_catching_hook_errors(
            hook_input, self._invoke_background_hook(hook, hook_input, seconds, process), seconds
        )
        with suppress(StateFileError):  # the journal itself failed; its next writer reports that
            self._record_hook_run(hook, hook_input, result, background=True)
            self._warn_ignored_decision(hook, hook_input, result)
            if result.verdict.message:
                self._emit(NoteAdded(agent=hook_input.agent, text=result.verdict.message))
        verdict = result.verdict
        texts = (verdict.blocked,) if result.wakes else (verdict.message, verdict.context)
        if text := "\n\n".join(filter(None, texts)):
            notice = BackgroundHookNotice(
                agent=hook_input.agent,
                event=hook_input.event,
                hook=hook.name[:PREVIEW_LENGTH],
                origin=hook.origin,
                text=text,
                wakes=result.wakes,
            )
            for listener in self._notice_listeners:
                listener(notice)

    async def _invoke_background_hook(
        self, hook: Hook, hook_input: _HookInput, seconds: float, process: HookProcess | None
    ) -> _HookResult:
        if not isinstance(hook.action, ShellCommandHookAction):
            return await self._invoke_hook(hook, hook_input)
        if process is None:
            process = await self._start_hook_command(hook.action, hook_input)
        command_result = await process.wait_for_exit(seconds)
        if hook.rewakes and command_result.status == BLOCKING_STATUS:
            reason = truncate_hook_text(
                command_result.err.strip() or command_result.out.strip()
            ) or format_policy_notice("no_hook_reason")
            return _HookResult(verdict=HookDecision(blocked=reason), wakes=True)
        return _parse_hook_command_result(hook.event, command_result)

    def _warn_ignored_decision(self, hook: Hook, hook_input: _HookInput, result: _HookResult) -> None:
        """Warn the user, who may rely on the decision of a background hook."""
        if _has_hook_decision(result.verdict) and not result.wakes:
            hook_label = f"The {hook_input.event} hook `{hook.name[:PREVIEW_LENGTH]}` ({hook.origin})"
            text = (
                f"{hook_label} returned a decision, which has no effect because the hook runs in the "
                "background."
            )
            self._emit(NoteAdded(agent=hook_input.agent, text=text))

    def _record_hook_run(
        self, hook: Hook, hook_input: _HookInput, result: _HookResult, *, background: bool = False
    ) -> None:
        name = hook.name[:PREVIEW_LENGTH]
        self._emit(
            HookRan(
                agent=hook_input.agent,
                event=hook_input.event,
                hook=name,
                origin=hook.origin,
                duration_ms=result.milliseconds,
                verdict=_get_hook_decision_label(result),
                detail="" if result.verdict.suppressed else _get_hook_result_detail(result)[:PREVIEW_LENGTH],
                background=background,
            )
        )
        if result.trouble:
            preview = result.trouble[: 4 * PREVIEW_LENGTH]
            text = f"The {hook_input.event} hook `{name}` ({hook.origin}) failed: {preview}"
            self._emit(NoteAdded(agent=hook_input.agent, text=text))


def _encode_hook_fields(fields: Mapping[str, Any]) -> bytes:
    """Encode the fields as JSON; a custom tool may have put any object into its result."""
    try:
        return encode_json(fields)
    except TypeError:
        import json

        return json.dumps(to_builtins(fields, str_keys=True, enc_hook=str), default=str).encode()


def _parse_hook_command_result(event: HookEvent, command_result: HookCommandResult) -> _HookResult:
    error_text = truncate_hook_text(command_result.err.strip())
    if command_result.status is None:
        raise TimeoutError
    if command_result.status == BLOCKING_STATUS:
        return _HookResult(verdict=HookDecision(blocked=error_text or format_policy_notice("no_hook_reason")))
    if command_result.status:
        exit_text = (
            f"signal {-command_result.status}"
            if command_result.status < 0
            else f"exit status {command_result.status}"
        )
        return _HookResult(trouble=f"{exit_text}{': ' if error_text else ''}{error_text}")
    return _HookResult(verdict=parse_hook_output_text(event, command_result.out))


async def _call_hook_function(function: Callable[[dict[str, Any]], Any], fields: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(fields)
    # In a thread: a blocking function must not stall the event loop.
    returned = await asyncio.to_thread(contain_stop_iteration(function), fields)
    return await returned if inspect.isawaitable(returned) else returned


def _parse_hook_function_result(hook: Hook, returned: Any) -> HookDecision:
    # Only where a refused result blocks: otherwise the part that is understood would be lost too.
    event, strict = hook.event, hook.blocks_on_failure
    match returned:
        case None:
            return NO_DECISION
        case HookDecision():
            return check_hook_decision(event, returned, strict=strict)
        case str() if strict:
            return parse_hook_function_text(event, returned)
        case str():
            return parse_hook_output_text(event, returned)
        case _:
            return parse_hook_output_json(event, returned, strict=strict)


def _has_hook_decision(verdict: HookDecision) -> bool:
    decisions = (verdict.blocked, verdict.decision, verdict.updated_input, verdict.stop)
    return any(each is not None for each in decisions)


def _drop_hook_decision(verdict: HookDecision) -> HookDecision:
    return HookDecision(context=verdict.context, message=verdict.message, suppressed=verdict.suppressed)


def _get_hook_decision_label(result: _HookResult) -> str:
    verdict = result.verdict
    if result.trouble:
        return "failed"
    if verdict.blocked is not None:
        return "blocked"
    if verdict.stop is not None:
        return "stopped"
    return verdict.decision or "went on"


def _get_hook_result_detail(result: _HookResult) -> str:
    verdict = result.verdict
    return result.trouble or verdict.blocked or verdict.stop or verdict.decision_reason or verdict.context


async def post_hook_event(target: HttpPostHookAction, data: bytes, *, seconds: float, clock: Clock) -> str:
    """Return the response body, cut to the maximum size. Raises `HookHttpRequestError` and `TimeoutError`."""
    import httpx

    headers = {"content-type": "application/json", **target.headers}
    try:
        async with (
            clock.deadline(seconds),
            httpx.AsyncClient(
                timeout=seconds,
                trust_env=False,
                verify=get_tls_context(TlsVariables()),
                follow_redirects=False,
            ) as client,
            client.stream("POST", target.url, content=data, headers=headers) as response,
        ):
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) >= _MAX_BODY:
                    break
    except httpx.HTTPError as error:
        raise HookHttpRequestError(f"{type(error).__name__}: {error}") from error
    if not response.is_success:
        raise HookHttpRequestError(f"it responded with status {response.status_code}")
    return body[:_MAX_BODY].decode(errors="replace")
