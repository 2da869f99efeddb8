"""`shoal skills` commands: list, show and validate skills and commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.text_format import format_count_with_noun, strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import (
    CliTableCell,
    debug_option,
    json_option,
    print_json,
    print_name_value_lines,
    print_table,
)
from shoal.surfaces.terminal.text_styles import DIM

if TYPE_CHECKING:
    from shoal.app.skills.skill_catalog import SkillAndCommandLibrary
    from shoal.app.skills.skill_trust import SkillTrustDecisionStore
    from shoal.core.agents.agent_definitions import DefinitionProblem
    from shoal.core.extensions.skills import Skill


@click.group("skills")
def skill_commands() -> None:
    """List, show and check skills and commands. The project's skills and commands are in .claude/skills,
    .agents/skills and .claude/commands; your own are in `skills` and `commands` under Shoal's home."""


@skill_commands.command("ls")
@json_option
@debug_option
def list_skills(*, as_json: bool) -> int:
    """List the skills and commands that you can use here."""
    from shoal.surfaces.terminal.user_messages import print_user_message

    catalog, trust = _load_skills_and_trust()
    all_skills = _list_skills_and_commands(catalog)
    if as_json:
        print_json([_skill_to_dict(skill, trust) for skill in all_skills])
        return exit_codes.OK
    rows = [
        (
            CliTableCell(skill.name),
            CliTableCell(skill.kind),
            CliTableCell(_format_skill_audience(skill)),
            CliTableCell(skill.source.kind, DIM),
            CliTableCell(skill.description),
        )
        for skill in all_skills
    ]
    if rows:
        print_table(("NAME", "KIND", "FOR", "SOURCE", "DESCRIPTION"), rows)
    else:
        click.echo(
            "There are no skills or commands here. To add a skill, create .claude/skills/NAME/SKILL.md."
        )
    for problem in catalog.describe_skill_file_problems():
        print_user_message(problem)
    return exit_codes.OK


@skill_commands.command("show", short_help="Show the effective definition of a skill or command.")
@click.argument("name")
@json_option
@debug_option
def show_skill(*, name: str, as_json: bool) -> int:
    """Show the effective definition and the text of a skill or command."""
    catalog, trust = _load_skills_and_trust()
    skill = _find_skill_or_command(catalog, name)
    if as_json:
        print_json({**_skill_to_dict(skill, trust), "body": skill.body})
        return exit_codes.OK
    click.echo(f"{strip_terminal_codes(skill.name)}\n")
    print_name_value_lines([*_format_skill_facts(skill, trust)])
    click.echo(f"\n{strip_terminal_codes(skill.body)}")
    return exit_codes.OK


@skill_commands.command("validate", short_help="Check the given skill and command files, or all of them.")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@json_option
@debug_option
def validate_skills(*, paths: Sequence[Path], as_json: bool) -> int:
    """Check the given files and directories, or all skills and commands that are available here. The exit
    code is 1 if one cannot be used."""
    from shoal.app.skills.skill_catalog import load_skills_from_paths

    for path in paths:
        if not path.exists():
            raise click.UsageError(f"There is no file or directory {str(path)!r}.")
    catalog = load_skills_from_paths(paths) if paths else _load_skills_and_trust()[0]
    skill_sets = (catalog.skills, catalog.commands)
    problems = sorted((problem for each in skill_sets for problem in each.problems), key=str)
    warnings = [text for each in skill_sets for text in each.warnings]
    shadowed = [
        f"{skill.source}: {skill.name} is not used because {by.source} takes precedence"
        for each in skill_sets
        for skill, by in each.shadowed
    ]
    counts = [len(each.all()) for each in skill_sets]
    if as_json:
        summary = {
            "skills": counts[0],
            "commands": counts[1],
            "problems": [_skill_problem_to_dict(each) for each in problems],
        }
        print_json({**summary, "warnings": warnings, "shadowed": shadowed})
    else:
        for line in (*map(str, problems), *(f"{text} (warning)" for text in warnings), *shadowed):
            click.echo(strip_terminal_codes(line))
        counted_nouns = zip(
            (*counts, len(problems), len(warnings)), ("skill", "command", "problem", "warning"), strict=True
        )
        click.echo(", ".join(format_count_with_noun(number, word) for number, word in counted_nouns) + ".")
    return exit_codes.ERROR if problems else exit_codes.OK


