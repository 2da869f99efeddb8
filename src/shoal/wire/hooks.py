"""Parser for hooks of settings and front matter, with the lines of mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from shoal.core.hooks import (
    DECIDED,
    EVENTS,
    LONGEST_SECONDS,
    MATCHED,
    PARTING_SECONDS,
    USUAL_SECONDS,
    Called,
    Command,
    Doer,
    Hook,
    HookEvent,
    Post,
)

Place: TypeAlias = Callable[[Sequence[str]], str]
"""Returns the file and line of a key, given its key path."""
_KINDS = {
    "command": frozenset({"type", "command", "timeout", "onFailure", "async", "asyncRewake"}),
    "http": frozenset({"type", "url", "headers", "allowedEnvVars", "timeout", "onFailure"}),
}
_EVERYTHING = ("", "*")


class ReadHooks(Struct, frozen=True, kw_only=True):
    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()
    """One sentence for each part that cannot be used; the rest is used."""
    warnings: tuple[str, ...] = ()
    """One sentence for each hook that works differently than its author may expect."""


class _Wrong(Exception):
    """An invalid hook entry, with the keys of the mistake."""

    def __init__(self, what: str, *keys: str) -> None:
        super().__init__(what)
        self.keys = keys


class _Reader:
    def __init__(self, place: Place, environ: Mapping[str, str]) -> None:
        self._place = place
        self._environ = environ
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def hooks(self, raw: Any) -> Iterator[Hook]:
        way = ("hooks",)
        if not isinstance(raw, Mapping):
            self._tell(way, f"an object of events is expected, not {_kind(raw)}")
            return
        for event, entries in raw.items():
            if event not in EVENTS:
                near = get_close_matches(str(event), EVENTS, n=1)
                hint = f"; is {near[0]} meant?" if near else ""
                self._tell((*way, str(event)), f"there is no such event{hint}")
            elif not isinstance(entries, Sequence) or isinstance(entries, str):
                self._tell((*way, event), f"a list is expected, not {_kind(entries)}")
            else:
                for number, entry in enumerate(entries):
                    yield from self._entry(event, entry, (*way, event, str(number)))

    def _entry(self, event: HookEvent, entry: Any, way: tuple[str, ...]) -> Iterator[Hook]:
        try:
            matcher, doers = _parts(entry)
        except _Wrong as wrong:
            self._tell((*way, *wrong.keys), str(wrong))
            return
        if matcher not in _EVERYTHING and event not in MATCHED:
            self._tell((*way, "matcher"), f"{event} has nothing to match; the hooks below always run")
        for number, doer in enumerate(doers):
            here = (*way, "hooks", str(number))
            try:
                hook = self._hook(event, matcher, doer, here)
            except _Wrong as wrong:
                self._tell((*here, *wrong.keys), str(wrong))
                continue
            yield hook

    def _hook(self, event: HookEvent, matcher: str, raw: Any, way: tuple[str, ...]) -> Hook:
        if not isinstance(raw, Mapping):
            raise _Wrong(f'an object is expected, as {{"type": "command", "command": "…"}}, not {_kind(raw)}')
        kind = raw.get("type", "command")
        if not isinstance(kind, str) or kind not in _KINDS:
            raise _Wrong(f"{kind!r} is no type of hook here; there are command and http", "type")
        for key in raw:
            if key not in _KINDS[kind]:
                self._tell((*way, str(key)), "it is not known and is ignored")
        failure = raw.get("onFailure", "continue")
        if failure not in ("continue", "block"):
            raise _Wrong(f"continue or block is expected, not {failure!r}", "onFailure")
        rewakes = kind == "command" and _flag(raw, "asyncRewake")
        background = rewakes or (kind == "command" and _flag(raw, "async"))
        hook = Hook(
            event=event,
            matcher=matcher,
            does=_command(raw) if kind == "command" else _post(raw, self._environ),
            seconds=_seconds(event, raw.get("timeout")),
            blocks_on_failure=failure == "block",
            background=background,
            rewakes=rewakes,
            origin=self._place(way),
        )
        if background:
            self._warn(hook, (*way, "asyncRewake" if rewakes else "async"))
        return hook

    def _warn(self, hook: Hook, way: Sequence[str]) -> None:
        if hook.event == "SessionEnd":
            what = "the session waits for it all the same, since nothing outlives it"
        elif hook.event in DECIDED:
            what = f"it cannot decide anything: nobody waits for it, and {hook.event} goes on without it"
        elif hook.blocks_on_failure:
            what = 'it cannot block, so its "onFailure" has no effect: nobody waits for it'
        else:
            return
        self.warnings.append(self._sentence(way, what))

    def _tell(self, way: Sequence[str], what: str) -> None:
        self.problems.append(self._sentence(way, what))

    def _sentence(self, way: Sequence[str], what: str) -> str:
        end = "" if what.endswith("?") else "."
        return f"{self._place(way)}: {'.'.join(way)}: {what}{end}"


def read_hooks(raw: Any, place: Place, environ: Mapping[str, str] | None = None) -> ReadHooks:
    """Parse the value of `hooks`; headers may use variables of `environ`."""
    reader = _Reader(place, environ or {})
    hooks = tuple(reader.hooks(raw))
    return ReadHooks(hooks=hooks, problems=tuple(reader.problems), warnings=tuple(reader.warnings))


def together(found: Sequence[ReadHooks]) -> ReadHooks:
    return ReadHooks(
        hooks=tuple(hook for each in found for hook in each.hooks),
        problems=tuple(problem for each in found for problem in each.problems),
        warnings=tuple(warning for each in found for warning in each.warnings),
    )


def read_given(raw: Mapping[str, Any], origin: str) -> ReadHooks:
    """Parse hooks given in code: functions, (matcher, function) pairs, and entries as in settings."""
    found: list[ReadHooks] = []
    for event, entries in raw.items():
        if event not in EVENTS or not isinstance(entries, Sequence) or isinstance(entries, str):
            found.append(read_hooks({event: entries}, lambda _: origin))
        else:
            found += [_given(event, entry, origin) for entry in entries]
    return together(found)


def _given(event: HookEvent, entry: Any, origin: str) -> ReadHooks:
    if isinstance(entry, Hook):
        return ReadHooks(hooks=(entry,))
    if isinstance(entry, Mapping):
        return read_hooks({event: [entry]}, lambda _: origin)
    matcher, function = entry if isinstance(entry, tuple) and len(entry) == 2 else ("", entry)
    if not callable(function) or not isinstance(matcher, str) or not is_matcher(matcher):
        what = f"{origin}: hooks.{event}: a function, or (matcher, function), is expected, not {entry!r}."
        return ReadHooks(problems=(what,))
    does, seconds = Called(function=function), _seconds(event, None)
    return ReadHooks(hooks=(Hook(event=event, matcher=matcher, does=does, seconds=seconds, origin=origin),))


def _parts(entry: Any) -> tuple[str, Sequence[Any]]:
    if not isinstance(entry, Mapping):
        raise _Wrong(f'an object is expected, as {{"matcher": "Bash", "hooks": […]}}, not {_kind(entry)}')
    matcher, doers = entry.get("matcher", ""), entry.get("hooks")
    if matcher is None:
        matcher = ""
    if not isinstance(matcher, str):
        raise _Wrong(f"a text is expected, not {_kind(matcher)}", "matcher")
    if not is_matcher(matcher):
        raise _Wrong(f"{matcher!r} is neither a name nor a regular expression", "matcher")
    if not isinstance(doers, Sequence) or isinstance(doers, str):
        raise _Wrong(f"a list of hooks is expected, not {_kind(doers)}", "hooks")
    return matcher, doers


def is_matcher(matcher: str) -> bool:
    if matcher in _EVERYTHING:
        return True
    try:
        re.compile(matcher)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _command(raw: Mapping[str, Any]) -> Doer:
    command = raw.get("command")
    if not isinstance(command, str) or not command.strip():
        raise _Wrong("a command is expected, as text", "command")
    if "\0" in command:
        raise _Wrong("a command cannot hold a NUL", "command")
    return Command(command=command)


def _post(raw: Mapping[str, Any], environ: Mapping[str, str]) -> Doer:
    url, headers, allowed = raw.get("url"), raw.get("headers") or {}, raw.get("allowedEnvVars") or ()
    if not isinstance(url, str) or not _is_address(url):
        raise _Wrong("an address is expected, as http://… or https://…", "url")
    if not isinstance(headers, Mapping) or not all(isinstance(each, str) for each in headers.values()):
        raise _Wrong("an object of texts is expected", "headers")
    if not isinstance(allowed, list | tuple) or not all(isinstance(each, str) for each in allowed):
        raise _Wrong("a list of names is expected", "allowedEnvVars")
    known = {name: environ.get(name, "") for name in allowed}
    return Post(url=url, headers={str(name): _filled(value, known) for name, value in headers.items()})


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Expand the variables that the hook allows; others become empty."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: known.get(found[1] or found[2], ""), text)


def _flag(raw: Mapping[str, Any], name: str) -> bool:
    value = raw.get(name, False)
    if not isinstance(value, bool):
        raise _Wrong(f"true or false is expected, not {_kind(value)}", name)
    return value


def _seconds(event: HookEvent, given: Any) -> float:
    if given is None:
        return PARTING_SECONDS if event == "SessionEnd" else USUAL_SECONDS
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= LONGEST_SECONDS:
        raise _Wrong(
            f"seconds are expected, more than 0 and at most {LONGEST_SECONDS:g}, not {given!r}", "timeout"
        )
    return float(given)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
    return repr(value)[:80]
