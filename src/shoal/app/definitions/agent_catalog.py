"""Catalog of the agents that can be started, merged from all sources and refreshed on every lookup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.agent_files import (
    AgentDefinitionFileCache,
    DefinitionResult,
    describe_replaced_definition_bytes,
    list_unused_definition_parts,
    read_agent_file,
    validate_agent_tool_rules,
)
from shoal.app.definitions.bundled_docs import find_bundled_docs_directory, find_bundled_docs_index
from shoal.app.definitions.precedence_index import DefinitionPrecedenceIndex
from shoal.app.settings.file_stamps import FileStamp, FileStampSet
from shoal.app.settings.project_directories import exclude_directory, iter_project_directories
from shoal.app.settings.settings_files import MANAGED_FILES
from shoal.core.agents.agent_definitions import AgentDefinition, DefinitionProblem, DefinitionSource
from shoal.core.errors import InvalidAgentDefinition, UnknownAgentType
from shoal.core.user_environment import UserEnvironment, get_user_environment
from shoal.wire.agent_definition_codec import ParsedAgentDefinition, parse_json_agent_definitions

_BUILTIN_DIRECTORY = Path(__file__).with_name("agents")
_NAME_ALIASES = {"claude-code-guide": "shoal-guide"}
"""Alternative names of agents, used if no agent has that name itself."""


class ShadowedAgentDefinition(Struct, frozen=True, kw_only=True):
    """Definition that is not used because another one with the same name takes precedence."""

    definition: AgentDefinition
    by: AgentDefinition | DefinitionProblem


class AgentCatalogSource(Protocol):
    """One source of agent definitions."""

    def refresh(self) -> bool: ...
    @property
    def results(self) -> tuple[DefinitionResult, ...]: ...
    @property
    def stamps(self) -> Mapping[str, FileStamp]: ...


class FixedAgentCatalogSource(Struct, frozen=True):
    """Definitions that do not change: those given with `--agents`, and those of the program."""

    results: tuple[DefinitionResult, ...]
    stamps: Mapping[str, FileStamp] = {}

    def refresh(self) -> bool:
        return False


class AgentCatalog:
    """Definitions from several sources, highest precedence first. Each lookup reflects the current files."""

    def __init__(self, sources: Sequence[AgentCatalogSource]) -> None:
        self._sources = tuple(sources)
        self._indexed: DefinitionPrecedenceIndex[AgentDefinition] | None = None
        self._stamps: FileStampSet | None = None
        """Stamps of all sources, which are checked at once."""
        self._program_definitions: dict[str, AgentDefinition] = {}

    def add_program_definition(self, definition: AgentDefinition) -> None:
        """Add a definition that only the program starts: it is found, but not listed for agents."""
        self._program_definitions[definition.name] = definition

    def find(self, name: str) -> AgentDefinition:
        """Return a definition. Raises `UnknownAgentType`, or `InvalidAgentDefinition` for a bad file."""
        match found := self._look_up(name):
            case AgentDefinition():
                return found
            case DefinitionProblem():
                raise InvalidAgentDefinition(found)
        available = [definition.name for definition in self.list_cached_definitions()]
        raise UnknownAgentType(name, available=available, similar=_find_similar_agent_names(name, available))

    def find_usable(self, name: str) -> AgentDefinition | None:
        """Return a definition; None if there is none with this name, or if its file cannot be used."""
        found = self._look_up(name)
        return found if isinstance(found, AgentDefinition) else None

    def _look_up(self, name: str) -> AgentDefinition | DefinitionProblem | None:
        by_name = self._refresh_index().by_name
        found = by_name.get(name) or by_name.get(_NAME_ALIASES.get(name, name))
        if found is None or found.source.kind != "managed":
            found = self._program_definitions.get(name) or found
        return found

    def resolve_agent_name(self, name: str) -> str | None:
        """Return the full name of a usable definition; None if there is none with this name."""
        by_name = self._refresh_index().by_name
        found = by_name.get(name) or by_name.get(_NAME_ALIASES.get(name, name))
        return found.name if isinstance(found, AgentDefinition) else None

    def all(self) -> tuple[AgentDefinition, ...]:
        """Return the usable definitions, highest precedence first; the same object while nothing changes."""
        self._refresh_index()
        return self.list_cached_definitions()

    def list_cached_definitions(self) -> tuple[AgentDefinition, ...]:
        """Return the definitions of the last refresh, without looking at the files again."""
        return (self._indexed or self._refresh_index()).usable

    @property
    def shadowed(self) -> tuple[ShadowedAgentDefinition, ...]:
        return tuple(
            ShadowedAgentDefinition(definition=each, by=by) for each, by in self._refresh_index().shadowed
        )

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
        return describe_replaced_definition_bytes("agent", results)

    def describe_agent_file_problems(self) -> tuple[str, ...]:
        """Return sentences about unusable and damaged agent files for the user, if there are any.

        A file without front matter, such as a README.md, is not meant to be an agent.
        """
        found = [problem for problem in self.problems if not problem.is_plain_text]
        replaced = self.describe_replaced_bytes()
        if not found:
            return replaced
        files = "One agent file" if len(found) == 1 else f"{len(found)} agent files"
        problem = f"{files} cannot be used ({found[0]}). Run `shoal agents validate` for details."
        return (problem, *replaced)

    def _refresh_index(self) -> DefinitionPrecedenceIndex[AgentDefinition]:
        if self._indexed is not None and self._stamps is not None and self._stamps.are_files_unchanged():
            return self._indexed
        changed = [source.refresh() for source in self._sources]
        self._stamps = self._merge_stamps()
        if self._indexed is None or any(changed):
            self._indexed = DefinitionPrecedenceIndex("agent")
            for source in self._sources:
                parsed = [each for each in source.results if isinstance(each, ParsedAgentDefinition)]
                problems = [each for each in source.results if isinstance(each, DefinitionProblem)]
                self._indexed.add_source([(each.definition, each.warnings) for each in parsed], problems)
        return self._indexed

    def _merge_stamps(self) -> FileStampSet | None:
        """Return the stamps of all sources; None if two of them saw different versions of a file."""
        merged: dict[str, FileStamp] = {}
        for source in self._sources:
            for path, stamp in source.stamps.items():
                if merged.setdefault(path, stamp) != stamp:
                    return None
        return FileStampSet(merged)


def load_agent_catalog(
    *,
    cwd: Path,
    home: Path,
    given: Sequence[ParsedAgentDefinition] = (),
    managed: Sequence[Path] = MANAGED_FILES,
    plugins: Sequence[tuple[str, Path]] = (),
    complete: Callable[[str, AgentDefinition], AgentDefinition] | None = None,
    sources: Sequence[str] | None = None,
) -> AgentCatalog:
    """Load the agents that a session in `cwd` can start.

    `managed` are the managed settings files; agents are also read from the directories next to them.
    `plugins` are pairs of namespace and directory, and `complete` fills in what a plug-in's agent cannot
    know. `sources` names the sources to load; None means all.
    """
    user_directory = home / "agents"
    catalog_sources: list[AgentCatalogSource] = [
        AgentDefinitionFileCache(path, "managed") for path in _iter_managed_agent_directories(managed)
    ]
    catalog_sources.append(FixedAgentCatalogSource(tuple(given)))
    if sources is None or "project" in sources:
        project_directories = (
            directory / ".claude" / "agents" for directory in iter_project_directories(cwd)
        )
        catalog_sources += [
            AgentDefinitionFileCache(path, "project")
            for path in exclude_directory(user_directory, project_directories)
        ]
    if sources is None or "user" in sources:
        catalog_sources.append(AgentDefinitionFileCache(user_directory, "user"))
    catalog_sources += [
        AgentDefinitionFileCache(path, "plugin", adapt=_make_agent_namespacer(namespace, complete))
        for namespace, path in plugins
    ]
    catalog_sources.append(_load_builtin_agents())
    return AgentCatalog(catalog_sources)


@cache
def _load_builtin_agents() -> AgentCatalogSource:
    """Load the agents of the program, which are the same for all its sessions."""
    files = AgentDefinitionFileCache(_BUILTIN_DIRECTORY, "builtin", adapt=_fill_bundled_docs_paths)
    files.refresh()
    return FixedAgentCatalogSource(files.results)


def load_plugin_agents(plugins: Sequence[tuple[str, Path]]) -> AgentCatalog:
    """Load the agents of plug-ins only."""
    return AgentCatalog(
        [
            AgentDefinitionFileCache(path, "plugin", adapt=_make_agent_namespacer(namespace, None))
            for namespace, path in plugins
        ]
    )


def load_agents_from_paths(paths: Sequence[Path]) -> AgentCatalog:
    """Load the agents in the given files and directories only."""
    return AgentCatalog(
        [
            AgentDefinitionFileCache(path, "project")
            if path.is_dir()
            else FixedAgentCatalogSource((read_agent_file(path, "project"),))
            for path in paths
        ]
    )


def parse_agents_option(
    given: str | Mapping[str, Any] | None, cwd: Path, user: UserEnvironment | None = None
) -> tuple[ParsedAgentDefinition, ...]:
    """Parse `--agents`: JSON, the path of a JSON file, or a mapping. Raises `InvalidAgentDefinition`.

    In a path, `~` is the home of `user`, by default that of the process.
    """
    if given is None:
        return ()
    if not isinstance(given, str) or given.lstrip().startswith(("{", "[")):
        return tuple(map(validate_agent_tool_rules, parse_json_agent_definitions(given)))
    path = cwd / (user or get_user_environment()).expand_home(given)
    try:
        return tuple(
            map(
                validate_agent_tool_rules,
                parse_json_agent_definitions(path.read_text(encoding="utf-8-sig"), path=path),
            )
        )
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        what = f"{reason}: {path}. Pass JSON, or the path of a JSON file"
        raise InvalidAgentDefinition(
            DefinitionProblem(what=what, name="", source=DefinitionSource(kind="flag"))
        ) from error


def _iter_managed_agent_directories(managed: Sequence[Path]) -> Iterator[Path]:
    for path in managed:
        yield path.parent / "agents"
        yield path.parent / ".claude" / "agents"


def _make_agent_namespacer(
    namespace: str, complete: Callable[[str, AgentDefinition], AgentDefinition] | None
) -> Callable[[DefinitionResult], DefinitionResult]:
    def add_plugin_namespace(found: DefinitionResult) -> DefinitionResult:
        if isinstance(found, DefinitionProblem):
            return replace(found, name=f"{namespace}:{found.name}")
        definition = replace(found.definition, name=f"{namespace}:{found.definition.name}")
        return replace(found, definition=definition if complete is None else complete(namespace, definition))

    return add_plugin_namespace


def _fill_bundled_docs_paths(found: DefinitionResult) -> DefinitionResult:
    """Fill in the paths of the bundled docs, which depend on the installation."""
    if isinstance(found, DefinitionProblem) or "{docs}" not in found.definition.prompt:
        return found
    prompt = found.definition.prompt.replace("{docs}", str(find_bundled_docs_directory()))
    prompt = prompt.replace("{index}", str(find_bundled_docs_index()))
    return replace(found, definition=replace(found.definition, prompt=prompt))


def _find_similar_agent_names(name: str, names: Sequence[str]) -> list[str]:
    lowered = name.casefold()
    equal_names = [each for each in names if lowered in (each.casefold(), each.casefold().rpartition(":")[2])]
    return equal_names or get_close_matches(name, names, n=2, cutoff=0.6)
