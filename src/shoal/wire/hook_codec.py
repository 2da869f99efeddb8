"""Parser for hooks of settings and front matter, with the lines of mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from shoal.core.extensions.hooks import (
    AGENT_HOOK_SECONDS,
    BLOCKING_EVENTS,
    DEFAULT_HOOK_SECONDS,
    FOREIGN_EVENTS,
    HOOK_EVENTS,
    MATCHER_FIELDS,
    MAX_HOOK_SECONDS,
    PROGRAM_HOOK_SECONDS,
    PROMPT_HOOK_SECONDS,
    SESSION_END_HOOK_SECONDS,
    STOP_EVENTS,
    Hook,
    HookAction,
    HookDecision,
    HookEvent,
    HttpHookLimits,
    HttpPostHookAction,
    McpToolHookAction,
    ModelPromptHookAction,
    PythonCallbackHookAction,
    ShellCommandHookAction,
)

KeyLocator: TypeAlias = Callable[[Sequence[str]], str]
"""Returns the file and line of a key, given its key path."""
_KEYS_BY_TYPE = {
    "command": frozenset({"command", "args", "shell", "async", "asyncRewake"}),
    "http": frozenset({"url", "headers", "allowedEnvVars"}),
    "prompt": frozenset({"prompt", "model", "continueOnBlock"}),
    "mcp_tool": frozenset({"server", "tool", "input"}),
    "agent": frozenset({"prompt", "model", "continueOnBlock"}),
}
_COMMON_KEYS = frozenset({"type", "timeout", "onFailure", "if"})
_UNUSED_KEYS = {"statusMessage": "it is not shown", "once": "the hook runs every time"}
"""Fields of other programs that have no effect here and do not weaken a guard."""
_JUDGING_TYPES = ("prompt", "mcp_tool", "agent")
_SHELLS: Mapping[str, Literal["sh", "powershell"]] = {"bash": "sh", "sh": "sh", "powershell": "powershell"}
_GUARDED_EVENTS = BLOCKING_EVENTS | {"UserPromptSubmit"}
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
_ANY_CHARACTER = re.compile(r"(?<!\\)\[\^\]")
_ENTRY_KEYS = ("matcher", "hooks")
_MATCH_ALL = ("", "*")


class ParsedHooks(Struct, frozen=True, kw_only=True):
    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()
    """One sentence for each part that cannot be used; the rest is used."""
    warnings: tuple[str, ...] = ()
    """One sentence for each hook that works differently than its author may expect."""
    unused: tuple[str, ...] = ()
    """One sentence for each part that has no effect here; no guard depends on it."""


class _InvalidHookConfigError(Exception):
    """An invalid hook entry, with the keys of the mistake."""

    def __init__(self, problem: str, *keys: str) -> None:
        super().__init__(problem)
        self.keys = keys


class _HookParser:
    def __init__(
        self,
        locate: KeyLocator,
        environ: Mapping[str, str],
        http_limits: HttpHookLimits,
        *,
        refuses_unknown_parts: bool = False,
    ) -> None:
        self._locate = locate
        self._environ = environ
        self._http_limits = http_limits
        self._refuses_unknown_parts = refuses_unknown_parts
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.unused: list[str] = []

    def parse_hooks_by_event(self, raw: Any) -> Iterator[Hook]:
        key_path = ("hooks",)
        if not isinstance(raw, Mapping):
            self._add_problem(
                key_path, f"expected an object with event names as keys, got {_describe_json_value(raw)}"
            )
            return
        for event, entries in raw.items():
            if event in FOREIGN_EVENTS:
                reason = "Shoal does not have this event, so its hooks do not run"
                self._add_unused((*key_path, event), reason)
            elif event not in HOOK_EVENTS:
                self._report_unknown_event(event, (*key_path, str(event)))
            elif not isinstance(entries, Sequence) or isinstance(entries, str):
                problem = f"expected a list, got {_describe_json_value(entries)}"
                yield from self._replace_invalid_hook(event, "", problem, (*key_path, event))
            else:
                for number, entry in enumerate(entries):
                    yield from self._parse_matcher_hooks(event, entry, (*key_path, event, str(number)))

    def _report_unknown_event(self, event: Any, key_path: tuple[str, ...]) -> None:
        """Report a misspelled event; an event of a newer program is not reported."""
        matches = get_close_matches(str(event), HOOK_EVENTS, n=1)
        if matches:
            self._add_problem(key_path, f"unknown event; did you mean {matches[0]}?")
        else:
            self._add_unknown_part(key_path, "unknown event")

    def _parse_matcher_hooks(self, event: HookEvent, entry: Any, key_path: tuple[str, ...]) -> Iterator[Hook]:
        try:
            matcher, actions = _parse_matcher_entry(entry)
        except _InvalidHookConfigError as error:
            # Without a usable matcher, every call is one that it may guard.
            matcher = _find_usable_matcher(entry)
            yield from self._replace_invalid_hook(event, matcher, str(error), (*key_path, *error.keys))
            return
        for key in (key for key in entry if self._refuses_unknown_parts and key not in _ENTRY_KEYS):
            self._add_problem((*key_path, str(key)), f"unknown field; use {' and '.join(_ENTRY_KEYS)}")
        if matcher not in _MATCH_ALL and event not in MATCHER_FIELDS:
            self._add_unknown_part(
                (*key_path, "matcher"), f"{event} does not use a matcher; the hooks below always run"
            )
        for number, action in enumerate(actions):
            action_path = (*key_path, "hooks", str(number))
            try:
                hook = self._parse_hook(event, matcher, action, action_path)
            except _InvalidHookConfigError as error:
                keys = (*action_path, *error.keys)
                yield from self._replace_invalid_hook(event, matcher, str(error), keys)
                continue
            if hook.condition and MATCHER_FIELDS.get(event) != "tool_name":
                reason = f"{event} has no tool call to compare, so this hook never runs"
                self._add_unknown_part((*action_path, "if"), reason)
                continue
            yield hook

    def _parse_hook(self, event: HookEvent, matcher: str, raw: Any, key_path: tuple[str, ...]) -> Hook:
        if not isinstance(raw, Mapping):
            raise _InvalidHookConfigError(
                'expected an object such as {"type": "command", "command": "…"}, got '
                f"{_describe_json_value(raw)}"
            )
        kind = raw.get("type", "command")
        if not isinstance(kind, str):
            raise _InvalidHookConfigError(
                f"expected {_list_types()}, got {_describe_json_value(kind)}", "type"
            )
        if kind not in _KEYS_BY_TYPE:
            raise _InvalidHookConfigError(f"unknown hook type {kind!r}; use {_list_types()}", "type")
        for key in raw:
            if key in _UNUSED_KEYS:
                self._add_unused((*key_path, key), _UNUSED_KEYS[key])
            elif key not in _KEYS_BY_TYPE[kind] and key not in _COMMON_KEYS:
                self._add_unknown_part((*key_path, str(key)), "unknown field; it is ignored")
        wakes_agent = kind == "command" and _parse_hook_flag(raw, "asyncRewake")
        background = wakes_agent or (kind == "command" and _parse_hook_flag(raw, "async"))
        hook = Hook(
            event=event,
            matcher=matcher,
            action=self._parse_action(kind, raw),
            seconds=self._parse_usable_timeout(event, kind, raw.get("timeout"), key_path),
            blocks_on_failure=_parse_hook_failure(event, kind, raw),
            background=background,
            rewakes=wakes_agent,
            condition=_parse_hook_condition(raw),
            origin=self._locate(key_path),
        )
        if background:
            self._warn_about_background_hook(hook, (*key_path, "asyncRewake" if wakes_agent else "async"))
        return hook

    def _parse_action(self, kind: str, raw: Mapping[str, Any]) -> HookAction:
        if kind == "http":
            return _parse_hook_http_post(raw, self._environ, self._http_limits)
        return _parse_hook_action(kind, raw)

    def _parse_usable_timeout(
        self, event: HookEvent, kind: str, value: Any, key_path: tuple[str, ...]
    ) -> float:
        try:
            return _parse_hook_timeout(event, kind, value)
        except _InvalidHookConfigError as error:
            self._add_unused((*key_path, "timeout"), f"{error}; the default applies")
            return _parse_hook_timeout(event, kind, None)

    def _replace_invalid_hook(
        self, event: HookEvent, matcher: str, problem: str, key_path: tuple[str, ...]
    ) -> Iterator[Hook]:
        """Yield a hook that blocks what the invalid hook may guard, because nothing else does."""
        if event not in _GUARDED_EVENTS or self._refuses_unknown_parts:
            self._add_problem(key_path, problem)
            return
        location = self._locate(key_path)
        reason = (
            f"the hook at {location} guards it, but is invalid: {problem}. Correct the hook, or remove it."
        )
        scope = f" for {matcher}" if matcher not in _MATCH_ALL else ""
        self._add_problem(key_path, f"{problem}; {event} is blocked{scope} until you correct or remove it")

        def block_guarded_event(_: dict[str, Any]) -> HookDecision:
            return HookDecision(blocked=reason)

        action = PythonCallbackHookAction(function=block_guarded_event)
        yield Hook(event=event, matcher=matcher, action=action, blocks_on_failure=True, origin=location)

    def _warn_about_background_hook(self, hook: Hook, key_path: Sequence[str]) -> None:
        if hook.event == "SessionEnd":
            warning = "the session waits for it anyway because nothing runs after the session ends"
        elif hook.event in BLOCKING_EVENTS:
            warning = (
                f"it cannot decide anything because it runs in the background and {hook.event} does not wait"
            )
        elif hook.blocks_on_failure:
            warning = 'it cannot block because it runs in the background, so its "onFailure" has no effect'
        else:
            return
        self.warnings.append(self._format_located_sentence(key_path, warning))

    def _add_unknown_part(self, key_path: Sequence[str], text: str) -> None:
        """Report a part that may come from a newer program; hooks given in code have no such parts."""
        if self._refuses_unknown_parts:
            self._add_problem(key_path, text)
        else:
            self._add_unused(key_path, text)

    def _add_unused(self, key_path: Sequence[str], text: str) -> None:
        self.unused.append(self._format_located_sentence(key_path, text))

    def _add_problem(self, key_path: Sequence[str], problem: str) -> None:
        self.problems.append(self._format_located_sentence(key_path, problem))

    def _format_located_sentence(self, key_path: Sequence[str], text: str) -> str:
        end = "" if text.endswith("?") else "."
        return f"{self._locate(key_path)}: {'.'.join(key_path)}: {text}{end}"


def parse_hooks_setting(
    raw: Any,
    locate: KeyLocator,
    environ: Mapping[str, str] | None = None,
    *,
    http_limits: HttpHookLimits = HttpHookLimits(),  # noqa: B008 - frozen
    refuses_unknown_parts: bool = False,
) -> ParsedHooks:
    """Parse the value of `hooks`; headers may use variables of `environ`."""
    reader = _HookParser(locate, environ or {}, http_limits, refuses_unknown_parts=refuses_unknown_parts)
    hooks = tuple(reader.parse_hooks_by_event(raw))
    return ParsedHooks(
        hooks=hooks,
        problems=tuple(reader.problems),
        warnings=tuple(reader.warnings),
        unused=tuple(reader.unused),
    )


def is_usable_hook(hook: Hook) -> bool:
    """Return False for a hook that replaces an invalid entry and blocks what it may guard."""
    return not isinstance(hook.action, PythonCallbackHookAction)


def merge_parsed_hooks(parsed: Sequence[ParsedHooks]) -> ParsedHooks:
    return ParsedHooks(
        hooks=tuple(hook for each in parsed for hook in each.hooks),
        problems=tuple(problem for each in parsed for problem in each.problems),
        warnings=tuple(warning for each in parsed for warning in each.warnings),
        unused=tuple(sentence for each in parsed for sentence in each.unused),
    )


def parse_hooks_from_code(raw: Mapping[str, Any], origin: str) -> ParsedHooks:
    """Parse hooks given in code: functions, (matcher, function) pairs, and entries as in settings.

    The program relies on its functions, so one that fails blocks. Only a stopping agent is not blocked,
    because that would send it back to work.
    """
    found: list[ParsedHooks] = []
    for event, entries in raw.items():
        if event not in HOOK_EVENTS or not isinstance(entries, Sequence) or isinstance(entries, str):
            found.append(parse_hooks_setting({event: entries}, lambda _: origin, refuses_unknown_parts=True))
        else:
            found += [_parse_hook_from_code(event, entry, origin) for entry in entries]
    return merge_parsed_hooks(found)


def _parse_hook_from_code(event: HookEvent, entry: Any, origin: str) -> ParsedHooks:
    if isinstance(entry, Hook):
        if entry.event != event:
            problem = f"{origin}: hooks.{event}: this Hook is for {entry.event}. Put it under its own event."
            return ParsedHooks(problems=(problem,))
        # It says itself whether a failure blocks, as the protocol of SDKs lets a program choose.
        return ParsedHooks(hooks=(entry,))
    if isinstance(entry, Mapping):
        return parse_hooks_setting({event: [entry]}, lambda _: origin, refuses_unknown_parts=True)
    matcher, function = entry if isinstance(entry, tuple) and len(entry) == 2 else ("", entry)
    problem = ""
    if not callable(function) or not isinstance(matcher, str):
        problem = f"expected a function, or (matcher, function), got {entry!r}"
    elif not is_valid_hook_matcher(matcher):
        problem = f"the matcher {matcher!r} is not a valid regular expression"
    elif matcher not in _MATCH_ALL and event not in MATCHER_FIELDS:
        problem = f"{event} does not use a matcher; pass the function alone"
    if problem:
        return ParsedHooks(problems=(f"{origin}: hooks.{event}: {problem}.",))
    action, seconds = (
        PythonCallbackHookAction(function=function),
        _parse_hook_timeout(event, "function", None),
    )
    hook = Hook(
        event=event,
        matcher=matcher,
        action=action,
        seconds=seconds,
        blocks_on_failure=event not in STOP_EVENTS,
        origin=origin,
    )
    return ParsedHooks(hooks=(hook,))


def _parse_matcher_entry(entry: Any) -> tuple[str, Sequence[Any]]:
    if not isinstance(entry, Mapping):
        raise _InvalidHookConfigError(
            'expected an object such as {"matcher": "Bash", "hooks": […]}, got '
            f"{_describe_json_value(entry)}"
        )
    matcher, actions = entry.get("matcher", ""), entry.get("hooks")
    if matcher is None:
        matcher = ""
    if not isinstance(matcher, str):
        raise _InvalidHookConfigError(f"expected a string, got {_describe_json_value(matcher)}", "matcher")
    matcher = _ANY_CHARACTER.sub(r"[\\s\\S]", _NAMED_GROUP.sub("(?P<", matcher))
    if not is_valid_hook_matcher(matcher):
        raise _InvalidHookConfigError(f"{matcher!r} is neither a name nor a regular expression", "matcher")
    if not isinstance(actions, Sequence) or isinstance(actions, str):
        raise _InvalidHookConfigError(
            f"expected a list of hooks, got {_describe_json_value(actions)}", "hooks"
        )
    return matcher, actions


def _find_usable_matcher(entry: Any) -> str:
    matcher = entry.get("matcher") if isinstance(entry, Mapping) else None
    usable = matcher if isinstance(matcher, str) else ""
    return usable if is_valid_hook_matcher(usable) else ""


def is_valid_hook_matcher(matcher: str) -> bool:
    if matcher in _MATCH_ALL:
        return True
    try:
        re.compile(matcher)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _parse_hook_condition(raw: Mapping[str, Any]) -> str:
    condition = raw.get("if", "")
    if not isinstance(condition, str):
        raise _InvalidHookConfigError("expected a permission rule such as Bash(git push:*)", "if")
    return condition.strip()


def _list_types() -> str:
    *first, last = _KEYS_BY_TYPE
    return f"{', '.join(first)} or {last}"


def _parse_hook_failure(event: HookEvent, kind: str, raw: Mapping[str, Any]) -> bool:
    """Return True if a failure blocks. A model or a server that can block an event must answer."""
    failure = raw.get("onFailure")
    if failure is None:
        return kind in _JUDGING_TYPES and event in _GUARDED_EVENTS
    if failure not in ("continue", "block"):
        raise _InvalidHookConfigError(f"expected continue or block, got {failure!r}", "onFailure")
    return bool(failure == "block")


def _parse_hook_action(kind: str, raw: Mapping[str, Any]) -> HookAction:
    match kind:
        case "prompt" | "agent":
            return ModelPromptHookAction(
                prompt=_require_text(raw, "prompt", "a prompt for the model"),
                model=_require_text(raw, "model", "the name of a model") if raw.get("model") else "",
                continues_on_block=_parse_hook_flag(raw, "continueOnBlock"),
                can_read=kind == "agent",
            )
        case "mcp_tool":
            arguments = raw.get("input") or {}
            if not isinstance(arguments, Mapping):
                raise _InvalidHookConfigError("expected an object", "input")
            return McpToolHookAction(
                server=_require_text(raw, "server", "the name of an MCP server"),
                tool=_require_text(raw, "tool", "the name of one of its tools"),
                input=dict(arguments),
            )
    return _parse_hook_command(raw)


def _require_text(raw: Mapping[str, Any], key: str, meaning: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _InvalidHookConfigError(f"expected {meaning}, as text", key)
    return value


def _parse_hook_command(raw: Mapping[str, Any]) -> HookAction:
    command = raw.get("command")
    if not isinstance(command, str) or not command.strip():
        raise _InvalidHookConfigError("expected a command, as a string", "command")
    if "\0" in command:
        raise _InvalidHookConfigError("a command cannot contain a NUL character", "command")
    arguments, shell = raw.get("args"), raw.get("shell", "sh")
    if arguments is not None and not (
        isinstance(arguments, list | tuple)
        and all(isinstance(each, str) and "\0" not in each for each in arguments)
    ):
        raise _InvalidHookConfigError("expected a list of strings", "args")
    if not isinstance(shell, str) or shell not in _SHELLS:
        raise _InvalidHookConfigError(f"expected bash or powershell, got {shell!r}", "shell")
    return ShellCommandHookAction(
        command=command, args=None if arguments is None else tuple(arguments), shell=_SHELLS[shell]
    )


def _parse_hook_http_post(
    raw: Mapping[str, Any], environ: Mapping[str, str], limits: HttpHookLimits
) -> HookAction:
    url, headers, allowed_variables = (
        raw.get("url"),
        raw.get("headers") or {},
        raw.get("allowedEnvVars") or (),
    )
    if not isinstance(url, str) or not _is_http_url(url):
        raise _InvalidHookConfigError("expected a URL that starts with http:// or https://", "url")
    if not all(_is_permitted_url(url, patterns) for patterns in limits.url_lists):
        raise _InvalidHookConfigError("allowedHttpHookUrls does not permit this URL", "url")
    if not isinstance(headers, Mapping) or not all(isinstance(each, str) for each in headers.values()):
        raise _InvalidHookConfigError("expected an object with string values", "headers")
    if not isinstance(allowed_variables, list | tuple) or not all(
        isinstance(each, str) for each in allowed_variables
    ):
        raise _InvalidHookConfigError("expected a list of names", "allowedEnvVars")
    variables = {
        name: environ.get(name, "")
        for name in allowed_variables
        if all(name in names for names in limits.variable_lists)
    }
    return HttpPostHookAction(
        url=url,
        headers={str(name): _expand_header_variables(value, variables) for name, value in headers.items()},
    )


def _is_permitted_url(url: str, patterns: Sequence[str]) -> bool:
    return any(re.fullmatch(".*".join(map(re.escape, each.split("*"))), url) for each in patterns)


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _expand_header_variables(text: str, variables: Mapping[str, str]) -> str:
    """Expand the variables that the hook allows; others become empty."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables.get(found[1] or found[2], ""), text)


def _parse_hook_flag(raw: Mapping[str, Any], name: str) -> bool:
    value = raw.get(name, False)
    if not isinstance(value, bool):
        raise _InvalidHookConfigError(f"expected true or false, got {_describe_json_value(value)}", name)
    return value


def _parse_hook_timeout(event: HookEvent, kind: str, value: Any) -> float:
    if value is None:
        return _get_default_timeout(event, kind)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_HOOK_SECONDS:
        raise _InvalidHookConfigError(
            f"expected a number of seconds greater than 0 and at most {MAX_HOOK_SECONDS:g}, got {value!r}",
            "timeout",
        )
    return float(value)


def _get_default_timeout(event: HookEvent, kind: str) -> float:
    if event == "SessionEnd":
        return SESSION_END_HOOK_SECONDS
    if kind == "prompt":
        return PROMPT_HOOK_SECONDS
    if kind == "agent":
        return AGENT_HOOK_SECONDS
    if kind == "function":
        return DEFAULT_HOOK_SECONDS
    return PROMPT_HOOK_SECONDS if event == "UserPromptSubmit" else PROGRAM_HOOK_SECONDS


def _describe_json_value(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
    return repr(value)[:80]
