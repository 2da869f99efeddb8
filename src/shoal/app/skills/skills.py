"""Catalog of skills and commands, merged from all sources and refreshed on every lookup."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from shoal.app.definitions.files import Files
from shoal.app.definitions.project_places import apart_from, project_places
from shoal.app.definitions.shelved import Shelved
from shoal.app.skills.files import NAMES, command_files, command_in, skill_files, skill_in
from shoal.core.definitions import Problem
from shoal.core.errors import BadDefinition, UnknownSkill
from shoal.core.skills import Skill, named_alike
from shoal.wire.skills import ParsedSkill


class Catalogue:
    """Skills, or commands, from several sources, the strongest first."""

    def __init__(self, what: str, sources: Sequence[Files[ParsedSkill]]) -> None:
        self._what = what
        self._sources = list(sources)
        self._known: Shelved[Skill] | None = None

    def add(self, source: Files[ParsedSkill]) -> None:
        """Add a source that is weaker than all others."""
        self._sources.append(source)
        self._known = None

    def find(self, name: str) -> Skill:
        """Find a skill by its name, or by the part after a colon.

        Raises `UnknownSkill`, or `InvalidAgentDefinition` if the file with that name is unusable.
        """
        match self.get(name):
            case Skill() as found:
                return found
            case Problem() as problem:
                raise BadDefinition(problem)
        known = [skill.name for skill in self.all()]
        alike = [each for each in known if named_alike(name, each)]
        close = alike or get_close_matches(name, known, n=2, cutoff=0.6)
        raise UnknownSkill(name, known=known, close=close, what=self._what)

    def get(self, name: str) -> Skill | Problem | None:
        """Return the skill or its problem; None if there is none or the name is ambiguous."""
        standing = self._index().standing
        if name in standing:
            return standing[name]
        meant = [found for full, found in standing.items() if named_alike(name, full)]
        return meant[0] if len(meant) == 1 else None

    def all(self) -> tuple[Skill, ...]:
        """Return the usable skills; the same object while nothing changes."""
        return self._index().usable

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._index().problems)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._index().warnings)

    @property
    def shadowed(self) -> tuple[tuple[Skill, Skill | Problem], ...]:
        return tuple(self._index().shadowed)

    def _index(self) -> Shelved[Skill]:
        changed = [source.look() for source in self._sources]
        if self._known is None or any(changed):
            self._known = Shelved(self._what)
            seen: set[Path] = set()
            for source in self._sources:
                good = [each for each in source.found if isinstance(each, ParsedSkill)]
                fresh = [(each.skill, each.warnings) for each in good if not _is_known(each.skill, seen)]
                self._known.take(fresh, (each for each in source.found if isinstance(each, Problem)))
        return self._known


class Skills:
    """Skills and commands of a session."""

    def __init__(self, skills: Catalogue, commands: Catalogue) -> None:
        self.skills = skills
        self.commands = commands

    def add_plugin(self, space: str, *, skills: Path | None = None, commands: Path | None = None) -> None:
        """Add a plug-in; its skills and commands are named `namespace:name`."""
        if skills is not None:
            self.skills.add(skill_files(skills, "plugin", space))
        if commands is not None:
            self.commands.add(command_files(commands, "plugin", space))

    def for_model(self) -> tuple[Skill, ...]:
        return tuple(skill for skill in self.skills.all() if skill.for_model)

    def for_person(self) -> tuple[Skill, ...]:
        """Return all that can be typed, by name; a skill precedes a command of the same name."""
        typed = {skill.name: skill for skill in self.commands.all()}
        typed |= {skill.name: skill for skill in self.skills.all() if skill.for_person}
        return tuple(sorted(typed.values(), key=lambda skill: skill.name))

    def typed(self, name: str) -> Skill:
        """Return what a typed `/name` means. Raises `UnknownSkill` and `InvalidAgentDefinition`."""
        known = {skill.name: skill for skill in self.for_person()}
        if name in known:
            return known[name]
        found = [each for each in (self.skills.get(name), self.commands.get(name)) if each is not None]
        for each in found:
            if isinstance(each, Problem):
                raise BadDefinition(each)
            if each.kind == "command" or each.for_person:
                return each
        alike = [each for each in known if named_alike(name, each)]
        close = alike or get_close_matches(name, known, n=2, cutoff=0.6)
        slashed = [[f"/{each}" for each in names] for names in (known, close)]
        raise UnknownSkill(f"/{name}", known=slashed[0], close=slashed[1], what="command")

    def unusable(self) -> tuple[str, ...]:
        """Return a sentence about unusable skill files for the user, if there are any."""
        found = (*self.skills.problems, *self.commands.problems)
        if not found:
            return ()
        files = "One file of a skill or command" if len(found) == 1 else f"{len(found)} files of skills"
        return (f"{files} cannot be used ({found[0]}). See `shoal skills validate`.",)


def skills_for(*, cwd: Path, home: Path) -> Skills:
    """Load the skills of the project, the nearest first, then the user's own."""
    skills, commands = home / "skills", home / "commands"
    places = tuple(project_places(cwd))
    of_skills = [place / name / "skills" for place in places for name in (".claude", ".agents")]
    of_commands = [place / ".claude" / "commands" for place in places]
    return Skills(
        Catalogue(
            "skill",
            [
                *(skill_files(path, "project") for path in apart_from(skills, of_skills)),
                skill_files(skills, "user"),
            ],
        ),
        Catalogue(
            "command",
            [
                *(command_files(path, "project") for path in apart_from(commands, of_commands)),
                command_files(commands, "user"),
            ],
        ),
    )


def skills_in(paths: Sequence[Path]) -> Skills:
    """Load skills from paths only: a skill, its directory, a directory of skills, or a command file."""
    sources: list[Files[ParsedSkill]] = []
    others: list[Files[ParsedSkill]] = []
    for path in paths:
        if path.is_dir() and not any((path / name).exists() for name in NAMES):
            sources.append(skill_files(path, "project"))
        elif path.is_dir() or path.name in NAMES:
            directory = path if path.is_dir() else path.parent
            sources.append(_alone(directory, NAMES, skill=True))
        else:
            others.append(_alone(path.parent, (path.name,), skill=False))
    return Skills(Catalogue("skill", sources), Catalogue("command", others))


def _alone(directory: Path, names: Sequence[str], *, skill: bool) -> Files[ParsedSkill]:
    def read(path: Path) -> ParsedSkill | Problem:
        return skill_in(path, "project") if skill else command_in(path, "project")

    return Files(directory, "project", read, wanted=names.__contains__, deepest=0)


def _is_known(skill: Skill, seen: set[Path]) -> bool:
    """Return True if the file was seen before: a directory of skills is often a link to another."""
    assert skill.source.path is not None
    real = skill.source.path.resolve()
    if real in seen:
        return True
    seen.add(real)
    return False
