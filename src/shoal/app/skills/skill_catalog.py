"""Catalog of skills and commands, merged from all sources and refreshed on every lookup."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from shoal.app.definitions.agent_files import (
    DefinitionFileCache,
    describe_replaced_definition_bytes,
    list_unused_definition_parts,
)
from shoal.app.definitions.plugin_set import PluginSet
from shoal.app.definitions.precedence_index import DefinitionPrecedenceIndex
from shoal.app.settings.project_directories import exclude_directory, iter_project_directories
from shoal.app.skills.claude_commands import explain_claude_command
from shoal.app.skills.skill_files import (
    SKILL_FILE_NAMES,
    create_skill_cache,
    create_slash_command_cache,
    read_skill_file,
    read_slash_command_file,
)
from shoal.app.skills.skill_policy import SkillPolicy
from shoal.core.agents.agent_definitions import DefinitionProblem
from shoal.core.errors import InvalidAgentDefinition, UnknownSkill
from shoal.core.extensions.skills import Skill, is_full_or_unprefixed_skill_name
from shoal.wire.skill_codec import ParsedSkill


class SkillCatalog:
    """Skills, or commands, from several sources, highest precedence first."""

    def __init__(
        self,
        noun: str,
        sources: Sequence[DefinitionFileCache[ParsedSkill]],
        policy: SkillPolicy = SkillPolicy(),  # noqa: B008 - frozen
    ) -> None:
        self._noun = noun
        self._policy = policy
        self._sources = list(sources)
        self._indexed: DefinitionPrecedenceIndex[Skill] | None = None
        self._only_names: frozenset[str] | None = None

    def restrict_to_names(self, names: Sequence[str]) -> None:
        """Leave only the skills with these names, with or without the prefix of their plug-in."""
        self._only_names = frozenset(names)
        self._indexed = None

    def _is_included(self, name: str) -> bool:
        return self._only_names is None or any(
            is_full_or_unprefixed_skill_name(only, name) for only in self._only_names
        )

    def add_source(self, source: DefinitionFileCache[ParsedSkill]) -> None:
        """Add a source with lower precedence than all others."""
        self._sources.append(source)
        self._indexed = None

    def get_skill_or_problem(self, name: str) -> Skill | DefinitionProblem | None:
        """Return the skill or its problem; None if there is none or the name is ambiguous."""
        by_name = self._refresh_index().by_name
        if name in by_name:
            return by_name[name]
        matches = [skill for full, skill in by_name.items() if is_full_or_unprefixed_skill_name(name, full)]
        return matches[0] if len(matches) == 1 else None

    def all(self) -> tuple[Skill, ...]:
        """Return the usable skills; the same object while nothing changes."""
        return self._refresh_index().usable

    @property
    def problems(self) -> tuple[DefinitionProblem, ...]:
        return tuple(self._refresh_index().problems)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._refresh_index().warnings)

    @property
    def unused_parts(self) -> tuple[str, ...]:
        """Warnings about parts of usable files that have no effect."""
        return list_unused_definition_parts(each for source in self._sources for each in source.results)

    def describe_replaced_bytes(self) -> tuple[str, ...]:
        """Return a sentence about files that are not UTF-8 text, if there are any."""
        results = (each for source in self._sources for each in source.results)
        return describe_replaced_definition_bytes(self._noun, results)

    @property
    def shadowed(self) -> tuple[tuple[Skill, Skill | DefinitionProblem], ...]:
        return tuple(self._refresh_index().shadowed)

    def _refresh_index(self) -> DefinitionPrecedenceIndex[Skill]:
        changed = [source.refresh() for source in self._sources]
        if self._indexed is None or any(changed):
            self._indexed = DefinitionPrecedenceIndex(self._noun)
            seen: set[Path] = set()
            for source in self._sources:
                parsed = [each for each in source.results if isinstance(each, ParsedSkill)]
                unique = [
                    (skill, each.warnings)
                    for each in parsed
                    if not _is_duplicate_skill_file(each.skill, seen)
                    and self._is_included(each.skill.name)
                    and (skill := self._policy.apply_to_skill(each.skill)) is not None
                ]
                self._indexed.add_source(
                    unique, (each for each in source.results if isinstance(each, DefinitionProblem))
                )
        return self._indexed


class SkillAndCommandLibrary:
    """Skills and commands of a session."""

    def __init__(
        self,
        skills: SkillCatalog,
        commands: SkillCatalog,
        policy: SkillPolicy = SkillPolicy(),  # noqa: B008 - frozen
    ) -> None:
        self.skills = skills
        self.commands = commands
        self.policy = policy
        self.plugin_data_directories: dict[Path, Path] = {}
        """Directory in which each plug-in may keep files, by the plug-in's own directory."""
        self._only_names: frozenset[str] | None = None
        self._joined: tuple[tuple[Skill, ...], tuple[Skill, ...], tuple[Skill, ...]] | None = None

    def add_plugins(self, plugins: PluginSet) -> None:
        """Add plug-ins with their skills, commands and directories."""
        self.plugin_data_directories |= {plugin.root: plugin.data for plugin in plugins.all}
        for namespace, directory in plugins.list_skill_dirs():
            self.add_plugin_skills(namespace, skills=directory)
        for namespace, directory in plugins.list_command_dirs():
            self.add_plugin_skills(namespace, commands=directory)

    def add_plugin_skills(
        self, namespace: str, *, skills: Path | None = None, commands: Path | None = None
    ) -> None:
        """Add the skills and commands of a plug-in, named `namespace:name`."""
        if skills is not None:
            self.skills.add_source(create_skill_cache(skills, "plugin", namespace))
        if commands is not None:
            self.commands.add_source(create_slash_command_cache(commands, "plugin", namespace))

    def restrict_to_names(self, names: Sequence[str]) -> None:
        """Leave only the skills with these names, and offer no other commands to agents."""
        self.skills.restrict_to_names(names)
        self._only_names, self._joined = frozenset(names), None

    def list_skills_and_commands(self) -> tuple[Skill, ...]:
        """Return what agents can use; the same object while nothing changes.

        A skill precedes a command of the same name.
        """
        skills, commands = self.skills.all(), self.commands.all()
        if self._joined is None or self._joined[0] is not skills or self._joined[1] is not commands:
            names = {skill.name for skill in skills}
            added = (each for each in commands if each.name not in names and self._is_included(each.name))
            self._joined = skills, commands, (*skills, *added)
        return self._joined[2]

    def _is_included(self, name: str) -> bool:
        only = self._only_names
        return only is None or any(is_full_or_unprefixed_skill_name(each, name) for each in only)

    def list_skills_for_model(self) -> tuple[Skill, ...]:
        return tuple(skill for skill in self.list_skills_and_commands() if skill.for_model)

    def find_skill(self, name: str, *, for_model: bool = False) -> Skill:
        """Find a skill or a command for an agent by its name, or by the part after a colon.

        Raises `UnknownSkill`, or `InvalidAgentDefinition` if the file with that name is unusable. The error
        for a model names only skills that models can use.
        """
        found = self.skills.get_skill_or_problem(name)
        if found is None:
            found = self.commands.get_skill_or_problem(name)
            if isinstance(found, Skill) and not self._is_included(found.name):
                found = None
        match found:
            case Skill():
                return found
            case DefinitionProblem():
                raise InvalidAgentDefinition(found)
        skills = self.list_skills_and_commands()
        available = [skill.name for skill in skills if skill.for_model or not for_model]
        same_name = [each for each in available if is_full_or_unprefixed_skill_name(name, each)]
        close = same_name or get_close_matches(name, available, n=2, cutoff=0.6)
        raise UnknownSkill(name, available=available, similar=close, noun="skill")

    def list_skills_for_user(self) -> tuple[Skill, ...]:
        """Return all that can be typed, by name; a skill precedes a command of the same name."""
        by_name = {skill.name: skill for skill in self.commands.all() if skill.for_person}
        by_name |= {skill.name: skill for skill in self.skills.all() if skill.for_person}
        return tuple(sorted(by_name.values(), key=lambda skill: skill.name))

    def find_typed_skill(self, name: str) -> Skill:
        """Return what a typed `/name` means. Raises `UnknownSkill` and `InvalidAgentDefinition`."""
        by_name = {skill.name: skill for skill in self.list_skills_for_user()}
        if name in by_name:
            return by_name[name]
        candidates = [
            each
            for each in (self.skills.get_skill_or_problem(name), self.commands.get_skill_or_problem(name))
            if each is not None
        ]
        for candidate in candidates:
            if isinstance(candidate, DefinitionProblem):
                raise InvalidAgentDefinition(candidate)
            if candidate.for_person:
                return candidate
        same_name = [each for each in by_name if is_full_or_unprefixed_skill_name(name, each)]
        close = same_name or get_close_matches(name, by_name, n=2, cutoff=0.6)
        slashed = [[f"/{each}" for each in names] for names in (by_name, close)]
        raise UnknownSkill(
            f"/{name}",
            available=slashed[0],
            similar=slashed[1],
            noun="command",
            advice="" if same_name else explain_claude_command(name),
        )

    def describe_skill_file_problems(self) -> tuple[str, ...]:
        """Return sentences about unusable and damaged skill files for the user, if there are any."""
        found = (*self.skills.problems, *self.commands.problems)
        others = (
            *self.skills.describe_replaced_bytes(),
            *self.commands.describe_replaced_bytes(),
            *self.policy.problems,
        )
        if not found:
            return others
        files = "One skill or command file" if len(found) == 1 else f"{len(found)} skill or command files"
        problem = f"{files} cannot be used ({found[0]}). Run `shoal skills validate` for details."
        return (problem, *others)


