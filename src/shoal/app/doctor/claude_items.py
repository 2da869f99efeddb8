"""Inventory of the files that Claude Code would read, with what Shoal does with each item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.app.definitions.output_styles import choose_output_style
from shoal.app.definitions.plugin_set import load_plugins
from shoal.app.doctor.claude_item import ClaudeItem
from shoal.app.doctor.definition_items import list_definition_items
from shoal.app.doctor.instruction_items import (
    list_instruction_items,
    list_nested_instruction_items,
    list_other_files,
    list_output_style_items,
    load_project_instructions,
)
from shoal.app.doctor.server_items import list_left_out_items, list_mcp_server_items, list_plugin_items
from shoal.app.doctor.setting_items import list_document_items
from shoal.app.doctor.start_refusals import find_start_refusals
from shoal.app.hooks.hook_sources import list_unused_settings, load_configured_hooks
from shoal.app.reports.permission_report import create_permission_engine
from shoal.app.settings.claude_keys import iter_document_keys
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.settings import load_settings, resolve_shoal_home
from shoal.app.settings.settings_files import list_settings_files
from shoal.core.errors import SettingsError
from shoal.core.user_environment import get_user_environment
from shoal.wire.json_comments import decode_commented_json
from shoal.wire.settings_codec import SettingsDocument

_NO_START_ADVICE = "Shoal will not start until the refused items are corrected"


class ClaudeItemList(Struct, frozen=True, kw_only=True):
    items: list[ClaudeItem]
    unused_settings: tuple[str, ...] = ()
    """Sentences about the items that a session counts when it starts."""


def list_claude_items(environ: Mapping[str, str], cwd: Path, *, given: str | None = None) -> ClaudeItemList:
    """List the items of the home and the project. Nothing is changed or started."""
    home = resolve_shoal_home(environ, cwd)
    refused = [*_find_refused_files(home, cwd, given and get_user_environment(environ).expand_home(given))]
    try:
        settings = load_settings(cwd=cwd, environ=environ, given=given)
    except SettingsError as error:
        if not refused:
            refused = [ClaudeItem(file=str(error.path or ""), item="file", use="refused", advice=str(error))]
        unread = _list_unread_files(home, cwd, given, refused)
        items = sorted([*refused, *unread], key=lambda item: (item.file, item.item != "file"))
        return ClaudeItemList(items=items)
    plugins = load_plugins(settings, cwd)
    engine = create_permission_engine(settings, cwd, refuses_unknown_tools=False)
    is_hidden = engine.build_unreadable_file_filter("Read", str(cwd))
    found = load_mcp_servers(settings, cwd=cwd, plugins=plugins.build_mcp_documents())
    servers = [server.name for server in found.servers]
    instructions = load_project_instructions(settings, cwd, is_hidden)
    items = [
        *(
            item
            for document in settings.documents
            for item in list_document_items(settings, document, cwd, plugins.list_style_dirs(), servers)
        ),
        *list_mcp_server_items(settings, cwd, plugins),
        *list_left_out_items(settings, cwd),
        *list_definition_items(settings, cwd, plugins, engine),
        *list_plugin_items(settings, plugins, servers),
        *list_instruction_items(settings, instructions),
        *list_nested_instruction_items(settings, cwd, is_hidden, instructions),
        *list_output_style_items(settings, cwd, plugins.list_style_dirs()),
        *list_other_files(home, cwd),
    ]
    refusals = find_start_refusals(settings, cwd, plugins)
    hooks = load_configured_hooks(settings, plugins=plugins.build_hook_documents())
    return ClaudeItemList(
        items=sorted(_mark_refused_items(items, refusals), key=lambda item: item.file),
        unused_settings=(
            *list_unused_settings(settings, hooks),
            *map(str, choose_output_style(settings, cwd, plugins.list_style_dirs()).unused_items),
        ),
    )


def _mark_refused_items(
    items: Iterable[ClaudeItem], refusals: Mapping[tuple[str, str], str]
) -> Iterator[ClaudeItem]:
    """Yield the items, with those that a start refuses marked, listed above or not."""
    yield from (item for item in items if (item.file, item.item) not in refusals)
    for (file, name), reason in refusals.items():
        yield ClaudeItem(file=file, item=name, use="refused", advice=reason)


def _find_refused_files(home: Path, cwd: Path, given: str | None) -> Iterator[ClaudeItem]:
    from shoal.wire.settings_codec import parse_settings_document

    for path, kind in list_settings_files(home, cwd, given):
        try:
            text = path.read_text(encoding="utf-8-sig")
            parse_settings_document(text, name=str(path), kind=kind, path=path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            yield ClaudeItem(file=str(path), item="file", use="refused", advice=f"cannot be read: {error}")
        except SettingsError as error:
            yield ClaudeItem(file=str(path), item="file", use="refused", advice=str(error))


def _list_unread_files(
    home: Path, cwd: Path, given: str | None, refused: Sequence[ClaudeItem]
) -> Iterator[ClaudeItem]:
    """Yield the other settings files, and the keys of all: nothing is used while the start fails."""
    reasons = {item.file: item.advice for item in refused}
    for path, kind in list_settings_files(home, cwd, given):
        if not path.is_file():
            continue
        name = str(path)
        if name not in reasons:
            yield ClaudeItem(file=name, item="file", use="not used", advice=_NO_START_ADVICE)
        try:
            raw, text = decode_commented_json(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError):
            continue
        if isinstance(raw, dict):
            document = SettingsDocument(name=name, kind=kind, path=path, text=text, raw=raw)
            for key, _ in iter_document_keys(document):
                if key not in reasons.get(name, ""):
                    yield ClaudeItem(file=name, item=key, use="not used", advice=_NO_START_ADVICE)
