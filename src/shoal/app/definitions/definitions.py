"""Catalog of the agents that can be started, merged from all sources and refreshed on every lookup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.files import Folder, Found, read_file, ruled
from shoal.app.definitions.own_documents import documents_directory, index
from shoal.app.definitions.project_places import apart_from, project_places
from shoal.app.definitions.shelved import Shelved
from shoal.app.settings.settings import MANAGED
from shoal.core.definitions import Definition, Problem, Source
from shoal.core.errors import BadDefinition, UnknownAgent
from shoal.wire.definitions import Parsed, read_given

_BUILT_IN = Path(__file__).with_name("agents")
_ALSO = {"claude-code-guide": "shoal-guide"}
"""Alternative names of agents, used if no agent has that name itself."""


class Shadowed(Struct, frozen=True, kw_only=True):
    """Definition that is not used because a stronger source has one of the same name."""

    definition: Definition
    by: Definition | Problem


class Shelf(Protocol):
    """One source of agent definitions."""

    def look(self) -> bool: ...
    @property
    def found(self) -> tuple[Found, ...]: ...


class Given(Struct, frozen=True):
    """Definitions given with `--agents`, which do not change."""

    found: tuple[Found, ...]

    def look(self) -> bool:
        return False


class Definitions:
    """Definitions from several sources, the strongest first. Each lookup reflects the current files."""

    def __init__(self, shelves: Sequence[Shelf]) -> None:
        self._shelves = tuple(shelves)
        self._known: Shelved[Definition] | None = None

    def find(self, name: str) -> Definition:
        """Return a definition. Raises `UnknownAgentType`, or `InvalidAgentDefinition` for a bad file."""
        standing = self._index().standing
        found = standing.get(name) or standing.get(_ALSO.get(name, name))
        match found:
            case Definition():
                return found
            case Problem():
                raise BadDefinition(found)
        known = [definition.name for definition in self.all()]
        raise UnknownAgent(name, known=known, close=_close(name, known))

    def all(self) -> tuple[Definition, ...]:
        """Return the usable definitions, the strongest first; the same object while nothing changes."""
        self._index()
        return self.seen()

    def seen(self) -> tuple[Definition, ...]:
        """Return the definitions of the last refresh, without looking at the files again."""
        return (self._known or self._index()).usable

    @property
    def shadowed(self) -> tuple[Shadowed, ...]:
        return tuple(Shadowed(definition=each, by=by) for each, by in self._index().shadowed)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._index().problems)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._index().warnings)

    def unusable(self) -> tuple[str, ...]:
        """Return a sentence about unusable agent files for the user, if there are any."""
        found = self.problems
        if not found:
            return ()
        files = "One agent's file" if len(found) == 1 else f"{len(found)} files of agents"
        return (f"{files} cannot be used ({found[0]}). See `shoal agents validate`.",)

    def _index(self) -> Shelved[Definition]:
        changed = [shelf.look() for shelf in self._shelves]
        if self._known is None or any(changed):
            self._known = Shelved("agent")
            for shelf in self._shelves:
                good = [each for each in shelf.found if isinstance(each, Parsed)]
                bad = [each for each in shelf.found if isinstance(each, Problem)]
                self._known.take([(each.definition, each.warnings) for each in good], bad)
        return self._known


def definitions_for(
    *,
    cwd: Path,
    home: Path,
    given: Sequence[Parsed] = (),
    managed: Sequence[Path] = MANAGED,
    plugins: Sequence[tuple[str, Path]] = (),
    complete: Callable[[str, Definition], Definition] | None = None,
    sources: Sequence[str] | None = None,
) -> Definitions:
    """Load the agents that a session in `cwd` can start.

    `managed` are the managed settings files; agents are also read from the directories next to them.
    `plugins` are pairs of namespace and directory, and `complete` fills in what a plug-in's agent cannot
    know. `sources` names the people whose files count; None means all.
    """
    user = home / "agents"
    shelves: list[Shelf] = [Folder(path, "managed") for path in _beside(managed)]
    shelves.append(Given(tuple(given)))
    if sources is None or "project" in sources:
        theirs = (place / ".claude" / "agents" for place in project_places(cwd))
        shelves += [Folder(path, "project") for path in apart_from(user, theirs)]
    if sources is None or "user" in sources:
        shelves.append(Folder(user, "user"))
    shelves += [Folder(path, "plugin", adapt=_within(space, complete)) for space, path in plugins]
    shelves.append(Folder(_BUILT_IN, "builtin", adapt=_completed, fixed=True))
    return Definitions(shelves)


def plugin_definitions(plugins: Sequence[tuple[str, Path]]) -> Definitions:
    """Load the agents of plug-ins only."""
    return Definitions([Folder(path, "plugin", adapt=_within(space, None)) for space, path in plugins])


def definitions_in(paths: Sequence[Path]) -> Definitions:
    """Load the agents in the given files and directories only."""
    return Definitions(
        [Folder(path, "project") if path.is_dir() else Given((read_file(path, "project"),)) for path in paths]
    )


def given_definitions(given: str | Mapping[str, Any] | None, cwd: Path) -> tuple[Parsed, ...]:
    """Parse `--agents`: JSON, the path of a JSON file, or a mapping. Raises `InvalidAgentDefinition`."""
    if given is None:
        return ()
    if not isinstance(given, str) or given.lstrip().startswith(("{", "[")):
        return tuple(map(ruled, read_given(given)))
    path = cwd / Path(given).expanduser()
    try:
        return tuple(map(ruled, read_given(path.read_text(encoding="utf-8-sig"), path=path)))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        what = f"{why}: {path}. JSON is expected, or the path of a file that holds it"
        raise BadDefinition(Problem(what=what, name="", source=Source(kind="flag"))) from error


def _beside(managed: Sequence[Path]) -> Iterator[Path]:
    for path in managed:
        yield path.parent / "agents"
        yield path.parent / ".claude" / "agents"


def _within(space: str, complete: Callable[[str, Definition], Definition] | None) -> Callable[[Found], Found]:
    def named(found: Found) -> Found:
        if isinstance(found, Problem):
            return replace(found, name=f"{space}:{found.name}")
        definition = replace(found.definition, name=f"{space}:{found.definition.name}")
        return replace(found, definition=definition if complete is None else complete(space, definition))

    return named


def _completed(found: Found) -> Found:
    """Fill in the paths of the bundled docs, which depend on the installation."""
    if isinstance(found, Problem) or "{docs}" not in found.definition.prompt:
        return found
    prompt = found.definition.prompt.replace("{docs}", str(documents_directory()))
    prompt = prompt.replace("{index}", str(index()))
    return replace(found, definition=replace(found.definition, prompt=prompt))


def _close(name: str, known: Sequence[str]) -> list[str]:
    folded = name.casefold()
    same = [each for each in known if folded in (each.casefold(), each.casefold().rpartition(":")[2])]
    return same or get_close_matches(name, known, n=2, cutoff=0.6)