def load_skills(
    *,
    cwd: Path,
    home: Path,
    policy: SkillPolicy = SkillPolicy(),  # noqa: B008 - frozen
    sources: Sequence[str] | None = None,
) -> SkillAndCommandLibrary:
    """Load the skills of the project, the nearest first, then the user's own.

    `sources` limits them to `project` or `user`; None means both.
    """
    sources = ("project", "user") if sources is None else sources
    user_skills, user_commands = home / "skills", home / "commands"
    directories = tuple(iter_project_directories(cwd)) if "project" in sources else ()
    skill_directories = [
        directory / name / "skills" for directory in directories for name in (".claude", ".agents")
    ]
    command_directories = [directory / ".claude" / "commands" for directory in directories]
    return SkillAndCommandLibrary(
        SkillCatalog(
            "skill",
            [
                *(
                    create_skill_cache(path, "project")
                    for path in exclude_directory(user_skills, skill_directories)
                ),
                *([create_skill_cache(user_skills, "user")] if "user" in sources else ()),
            ],
            policy,
        ),
        SkillCatalog(
            "command",
            [
                *(
                    create_slash_command_cache(path, "project")
                    for path in exclude_directory(user_commands, command_directories)
                ),
                *([create_slash_command_cache(user_commands, "user")] if "user" in sources else ()),
            ],
            policy,
        ),
        policy,
    )


