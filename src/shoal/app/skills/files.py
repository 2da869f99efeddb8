"""Skill and command files of one directory, cached like agent definitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from shoal.app.definitions.files import Files, text_in
from shoal.core.definitions import Problem, Source, SourceKind
from shoal.core.errors import BadDefinition, SettingsError
from shoal.policy.rules import parse_rule
from shoal.wire.skills import ParsedSkill, read_command, read_skill

Found: TypeAlias = ParsedSkill | Problem

NAMES = ("SKILL.md", "skill.md")


def skill_files(root: Path, kind: SourceKind, space: str = "") -> Files[ParsedSkill]:
    """Cache `root/*/SKILL.md`; `namespace` is the plug-in they belong to."""
    return Files(
        root,
        kind,
        lambda path: skill_in(path, kind, root=root, space=space),
        wanted=NAMES.__contains__,
        deepest=1,
    )


def command_files(root: Path, kind: SourceKind, space: str = "") -> Files[ParsedSkill]:
    """Cache `root/**/*.md`; subdirectories are part of the name."""
    return Files(root, kind, lambda path: command_in(path, kind, root=root, space=space))


def skill_in(path: Path, kind: SourceKind, *, root: Path | None = None, space: str = "") -> Found:
    directory = path.parent.name
    text = text_in(path, kind)
    if isinstance(text, Problem):
        return replace(text, name=_within(space, directory))
    if path.parent == root:
        what = "it stands in no directory of its own: put it into one that has the skill's name"
        return Problem(what=what, name=directory, source=Source(kind=kind, path=path))
    return _read(lambda source: read_skill(text, source, name=directory), path, kind, space)


def command_in(path: Path, kind: SourceKind, *, root: Path | None = None, space: str = "") -> Found:
    below = path.name if root is None else path.relative_to(root)
    name = ":".join(Path(below).with_suffix("").parts)
    text = text_in(path, kind)
    if isinstance(text, Problem):
        return replace(text, name=_within(space, name))
    return _read(lambda source: read_command(text, source, name=name), path, kind, space)


def _read(read: Callable[[Source], ParsedSkill], path: Path, kind: SourceKind, space: str) -> Found:
    try:
        parsed = _ruled(read(Source(kind=kind, path=path)))
    except BadDefinition as bad:
        return replace(bad.problem, name=_within(space, bad.problem.name))
    return replace(parsed, skill=replace(parsed.skill, name=_within(space, parsed.skill.name)))


def _ruled(parsed: ParsedSkill) -> ParsedSkill:
    """Return the skill if its `allowed-tools` are valid rules. Raises `InvalidAgentDefinition`."""
    skill = parsed.skill
    for entry in skill.allowed_tools:
        try:
            parse_rule(entry)
        except SettingsError as error:
            problem = Problem(
                what=str(error),
                name=skill.name,
                source=skill.source,
                line=skill.source.lines.get("allowed_tools"),
                field="allowed-tools",
            )
            raise BadDefinition(problem) from error
    return parsed


def _within(space: str, name: str) -> str:
    return f"{space}:{name}" if space else name
