"""docs/reference/tools.md: every tool, as models really see it in a session, and who has it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

import shoal
from reference_pages.doc_text import format_code, render_page, render_table
from shoal.app.definitions.agent_catalog import load_agent_catalog
from shoal.core.agents.agent_definitions import select_definition_tools
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest, ToolSchema
from shoal.core.conversation.tools import Tool
from shoal.tools.mcp.resource_tools import build_mcp_resource_tools

_OPENING = """ These are the tools that agents use. Before a call runs, Shoal [allows it, asks or denies
it](../permissions.md). A read-only tool changes nothing, and calls to such tools in one message run in
parallel. A call is stopped at its deadline; a tool without a deadline waits for a person or an agent, or has
its own time limit. The descriptions are the ones that models read.

Tools from [MCP servers](../mcp.md) are called `mcp__SERVER__TOOL`. A program passes its own tools to
`shoal.open`.
"""
_TOOLS_WITH_LISTS = ("Agent", "Skill")
"""Tools whose descriptions end with a list of what exists at the moment."""
_SPEAKERS = ("lead", "agent", "teammate")


class SeenTools(Struct):
    schemas: dict[str, dict[str, ToolSchema]]
    """Tool schemas that a model received, by speaker."""
    tools: dict[str, Tool]


def build_tools_page() -> str:
    seen = _collect_tools()
    names = list(dict.fromkeys(name for who in _SPEAKERS for name in seen.schemas[who]))
    who = render_table(
        ("tool", "lead", "general-purpose agent", "teammate", "only reads", "deadline"),
        [_make_row(name, seen) for name in names],
    )
    sections = [_render_tool(name, seen.schemas["lead"][name]) for name in names]
    return render_page(
        "Tools",
        _OPENING,
        f"## Tools by agent\n\n{who}\n\n{_render_agents(names)}",
        *sections,
        *_render_other_tools(seen),
    )


def _make_row(name: str, seen: SeenTools) -> tuple[str, ...]:
    tool = seen.tools[name]
    has = ("yes" if name in seen.schemas[who] else "" for who in _SPEAKERS)
    deadline = "" if tool.deadline is None else f"{tool.deadline:g} s"
    return (f"[`{name}`](#{name.lower()})", *has, "yes" if tool.is_read_only else "", deadline)


def _render_agents(names: list[str]) -> str:
    with tempfile.TemporaryDirectory() as directory:
        found = load_agent_catalog(cwd=Path(directory), home=Path(directory), managed=()).all()
    lines = []
    for each in sorted(found, key=lambda definition: definition.name):
        tool_names = select_definition_tools(each.capabilities, names).names
        told = (
            ", ".join(map(format_code, tool_names))
            if len(tool_names) < len(names)
            else "all tools of an agent"
        )
        lines.append((format_code(each.name), told))
    return (
        "An agent has the tools in its [definition](../agents.md#fields), except those that only the lead "
        "has:\n\n" + render_table(("built-in agent", "tools"), lines)
    )


def _render_other_tools(seen: SeenTools) -> Iterator[str]:
    yield "## Conditional tools\n\nThese tools exist only under certain conditions."
    schema = seen.schemas["formed"]["StructuredOutput"]
    plain = ToolSchema(name=schema.name, description=schema.description, input_schema={})
    yield (
        f"{_render_tool(schema.name, plain)}\n\n"
        "The lead has it if `--json-schema` or `output_schema` requires a structured answer; its input has "
        "that schema."
    )
    for tool in build_mcp_resource_tools(tuple):
        yield (
            f"{_render_tool(tool.schema.name, tool.schema)}\n\n"
            "Every agent has it if a server with resources is connected."
        )


def _render_tool(name: str, schema: ToolSchema) -> str:
    description = schema.description
    if name in _TOOLS_WITH_LISTS:
        description = "\n\n".join(description.split("\n\n")[:-1])
    quoted = "\n".join(f"> {line}".rstrip() for line in description.splitlines())
    inputs = list(_list_inputs(schema.input_schema))
    shown = render_table(("input", "type", "", "meaning"), inputs) if inputs else ""
    return "\n\n".join(filter(None, (f"## {name}", quoted, shown)))


def _list_inputs(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    needed = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield (
            format_code(name),
            _describe_type(each),
            "required" if name in needed else "",
            each.get("description", ""),
        )
        inner = each.get("items", {}) if each.get("type") == "array" else each
        for inner_name, type_, inner_need, meaning in _list_inputs(inner):
            yield f"{format_code(name)} › {inner_name}", type_, inner_need, meaning


def _describe_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(format_code(str(value)) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_describe_type(each) for each in schema["anyOf"]))
    kind = schema.get("type", "JSON")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_describe_type(schema.get('items', {}))}"
    bounds = [
        f"{sign} {schema[key]:g}"
        for sign, key in (("≥", "minimum"), (">", "exclusiveMinimum"), ("≤", "maximum"))
        if key in schema
    ]
    type_text = {"boolean": "`true` or `false`"}.get(kind, kind)
    return " ".join((type_text, " and ".join(bounds))).strip()


def _collect_tools() -> SeenTools:
    """Collect the tools of a lead, its agent and teammate, and a lead with an output schema."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as directory:
        old_home = os.environ.get("SHOAL_HOME")
        os.environ["SHOAL_HOME"] = f"{directory}/home"
        try:
            project = Path(directory) / "project"
            project.mkdir()
            return asyncio.run(_run_sessions(project))
        finally:
            os.environ.pop("SHOAL_HOME")
            if old_home is not None:
                os.environ["SHOAL_HOME"] = old_home


async def _run_sessions(project: Path) -> SeenTools:
    seen = SeenTools(schemas={}, tools={})

    def record_and_reply(request: ModelRequest) -> str | list[ToolUseBlock]:
        speaker = _find_speaker(request)
        seen.schemas.setdefault(speaker, {tool.name: tool for tool in request.tools})
        reply_count = sum(message.role == "assistant" for message in request.messages)
        calls = _CALLS[reply_count] if speaker == "lead" and reply_count < len(_CALLS) else {}
        if speaker == "formed" and not reply_count:
            calls = {"StructuredOutput": {"depth": 3}}
        return [ToolUseBlock(id=name, name=name, input=given) for name, given in calls.items()] or "Done."

    for prompt, schema in (("LEAD", None), ("FORMED", {"type": "object"})):
        model = shoal.ScriptedModel(record_and_reply)
        async with shoal.open(
            cwd=project, model=model, output_schema=schema, settings='{"env": {}}'
        ) as session:
            seen.tools |= session.agent.tools
            turn = session.run(prompt)
            while turn is not None:
                async for _ in turn:
                    pass
                turn = await session.next_turn()
    return seen


_CALLS: tuple[dict[str, dict[str, Any]], ...] = (
    {"Agent": {"description": "one", "prompt": "AGENT"}},
    {"TeamCreate": {"team_name": "crew"}},
    {"Agent": {"description": "one", "prompt": "MATE", "name": "mate"}},
)


def _find_speaker(request: ModelRequest) -> str:
    if "a member of the team" in request.system:
        return "teammate"
    first = request.messages[0].text.split()[0]
    return {"LEAD": "lead", "AGENT": "agent", "FORMED": "formed"}[first]
