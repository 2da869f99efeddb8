"""Trust checks for the hooks and MCP servers that a project's agent definitions start as programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal.app.definitions.agent_catalog import load_agent_catalog
from shoal.app.definitions.workflow_files import WorkflowFiles
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_trust import (
    PermissionEscalation,
    find_escalating_settings,
    read_document_trust,
)
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.errors import StateFileError
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.wire.settings_codec import SettingsDocument, SettingsSchema


def find_project_escalations(settings: Settings, project: Path) -> tuple[PermissionEscalation, ...]:
    """Return the parts of a project that need trust: settings, servers, agent definitions and workflows."""
    found = list(settings.findings.escalations)
    trust_file = ProjectTrustFile(settings.home)
    for definition in load_agent_catalog(cwd=project, home=settings.home).all():
        document = _make_agent_trust_document(definition)
        if document is None:
            continue
        escalating_parts = find_escalating_settings(document, SettingsSchema())
        try:
            trust = read_document_trust(trust_file, project, document, escalating_parts)
        except StateFileError:
            trust = "unasked"
        found += (
            PermissionEscalation(document=document, keys=keys, value=value, trust=trust)
            for keys, value in escalating_parts
        )
    found += WorkflowFiles(home=settings.home, project=project).list_escalations()
    return tuple(found)


def is_agent_trusted(home: Path, project: Path, definition: AgentDefinition) -> bool:
    document = _make_agent_trust_document(definition)
    if document is None:
        return True
    try:
        return (
            read_document_trust(
                ProjectTrustFile(home),
                project,
                document,
                find_escalating_settings(document, SettingsSchema()),
            )
            == "trusted"
        )
    except StateFileError:
        return False


def _make_agent_trust_document(definition: AgentDefinition) -> SettingsDocument | None:
    """Return the programs that a project's agent brings, as a document; None if it brings none."""
    servers: dict[str, Any] = {}
    for entry in definition.capabilities.mcp_servers:
        servers |= entry if isinstance(entry, Mapping) else {}
    source = definition.source
    programs = {"hooks": definition.hooks, "mcpServers": servers}
    raw = {key: msgspec.to_builtins(value) for key, value in programs.items() if value}
    # A plug-in in use was chosen by the user or trusted as a whole.
    if not raw or source.kind != "project" or source.path is None:
        return None
    lines = {"hooks": source.lines.get("hooks", 1), "mcpServers": source.lines.get("mcp_servers", 1)}
    return SettingsDocument(
        name=str(source),
        kind="agent",
        path=source.path,
        text=_build_key_line_outline({key: lines[key] for key in raw}),
        raw=raw,
    )


def _build_key_line_outline(lines: Mapping[str, int]) -> str:
    """Return a JSON outline with each key on its line in the agent's file, which is not JSON itself."""
    text, line = "{", 1
    for key in sorted(lines, key=lambda key: lines[key]):
        comma = "" if text.strip() == "{" else ","
        text += "\n" * (lines[key] - line) + f'{comma}"{key}": {{}}'
        line = lines[key]
    return text + "}"
