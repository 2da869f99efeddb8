"""`shoal skills` commands: list, show and validate skills and commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.wording import clean, many
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import Cell, debug_option, json_option, print_facts, print_json, print_table
from shoal.surfaces.terminal.paint import DIM

if TYPE_CHECKING:
    from shoal.app.skills.skills import Skills
    from shoal.app.skills.trust import SkillTrust
    from shoal.core.definitions import Problem
    from shoal.core.skills import Skill


@click.group("skills")
def command() -> None:
    """List, show and check skills and commands. Those in .claude/skills, .agents/skills and .claude/commands
    belong to the project, those in `skills` and `commands` of Shoal's home to you."""


@command.command("ls")
@json_option
@debug_option
def ls(*, as_json: bool) -> int:
    """List the skills and commands that can be used here."""
    from shoal.surfaces.terminal.sentences import say

    found, trust = _found()
    every = _every(found)
    if as_json:
        print_json([_summary(skill, trust) for skill in every])
        return exits.OK
    rows = [
        (
            Cell(skill.name),
            Cell(skill.kind),
            Cell(_for(skill)),
            Cell(skill.source.kind, DIM),
            Cell(skill.description),
        )
        for skill in every
    ]
    if rows:
        print_table(("NAME", "KIND", "FOR", "SOURCE", "DESCRIPTION"), rows)
    else:
        click.echo("There are no skills or commands here. A skill is a file .claude/skills/NAME/SKILL.md.")
    for told in found.unusable():
        say(told)
    return exits.OK


@command.command("show", short_help="Show what a skill or command comes down to here.")
@click.argument("name")
@json_option
@debug_option
def show(*, name: str, as_json: bool) -> int:
    """Show what a skill or command comes down to here, and what it says."""
    found, trust = _found()
    skill = _named(found, name)
    if as_json:
        print_json({**_summary(skill, trust), "body": skill.body})
        return exits.OK
    click.echo(f"{clean(skill.name)}\n")
    print_facts([*_facts(skill, trust)])
    click.echo(f"\n{clean(skill.body)}")
    return exits.OK


@command.command("validate", short_help="Check skills and commands: files, or all.")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@json_option
@debug_option
def validate(*, paths: Sequence[Path], as_json: bool) -> int:
    """Check skills and commands: files and directories, or all that are found from here. Exit code 1 where
    one cannot be used."""
    from shoal.app.skills.skills import skills_in

    for path in paths:
        if not path.exists():
            raise click.UsageError(f"There is no file or directory {str(path)!r}.")
    found = skills_in(paths) if paths else _found()[0]
    both = (found.skills, found.commands)
    problems = sorted((problem for each in both for problem in each.problems), key=str)
    warnings = [text for each in both for text in each.warnings]
    shadowed = [
        f"{skill.source}: {skill.name} is not used: {by.source} comes first"
        for each in both
        for skill, by in each.shadowed
    ]
    counts = [len(each.all()) for each in both]
    if as_json:
        told = {"skills": counts[0], "commands": counts[1], "problems": [_problem(each) for each in problems]}
        print_json({**told, "warnings": warnings, "shadowed": shadowed})
    else:
        for line in (*map(str, problems), *(f"{text} (warning)" for text in warnings), *shadowed):
            click.echo(clean(line))
        words = zip(
            (*counts, len(problems), len(warnings)), ("skill", "command", "problem", "warning"), strict=True
        )
        click.echo(", ".join(many(number, word) for number, word in words) + ".")
    return exits.ERROR if problems else exits.OK


def _found() -> tuple[Skills, SkillTrust]:
    from shoal.app.settings.settings import home_directory
    from shoal.app.skills.skills import skills_for
    from shoal.app.skills.trust import SkillTrust

    cwd, home = Path.cwd().resolve(), home_directory()
    return skills_for(cwd=cwd, home=home), SkillTrust(home, cwd)


def _every(found: Skills) -> tuple[Skill, ...]:
    return (*found.skills.all(), *found.commands.all())


def _named(found: Skills, name: str) -> Skill:
    from shoal.core.definitions import Problem
    from shoal.core.errors import BadDefinition, UnknownSkill

    name = name.removeprefix("/")
    skill = found.skills.get(name) or found.commands.get(name)
    if isinstance(skill, Problem):
        raise BadDefinition(skill)
    if skill is None:
        try:
            return found.typed(name)
        except UnknownSkill as error:
            if error.known:
                raise click.UsageError(str(error)) from error
            told = f"There is no skill or command {name!r}, nor any other here. See: shoal skills ls"
            raise click.UsageError(told) from error
    return skill


def _for(skill: Skill) -> str:
    if skill.kind == "command" or not skill.for_model:
        return "you"
    return "both" if skill.for_person else "agents"


def _summary(skill: Skill, trust: SkillTrust) -> dict[str, Any]:
    return {
        "name": skill.name,
        "kind": skill.kind,
        "description": skill.description,
        "source": {"kind": skill.source.kind, "path": str(skill.source.path)},
        "allowed_tools": skill.allowed_tools,
        "trust": trust.of(skill),
        "context": "fork" if skill.forks else "inline",
        "agent": skill.agent,
        "model": skill.model,
        "argument_hint": skill.argument_hint,
        "for_model": skill.kind == "skill" and skill.for_model,
        "for_person": skill.for_person,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": dict(skill.metadata),
    }


def _facts(skill: Skill, trust: SkillTrust) -> Iterator[tuple[str, str]]:
    yield "description", skill.description
    yield "source", f"{skill.source.kind}, {skill.source}"
    yield "called by", {"you": "you", "agents": "agents", "both": "you and agents"}[_for(skill)]
    if skill.allowed_tools:
        state = "" if trust.of(skill) == "trusted" else "  (not trusted: see `shoal trust --show`)"
        yield "allowed-tools", ", ".join(skill.allowed_tools) + state
    if skill.forks:
        yield "context", f"fork, as {skill.agent or 'general-purpose'}"
    for key, value in (("model", skill.model), ("argument-hint", skill.argument_hint)):
        if value:
            yield key, value
    for key, value in (("license", skill.license), ("compatibility", skill.compatibility)):
        if value:
            yield key, value
    for key, value in skill.metadata.items():
        yield f"metadata.{key}", value


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "path": None if problem.source.path is None else str(problem.source.path),
        "line": problem.line,
        "field": problem.field,
        "what": problem.what,
        "name": problem.name,
    }
