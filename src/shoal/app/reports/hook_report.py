"""Report on the hooks that a session in this directory would run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from shoal.app.definitions.agent_catalog import load_agent_catalog
from shoal.app.definitions.agent_trust import is_agent_trusted
from shoal.app.definitions.plugin_set import load_plugins
from shoal.app.hooks.hook_sources import (
    load_configured_hooks,
    parse_document_hooks,
    read_agent_definition_hooks,
)
from shoal.app.settings.settings import Settings, load_settings
from shoal.core.extensions.hooks import (
    Hook,
    HookEvent,
    HttpPostHookAction,
    McpToolHookAction,
    ModelPromptHookAction,
    PythonCallbackHookAction,
    ShellCommandHookAction,
)
from shoal.wire.hook_codec import ParsedHooks


class HookReportRow(Struct, frozen=True, kw_only=True):
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


class HookReport(Struct, frozen=True, kw_only=True):
    hooks: tuple[HookReportRow, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def build_hook_report(cwd: Path, *, given: str | None = None) -> HookReport:
    """Build the report. Raises `SettingsError`."""
    project = cwd.resolve()
    settings = load_settings(cwd=project, given=given)
    rows: list[HookReportRow] = []
    problems: list[str] = []
    warnings: list[str] = []

    def add_hook_rows(found: ParsedHooks, *, agent: str = "", trusted: bool = True) -> None:
        rows.extend(_iter_hook_rows(found.hooks, agent=agent, trusted=trusted))
        problems.extend((*found.problems, *found.unused))
        warnings.extend(found.warnings)

    plugins = load_plugins(settings, project)
    add_hook_rows(load_configured_hooks(settings, plugins=plugins.build_hook_documents()))
    for untrusted_hooks in _iter_untrusted_hooks(settings):
        add_hook_rows(untrusted_hooks, trusted=False)
    definitions = load_agent_catalog(cwd=project, home=settings.home, plugins=plugins.list_agent_dirs())
    for definition in definitions.all():
        if definition.hooks:
            trusted = is_agent_trusted(settings.home, project, definition)
            add_hook_rows(
                read_agent_definition_hooks(definition, settings), agent=definition.name, trusted=trusted
            )
    return HookReport(hooks=tuple(rows), problems=tuple(problems), warnings=tuple(warnings))


def make_hook_rows(hooks: Iterable[Hook]) -> tuple[HookReportRow, ...]:
    """Return the rows of a running session's hooks."""
    return tuple(_iter_hook_rows(hooks))


def _iter_untrusted_hooks(settings: Settings) -> Iterator[ParsedHooks]:
    for escalation in settings.findings.untrusted_escalations:
        if escalation.keys == ("hooks",):
            yield parse_document_hooks(escalation.document, settings, escalation.value)


def _iter_hook_rows(
    hooks: Iterable[Hook], *, agent: str = "", trusted: bool = True
) -> Iterator[HookReportRow]:
    for hook in hooks:
        yield HookReportRow(
            event=hook.event,
            matcher=hook.matcher,
            type=_classify_hook(hook),
            does=_get_hook_command_or_name(hook),
            timeout=hook.seconds,
            background=hook.background,
            rewakes=hook.rewakes,
            origin=hook.origin,
            agent=agent,
            trusted=trusted,
        )


def _classify_hook(hook: Hook) -> str:
    match hook.action:
        case ShellCommandHookAction():
            return "command"
        case HttpPostHookAction():
            return "http"
        case ModelPromptHookAction():
            return "prompt"
        case McpToolHookAction():
            return "mcp_tool"
        case PythonCallbackHookAction():
            return "function"


def _get_hook_command_or_name(hook: Hook) -> str:
    match hook.action:
        case ShellCommandHookAction(args=None) as action:
            return action.shown_command
    return hook.name