def _load_skills_and_trust() -> tuple[SkillAndCommandLibrary, SkillTrustDecisionStore]:
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.skills.skill_catalog import load_skills
    from shoal.app.skills.skill_trust import SkillTrustDecisionStore

    cwd, home = Path.cwd().resolve(), find_process_shoal_home()
    return load_skills(cwd=cwd, home=home), SkillTrustDecisionStore(home, cwd)


def _list_skills_and_commands(skills: SkillAndCommandLibrary) -> tuple[Skill, ...]:
    return (*skills.skills.all(), *skills.commands.all())


def _find_skill_or_command(skills: SkillAndCommandLibrary, name: str) -> Skill:
    from shoal.core.agents.agent_definitions import DefinitionProblem
    from shoal.core.errors import InvalidAgentDefinition, UnknownSkill

    name = name.removeprefix("/")
    skill = skills.skills.get_skill_or_problem(name) or skills.commands.get_skill_or_problem(name)
    if isinstance(skill, DefinitionProblem):
        raise InvalidAgentDefinition(skill)
    if skill is None:
        try:
            return skills.find_typed_skill(name)
        except UnknownSkill as error:
            if error.available:
                raise click.UsageError(str(error)) from error
            message = f"There is no skill or command {name!r}. List the skills: shoal skills ls"
            raise click.UsageError(message) from error
    return skill


def _format_skill_audience(skill: Skill) -> str:
    if not skill.for_model:
        return "you"
    return "both" if skill.for_person else "agents"


def _skill_to_dict(skill: Skill, trust: SkillTrustDecisionStore) -> dict[str, Any]:
    return {
        "name": skill.name,
        "kind": skill.kind,
        "description": skill.description,
        "source": {"kind": skill.source.kind, "path": str(skill.source.path)},
        "allowed_tools": skill.allowed_tools,
        "trust": trust.read_skill_trust(skill),
        "context": "fork" if skill.execution.forks else "inline",
        "agent": skill.execution.agent,
        "model": skill.execution.model,
        "argument_hint": skill.argument_hint,
        "for_model": skill.for_model,
        "for_person": skill.for_person,
        "license": skill.information.license,
        "compatibility": skill.information.compatibility,
        "metadata": dict(skill.information.metadata),
    }


def _format_skill_facts(skill: Skill, trust: SkillTrustDecisionStore) -> Iterator[tuple[str, str]]:
    yield "description", skill.description
    yield "source", f"{skill.source.kind}, {skill.source}"
    yield (
        "called by",
        {"you": "you", "agents": "agents", "both": "you and agents"}[_format_skill_audience(skill)],
    )
    if skill.allowed_tools:
        state = (
            "" if trust.read_skill_trust(skill) == "trusted" else "  (not trusted: see `shoal trust --show`)"
        )
        yield "allowed-tools", ", ".join(skill.allowed_tools) + state
    if skill.execution.forks:
        yield "context", f"fork, using {skill.execution.agent or 'general-purpose'}"
    for key, value in (("model", skill.execution.model), ("argument-hint", skill.argument_hint)):
        if value:
            yield key, value
    for key, value in (
        ("license", skill.information.license),
        ("compatibility", skill.information.compatibility),
    ):
        if value:
            yield key, value
    for key, value in skill.information.metadata.items():
        yield f"metadata.{key}", value


def _skill_problem_to_dict(problem: DefinitionProblem) -> dict[str, Any]:
    return {
        "path": None if problem.source.path is None else str(problem.source.path),
        "line": problem.line,
        "field": problem.field,
        "what": problem.what,
        "name": problem.name,
    }
