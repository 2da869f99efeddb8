"""`shoal agents` commands: list, show, validate and create agents."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.ids import LEAD
from shoal.core.wording import clean, many
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.cli.printing import Cell, debug_option, json_option, print_facts, print_json, print_table
from shoal.surfaces.terminal.paint import DIM, has_colours, painted, style_of

if TYPE_CHECKING:
    from shoal.app.views.agents import AgentsView, Fact
    from shoal.core.definitions import Definition, Problem, Source

_DESCRIPTION = "Say in a sentence what it does and when to use it."

agents_option = click.option("--agents", metavar="JSON|FILE", help="Agents on top of those in files.")


@click.group("agents")
def command() -> None:
    """List, show, check and add agents. Files in .claude/agents belong to the project, those in `agents` of
    Shoal's home to you."""


@command.command("ls")
@agents_option
@settings_option
@json_option
@debug_option
def ls(*, agents: str | None, settings: str | None, as_json: bool) -> int:
    """List the agents that can be used here."""
    view = _view(agents, settings)
    found = view.definitions.all()
    if as_json:
        print_json([_summary(view, definition) for definition in found])
        return exits.OK
    rows = [
        (
            Cell(definition.name, style_of(definition.color)),
            Cell(view.model(definition).value),
            Cell(str(len(view.tools(definition).names))),
            Cell(definition.source.kind, DIM),
            Cell(definition.description),
        )
        for definition in found
    ]
    print_table(("NAME", "MODEL", "TOOLS", "SOURCE", "DESCRIPTION"), rows)
    _tell_problems(view)
    return exits.OK


@command.command("show", short_help="Show what an agent comes down to here, and why.")
@click.argument("name")
@click.option("--permissions", is_flag=True, help="The effective rules, and where each comes from.")
@agents_option
@settings_option
@json_option
@debug_option
def show(*, name: str, permissions: bool, agents: str | None, settings: str | None, as_json: bool) -> int:
    """Show what an agent comes down to here, and where each part comes from. `lead` is the one you talk to;
    of that one there are only --permissions to show."""
    from shoal.surfaces.cli.permissions import print_view, show_view

    if name == LEAD:
        show_view(settings, as_json=as_json)
        return exits.OK
    view = _view(agents, settings)
    definition = _found(view, name)
    if permissions:
        print_view(view.permissions(definition), as_json=as_json)
        return exits.OK
    facts = tuple(view.facts(definition))
    if as_json:
        fields = {fact.key: {"value": fact.value, "origin": fact.origin} for fact in facts}
        print_json({**_summary(view, definition), "fields": fields, "prompt": definition.prompt})
        return exits.OK
    click.echo(painted(definition.name, style_of(definition.color), colours=has_colours(sys.stdout)) + "\n")
    rows = _rows(facts, definition.source)
    print_facts([("description", definition.description), ("source", _source(definition)), *rows])
    click.echo(f"\n{clean(definition.prompt)}")
    return exits.OK


@command.command("validate", short_help="Check agents: files, directories, or all.")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@agents_option
@json_option
@debug_option
def validate(*, paths: Sequence[Path], agents: str | None, as_json: bool) -> int:
    """Check agents: files and directories, or all that are found from here. Exit code 1 where one cannot be
    used."""
    from shoal.app.definitions.definitions import definitions_in

    view = _view(agents, None)
    definitions = definitions_in(_existing(paths)) if paths else view.definitions
    usable = definitions.all()
    problems = sorted((*definitions.problems, *view.hook_problems(usable)), key=str)
    warnings = (*definitions.warnings, *view.unknown_tools(usable), *view.hook_warnings(usable))
    shadowed = tuple(
        f"{each.definition.source}: {each.definition.name} is not used: {each.by.source} comes first"
        for each in definitions.shadowed
    )
    if as_json:
        told = [_problem(problem) for problem in problems]
        found = {"agents": len(usable), "problems": told}
        print_json({**found, "warnings": warnings, "shadowed": shadowed})
    else:
        for line in (*map(str, problems), *(f"{text} (warning)" for text in warnings), *shadowed):
            click.echo(clean(line))
        counts = (("agent", usable), ("problem", problems), ("warning", warnings))
        click.echo(", ".join(many(len(things), word) for word, things in counts) + ".")
    return exits.ERROR if problems else exits.OK


@command.command("new", short_help="Write the file of a new agent, with every field.")
@click.argument("name")
@click.option("--user", is_flag=True, help="For you in every project, instead of for this project.")
@click.option("--description", metavar="TEXT", default=_DESCRIPTION, help="What it does, when to use it.")
@debug_option
def new(*, name: str, user: bool, description: str) -> int:
    """Write the file of a new agent, with every field explained, for you to change."""
    from shoal.app.settings.settings import home_directory
    from shoal.surfaces.cli.agent_template import template
    from shoal.surfaces.cli.new_files import write_new
    from shoal.wire.definitions import name_problem

    wrong = name_problem(name)
    description = " ".join(description.split())
    if wrong is not None or not description:
        raise click.UsageError(f"{wrong}." if wrong else "The description is empty.")
    before = next((each for each in _view(None, None).definitions.all() if each.name == name), None)
    directory = home_directory() / "agents" if user else Path.cwd() / ".claude" / "agents"
    path = directory / f"{name}.md"
    write_new(path, template(name, description))
    click.echo(f"{clean(str(path))} is written. Change it, then: shoal agents show {shlex.quote(name)}")
    if before is not None:
        click.echo(f"There is another of that name ({_source(before)}): `shoal agents validate` says more.")
    return exits.OK


def _view(agents: str | None, settings: str | None) -> AgentsView:
    from shoal.app.views.agents import AgentsView, offered_tools

    offered = asyncio.run(offered_tools(Path.cwd(), settings))
    return AgentsView(Path.cwd(), offered=offered, settings=settings, agents=agents)


def _found(view: AgentsView, name: str) -> Definition:
    from shoal.core.errors import UnknownAgent

    try:
        return view.definitions.find(name)
    except UnknownAgent as error:
        raise click.UsageError(str(error)) from error


def _existing(paths: Sequence[Path]) -> Sequence[Path]:
    for path in paths:
        if not path.exists():
            raise click.UsageError(f"There is no file or directory {str(path)!r}.")
    return paths


def _summary(view: AgentsView, definition: Definition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "description": definition.description,
        "model": view.model(definition).value,
        "tools": view.tools(definition).names,
        "color": definition.color,
        "source": {"kind": definition.source.kind, "path": _path(definition.source)},
    }


def _rows(facts: Sequence[Fact], source: Source) -> Iterator[tuple[str, str]]:
    """Format facts as rows; the agent's own file is named once above, so its origins show only the line."""
    for fact in facts:
        yield fact.key, f"{_text(fact.value)}  ({fact.origin.replace(f'{source}:', 'line ')})"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return json.dumps(value, ensure_ascii=False)


def _source(definition: Definition) -> str:
    source = definition.source
    return source.kind if source.path is None else f"{source.kind}, {source}"


def _path(source: Source) -> str | None:
    return None if source.path is None else str(source.path)


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "path": _path(problem.source),
        "line": problem.line,
        "field": problem.field,
        "what": problem.what,
        "agent": problem.name,
    }


def _tell_problems(view: AgentsView) -> None:
    from shoal.surfaces.terminal.sentences import say

    for told in view.definitions.unusable():
        say(told)
