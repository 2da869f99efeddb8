"""Sources of hooks: settings files, the program that opens a session, and agent definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from shoal.app.settings.settings import Settings
from shoal.core.definitions import Definition
from shoal.core.hooks import Hook
from shoal.wire.hooks import ReadHooks, read_given, read_hooks, together
from shoal.wire.settings import Document

_OFF = "disableAllHooks"


def configured_hooks(
    settings: Settings, given: Mapping[str, Any] | None = None, plugins: Sequence[Document] = ()
) -> ReadHooks:
    """Load the hooks of settings files, the strongest first, then of plug-ins, then of the program."""
    found = [
        read_hooks(document.raw["hooks"], document.place, settings.environ)
        for document in (*settings.documents, *plugins)
        if document.raw.get("hooks") and not _switched_off(document, settings)
    ]
    if given:
        found.append(read_given(given, "shoal.open"))
    return together(found)


def hooks_of(definition: Definition, settings: Settings) -> ReadHooks:
    """Return the hooks of a definition. Its `Stop` hooks become `SubagentStop` hooks."""
    place = definition.source.place("hooks") or str(definition.source)
    found = read_hooks(definition.hooks, lambda _: place, settings.environ)
    return replace(found, hooks=tuple(map(_of_agent, found.hooks)))


def _of_agent(hook: Hook) -> Hook:
    return replace(hook, event="SubagentStop") if hook.event == "Stop" else hook


def _switched_off(document: Document, settings: Settings) -> bool:
    """Return True if its hooks are off. A project cannot disable user hooks, nor a user managed ones."""
    who = [each for each in settings.documents if each.raw.get(_OFF) is True and each.is_persons]
    return any(document.kind != "managed" or each.kind == "managed" for each in who)
