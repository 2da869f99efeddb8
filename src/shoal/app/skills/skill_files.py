"""Skill and command files of one directory, cached like agent definitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from shoal.app.definitions.agent_files import DefinitionFileCache, DefinitionText, read_definition_text
from shoal.core.agents.agent_definitions import DefinitionProblem, DefinitionSource, DefinitionSourceKind
from shoal.core.errors import InvalidAgentDefinition, SettingsError
from shoal.policy.permission_rules import parse_permission_rule
from shoal.wire.skill_codec import ParsedSkill, parse_skill, parse_slash_command_file

SkillResult: TypeAlias = ParsedSkill | DefinitionProblem

SKILL_FILE_NAMES = ("SKILL.md", "skill.md")


def create_skill_cache(
    root: Path, kind: DefinitionSourceKind, namespace: str = ""
) -> DefinitionFileCache[ParsedSkill]:
    """Cache `root/*/SKILL.md`; `namespace` is the plug-in they belong to."""
    return DefinitionFileCache(
        root,
        kind,
        lambda path: read_skill_file(path, kind, root=root, namespace=namespace),
        is_wanted=SKILL_FILE_NAMES.__contains__,
        max_depth=1,
    )


def create_slash_command_cache(
    root: Path, kind: DefinitionSourceKind, namespace: str = ""
) -> DefinitionFileCache[ParsedSkill]:
    """Cache `root/**/*.md`; subdirectories are part of the name."""
    return DefinitionFileCache(
        root, kind, lambda path: read_slash_command_file(path, kind, root=root, namespace=namespace)
    )


def read_skill_file(
    path: Path, kind: DefinitionSourceKind, *, root: Path | None = None, namespace: str = ""
) -> SkillResult:
    directory = path.parent.name
    file = read_definition_text(path, kind)
    if isinstance(file, DefinitionProblem):
        return replace(file, name=_add_plugin_namespace(namespace, directory))
    if path.parent == root:
        what = "it is not in its own directory; move it to a directory with the skill's name"
        return DefinitionProblem(what=what, name=directory, source=DefinitionSource(kind=kind, path=path))
    return _parse_skill_file(
        lambda source: _parse_decoded(parse_skill, file, source, directory), path, kind, namespace
    )


def read_slash_command_file(
    path: Path, kind: DefinitionSourceKind, *, root: Path | None = None, namespace: str = ""
) -> SkillResult:
    relative = path.name if root is None else path.relative_to(root)
    name = ":".join(Path(relative).with_suffix("").parts)
    file = read_definition_text(path, kind)
    if isinstance(file, DefinitionProblem):
        return replace(file, name=_add_plugin_namespace(namespace, name))
    return _parse_skill_file(
        lambda source: _parse_decoded(parse_slash_command_file, file, source, name), path, kind, namespace
    )


def _parse_decoded(
    parse: Callable[..., ParsedSkill], file: DefinitionText, source: DefinitionSource, name: str
) -> ParsedSkill:
    parsed = parse(file.text, source, name=name)
    return replace(parsed, has_replaced_bytes=True) if file.has_replaced_bytes else parsed


def _parse_skill_file(
    parse: Callable[[DefinitionSource], ParsedSkill], path: Path, kind: DefinitionSourceKind, namespace: str
) -> SkillResult:
    try:
        parsed = _validate_allowed_tools(parse(DefinitionSource(kind=kind, path=path)))
    except InvalidAgentDefinition as error:
        return replace(error.problem, name=_add_plugin_namespace(namespace, error.problem.name))
    return replace(
        parsed, skill=replace(parsed.skill, name=_add_plugin_namespace(namespace, parsed.skill.name))
    )


def _validate_allowed_tools(parsed: ParsedSkill) -> ParsedSkill:
    """Return the skill if its `allowed-tools` are valid rules. Raises `InvalidAgentDefinition`."""
    skill = parsed.skill
    for entry in (*skill.allowed_tools, *skill.denied_tools):
        try:
            parse_permission_rule(entry)
        except SettingsError as error:
            problem = DefinitionProblem(
                what=str(error),
                name=skill.name,
                source=skill.source,
                line=skill.source.lines.get(
                    "denied_tools" if entry in skill.denied_tools else "allowed_tools"
                ),
                field="disallowed-tools" if entry in skill.denied_tools else "allowed-tools",
            )
            raise InvalidAgentDefinition(problem) from error
    return parsed


def _add_plugin_namespace(namespace: str, name: str) -> str:
    return f"{namespace}:{name}" if namespace else name
