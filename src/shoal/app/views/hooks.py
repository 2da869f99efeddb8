"""Report on the hooks that a session in this directory would run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from shoal.app.definitions.agent_trust import trusts_agent
from shoal.app.definitions.definitions import definitions_for
from shoal.app.definitions.plugins import plugins_for
from shoal.app.hooks.sources import configured_hooks, hooks_of
from shoal.app.settings.settings import Settings, load_settings
from shoal.core.hooks import Called, Command, Hook, HookEvent, Post
from shoal.wire.hooks import ReadHooks, read_hooks


class HookShown(Struct, frozen=True, kw_only=True):
    event: HookEvent
    matcher: str
    type: str
    does: str
    """Command, URL or function."""
    timeout: float
    background: bool
    """True if nobody waits for it."""
    rewakes: bool
    """True if its exit status 2 wakes the agent."""
    origin: str
    agent: str = ""
    """Agent that the hook belongs to; empty for hooks of every agent."""
    trusted: bool = True


class HooksSeen(Struct, frozen=True, kw_only=True):
    hooks: tuple[HookShown, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def seen_in(cwd: Path, *, given: str | None = None) -> HooksSeen:
    """Build the report. Raises `SettingsError`."""
    project = cwd.resolve()
    settings = load_settings(cwd=project, given=given)
    shown: list[HookShown] = []
    problems: list[str] = []
    warnings: list[str] = []

    def take(found: ReadHooks, *, agent: str = "", trusted: bool = True) -> None:
        shown.extend(_rows(found.hooks, agent=agent, trusted=trusted))
        problems.extend(found.problems)
        warnings.extend(found.warnings)

    plugins = plugins_for(settings, project)
    take(configured_hooks(settings, plugins=plugins.hooks()))
    for left_out in _not_trusted(settings):
        take(left_out, trusted=False)
    definitions = definitions_for(cwd=project, home=settings.home, plugins=plugins.agents())
    for definition in definitions.all():
        if definition.hooks:
            trusted = trusts_agent(settings.home, project, definition)
            take(hooks_of(definition, settings), agent=definition.name, trusted=trusted)
    return HooksSeen(hooks=tuple(shown), problems=tuple(problems), warnings=tuple(warnings))


def rows_of(hooks: Iterable[Hook]) -> tuple[HookShown, ...]:
    """Return the rows of a running session's hooks."""
    return tuple(_rows(hooks))


def _not_trusted(settings: Settings) -> Iterator[ReadHooks]:
    for each in settings.left_out:
        if each.keys == ("hooks",):
            yield read_hooks(each.value, each.document.place, settings.environ)


def _rows(hooks: Iterable[Hook], *, agent: str = "", trusted: bool = True) -> Iterator[HookShown]:
    for hook in hooks:
        yield HookShown(
            event=hook.event,
            matcher=hook.matcher,
            type=_type(hook),
            does=_does(hook),
            timeout=hook.seconds,
            background=hook.background,
            rewakes=hook.rewakes,
            origin=hook.origin,
            agent=agent,
            trusted=trusted,
        )


def _type(hook: Hook) -> str:
    match hook.does:
        case Command():
            return "command"
        case Post():
            return "http"
        case Called():
            return "function"


def _does(hook: Hook) -> str:
    return hook.does.command if isinstance(hook.does, Command) else hook.name
