"""Catalog of team templates: the project's, the user's and the built-in ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.definitions import Definitions
from shoal.app.definitions.files import LARGEST
from shoal.app.definitions.project_places import apart_from, project_places
from shoal.core.decisions import Mode
from shoal.core.definitions import SourceKind
from shoal.core.errors import BadDefinition, BadTemplate, SettingsError, UnknownAgent
from shoal.core.templates import Flaw, Origin, Template
from shoal.policy.authority import is_wider
from shoal.wire.templates import read_template

SHIPPED = Path(__file__).with_name("shipped")
SUFFIXES = (".md", ".toml")


class Found(Struct, frozen=True, kw_only=True):
    """Template by name, or the flaw of its file."""

    name: str
    origin: Origin
    template: Template | None = None
    flaw: Flaw | None = None
    hidden_by: Origin | None = None
    """Origin of a stronger template with the same name."""


class Templates:
    """Templates, read once; the strongest source first."""

    def __init__(self, found: Sequence[Found]) -> None:
        self.all = tuple(found)

    @property
    def standing(self) -> tuple[Found, ...]:
        return tuple(each for each in self.all if each.hidden_by is None)

    def find(self, name: str) -> Template:
        """Return the template. Raises `SettingsError` for an unknown name, and `InvalidTeamTemplate`."""
        found = next((each for each in self.standing if each.name == name), None)
        if found is None:
            known = [each.name for each in self.standing]
            near = get_close_matches(name, known, n=1)
            meant = f" Is {near[0]} meant?" if near else ""
            raise SettingsError(
                f"There is no team template {name!r}.{meant} There are: {', '.join(known)}. "
                f"Make one with: shoal team template new NAME"
            )
        if found.template is None:
            assert found.flaw is not None
            raise BadTemplate(found.flaw)
        return found.template


def templates_for(*, cwd: Path, home: Path) -> Templates:
    """Load templates from `cwd` up to the repository root, then from the home, then the built-in ones."""
    own = home / "teams"
    theirs = (place / ".claude" / "teams" for place in project_places(cwd))
    places: list[tuple[Path, SourceKind]] = [(path, "project") for path in apart_from(own, theirs)]
    places += [(own, "user"), (SHIPPED, "builtin")]
    strongest: dict[str, Origin] = {}
    found: list[Found] = []
    for directory, kind in places:
        for each in _found_in(directory, kind):
            first = strongest.setdefault(each.name, each.origin)
            found.append(replace(each, hidden_by=first if first is not each.origin else None))
    return Templates(found)


def read_file(path: Path, kind: SourceKind = "project") -> Found:
    origin = Origin(kind=kind, path=path)
    try:
        template = read_template(_text(path, origin), origin)
    except BadTemplate as bad:
        return Found(name=path.stem, origin=origin, flaw=bad.flaw)
    return Found(name=template.name, origin=origin, template=template)


def _found_in(directory: Path, kind: SourceKind) -> list[Found]:
    # In the home, this directory also holds the directories of running teams.
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES and path.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        origin = Origin(kind=kind, path=directory)
        flaw = Flaw(what=f"it cannot be read: {error.strerror}", origin=origin)
        return [Found(name=directory.name, origin=origin, flaw=flaw)]
    return [read_file(path, kind) for path in files]


def _text(path: Path, origin: Origin) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise BadTemplate(Flaw(what=f"it is larger than {LARGEST:,} bytes", origin=origin))
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        what = f"it cannot be read: {error.strerror}"
        raise BadTemplate(Flaw(what=what, origin=origin)) from error
    except UnicodeDecodeError as error:
        raise BadTemplate(Flaw(what="it is not UTF-8 text", origin=origin)) from error


class Standing(Struct, frozen=True, kw_only=True):
    """Limits that the user sets for the session that would lead the team."""

    mode: Mode
    max_usd: float | None
    max_tokens: int | None


def checked(template: Template, definitions: Definitions, allowed: Standing | None = None) -> Template:
    """Return the template if its agents exist and its limits hold. Raises `InvalidTeamTemplate`."""
    wrong = next(_unusable(template, definitions, allowed), None)
    if wrong is not None:
        raise BadTemplate(wrong)
    return template


def _unusable(template: Template, definitions: Definitions, allowed: Standing | None) -> Iterator[Flaw]:
    for number, role in enumerate(template.roles):
        if role.kind is None:
            continue
        try:
            definitions.find(role.kind)
        except (UnknownAgent, BadDefinition) as error:
            what = str(error).rstrip(".")
            yield Flaw(what=what, origin=template.origin, place=("roles", number, "type"))
    if allowed is not None and not template.origin.trusted:
        yield from _widening(template, allowed)


def _widening(template: Template, allowed: Standing) -> Iterator[Flaw]:
    """Yield what exceeds the limits: a project may come from anyone, so its templates only restrict."""
    instead = "put the template into your own home if you trust it, or start it with the flag yourself"
    for number, role in enumerate(template.roles):
        if role.mode is not None and is_wider(role.mode, allowed.mode):
            what = (
                f"a project's template cannot ask for {role.mode} where the session has {allowed.mode}; "
                f"take it out, {instead} (--permission-mode)"
            )
            yield Flaw(what=what, origin=template.origin, place=("roles", number, "mode"))
    for key, wished, limit, flag in (
        ("usd", template.budget_usd, allowed.max_usd, "--max-budget-usd"),
        ("tokens", template.budget_tokens, allowed.max_tokens, "--max-total-tokens"),
    ):
        if wished is not None and limit is not None and wished > limit:
            what = f"{wished:g} is more than the {limit:g} of your settings; lower it, {instead} ({flag})"
            yield Flaw(what=what, origin=template.origin, place=("budget", key))