def load_skills_from_paths(
    paths: Sequence[Path],
    policy: SkillPolicy = SkillPolicy(),  # noqa: B008 - frozen
) -> SkillAndCommandLibrary:
    """Load skills from paths only: a skill, its directory, a directory of skills, or a command file."""
    skill_caches: list[DefinitionFileCache[ParsedSkill]] = []
    command_caches: list[DefinitionFileCache[ParsedSkill]] = []
    for path in paths:
        if path.is_dir() and not any((path / name).exists() for name in SKILL_FILE_NAMES):
            skill_caches.append(create_skill_cache(path, "project"))
        elif path.is_dir() or path.name in SKILL_FILE_NAMES:
            directory = path if path.is_dir() else path.parent
            skill_caches.append(_create_named_skill_cache(directory, SKILL_FILE_NAMES, skill=True))
        else:
            command_caches.append(_create_named_skill_cache(path.parent, (path.name,), skill=False))
    return SkillAndCommandLibrary(
        SkillCatalog("skill", skill_caches, policy), SkillCatalog("command", command_caches, policy), policy
    )


def _create_named_skill_cache(
    directory: Path, names: Sequence[str], *, skill: bool
) -> DefinitionFileCache[ParsedSkill]:
    def parse_skill_or_command(path: Path) -> ParsedSkill | DefinitionProblem:
        return read_skill_file(path, "project") if skill else read_slash_command_file(path, "project")

    return DefinitionFileCache(
        directory, "project", parse_skill_or_command, is_wanted=names.__contains__, max_depth=0
    )


def _is_duplicate_skill_file(skill: Skill, seen: set[Path]) -> bool:
    """Return True if the file was seen before: a directory of skills is often a link to another."""
    assert skill.source.path is not None
    real_path = skill.source.path.resolve()
    if real_path in seen:
        return True
    seen.add(real_path)
    return False
