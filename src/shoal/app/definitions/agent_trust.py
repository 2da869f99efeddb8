"""Trust checks for the hooks and MCP servers that a project's agent definitions start as programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal.app.definitions.definitions import definitions_for
from shoal.app.settings.settings import Settings
from shoal.app.settings.trust import Widening, trust_in, widening_part
from shoal.core.definitions import Definition
from shoal.core.errors import StoreError
from shoal.stores.files.trust import TrustFile
from shoal.wire.settings import Document, Known


def all_widening(settings: Settings, project: Path) -> tuple[Widening, ...]:
    """Return all parts of a project that need trust: in settings, servers and agent definitions."""
    found = list(settings.widening)
    file = TrustFile(settings.home)
    for definition in definitions_for(cwd=project, home=settings.home).all():
        document = _document(definition)
        if document is None:
            continue
        wide = widening_part(document, Known())
        try:
            trust = trust_in(file, project, document, wide)
        except StoreError:
            trust = "unasked"
        found += (Widening(document=document, keys=keys, value=value, trust=trust) for keys, value in wide)
    return tuple(found)


def trusts_agent(home: Path, project: Path, definition: Definition) -> bool:
    document = _document(definition)
    if document is None:
        return True
    try:
        return trust_in(TrustFile(home), project, document, widening_part(document, Known())) == "trusted"
    except StoreError:
        return False


def _document(definition: Definition) -> Document | None:
    """Return the programs that a project's agent brings, as a document; None if it brings none."""
    servers: dict[str, Any] = {}
    for entry in definition.mcp_servers:
        servers |= entry if isinstance(entry, Mapping) else {}
    source = definition.source
    brought = {"hooks": definition.hooks, "mcpServers": servers}
    raw = {key: msgspec.to_builtins(value) for key, value in brought.items() if value}
    # A plug-in in use was chosen by the user or trusted as a whole.
    if not raw or source.kind != "project" or source.path is None:
        return None
    lines = {"hooks": source.lines.get("hooks", 1), "mcpServers": source.lines.get("mcp_servers", 1)}
    return Document(
        name=str(source),
        kind="agent",
        path=source.path,
        text=_outline({key: lines[key] for key in raw}),
        raw=raw,
    )


def _outline(lines: Mapping[str, int]) -> str:
    """Return a JSON outline with each key on its line in the agent's file, which is not JSON itself."""
    text, line = "{", 1
    for key in sorted(lines, key=lambda key: lines[key]):
        comma = "" if text.strip() == "{" else ","
        text += "\n" * (lines[key] - line) + f'{comma}"{key}": {{}}'
        line = lines[key]
    return text + "}"
