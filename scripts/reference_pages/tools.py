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
from reference_pages.words import code, page, table
from shoal.app.definitions.definitions import definitions_for
from shoal.core.definitions import tool_names
from shoal.core.messages import ToolUse
from shoal.core.requests import Request, ToolSchema
from shoal.core.tools import Tool
from shoal.tools.mcp.resources import resource_tools

_OPENING = """
What agents work with. Each call is [allowed, asked about or denied](../permissions.md) before it runs; a
tool that only reads changes nothing, and calls of such tools in one message run side by side. A call
takes at most its deadline; where there is none the tool waits for a person or an agent, or keeps a time
of its own. The texts are those that models read.

Tools of [MCP servers](../mcp.md) are called `mcp__SERVER__TOOL`, and a program gives tools of its own to
`shoal.open`.
"""
_LISTS = ("Agent", "Skill")
"""Tools whose descriptions end with a list of what exists at the moment."""
_WHO = ("lead", "agent", "teammate")


class Seen(Struct):
    told: dict[str, dict[str, ToolSchema]]
    """Tool schemas that a model received, by speaker."""
    tools: dict[str, Tool]


def tools_page() -> str:
    seen = _seen()
    names = list(dict.fromkeys(name for who in _WHO for name in seen.told[who]))
    who = table(
        ("tool", "lead", "general-purpose agent", "teammate", "only reads", "deadline"),
        [_row(name, seen) for name in names],
    )
    own = [_tool(name, seen.told["lead"][name]) for name in names]
    return page("Tools", _OPENING, f"## Who has what\n\n{who}\n\n{_agents(names)}", *own, *_further(seen))


def _row(name: str, seen: Seen) -> tuple[str, ...]:
    tool = seen.tools[name]
    has = ("yes" if name in seen.told[who] else "" for who in _WHO)
    deadline = "" if tool.deadline is None else f"{tool.deadline:g} s"
    return (f"[`{name}`](#{name.lower()})", *has, "yes" if tool.reads_only else "", deadline)


def _agents(names: list[str]) -> str:
    with tempfile.TemporaryDirectory() as nowhere:
        found = definitions_for(cwd=Path(nowhere), home=Path(nowhere), managed=()).all()
    lines = []
    for each in sorted(found, key=lambda definition: definition.name):
        chosen = tool_names(each, names).names
        told = ", ".join(map(code, chosen)) if len(chosen) < len(names) else "all that an agent may have"
        lines.append((code(each.name), told))
    return (
        "An agent has the tools of its [definition](../agents.md#fields), "
        "less those that are the lead's alone:\n\n" + table(("built-in agent", "tools"), lines)
    )


def _further(seen: Seen) -> Iterator[str]:
    yield "## Tools that are there at times\n\nThe rest is given only where it has something to do."
    schema = seen.told["formed"]["StructuredOutput"]
    plain = ToolSchema(name=schema.name, description=schema.description, input_schema={})
    yield (
        f"{_tool(schema.name, plain)}\n\n"
        "It is the lead's where `--json-schema` or `output_schema` asks for an answer in a form; its inputs "
        "are that form."
    )
    for tool in resource_tools(tuple):
        yield (
            f"{_tool(tool.schema.name, tool.schema)}\n\n"
            "Every agent has it where a server with resources is connected."
        )


def _tool(name: str, schema: ToolSchema) -> str:
    description = schema.description
    if name in _LISTS:
        description = "\n\n".join(description.split("\n\n")[:-1])
    quoted = "\n".join(f"> {line}".rstrip() for line in description.splitlines())
    inputs = list(_inputs(schema.input_schema))
    shown = table(("input", "type", "", "meaning"), inputs) if inputs else ""
    return "\n\n".join(filter(None, (f"## {name}", quoted, shown)))


def _inputs(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    needed = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield (
            code(name),
            _type(each),
            "needed" if name in needed else "",
            each.get("description", ""),
        )
        inner = each.get("items", {}) if each.get("type") == "array" else each
        for below, type_, need, words in _inputs(inner):
            yield f"{code(name)} › {below}", type_, need, words


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(code(str(value)) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    kind = schema.get("type", "JSON")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [
        f"{sign} {schema[key]:g}"
        for sign, key in (("≥", "minimum"), (">", "exclusiveMinimum"), ("≤", "maximum"))
        if key in schema
    ]
    words = {"string": "text", "integer": "whole number", "boolean": "`true` or `false`"}.get(kind, kind)
    return " ".join((words, " and ".join(bounds))).strip()


def _seen() -> Seen:
    """Collect the tools of a lead, its agent and teammate, and a lead with an output schema."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as place:
        before = os.environ.get("SHOAL_HOME")
        os.environ["SHOAL_HOME"] = f"{place}/home"
        try:
            project = Path(place) / "project"
            project.mkdir()
            return asyncio.run(_sessions(project))
        finally:
            os.environ.pop("SHOAL_HOME")
            if before is not None:
                os.environ["SHOAL_HOME"] = before


async def _sessions(project: Path) -> Seen:
    seen = Seen(told={}, tools={})

    def mind(request: Request) -> str | list[ToolUse]:
        who = _speaker(request)
        seen.told.setdefault(who, {tool.name: tool for tool in request.tools})
        spoken = sum(message.role == "assistant" for message in request.messages)
        calls = _CALLS[spoken] if who == "lead" and spoken < len(_CALLS) else {}
        if who == "formed" and not spoken:
            calls = {"StructuredOutput": {"depth": 3}}
        return [ToolUse(id=name, name=name, input=given) for name, given in calls.items()] or "Done."

    for prompt, schema in (("LEAD", None), ("FORMED", {"type": "object"})):
        model = shoal.ScriptedModel(mind)
        async with shoal.open(cwd=project, model=model, output_schema=schema, settings="{}") as session:
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


def _speaker(request: Request) -> str:
    if "a member of the team" in request.system:
        return "teammate"
    first = request.messages[0].text.split()[0]
    return {"LEAD": "lead", "AGENT": "agent", "FORMED": "formed"}[first]
