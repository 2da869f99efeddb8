"""Catalog of team templates: the project's, the user's and the built-in ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.agent_catalog import AgentCatalog
from shoal.app.definitions.agent_files import MAX_FILE_BYTES
from shoal.app.settings.project_directories import exclude_directory, iter_project_directories
from shoal.core.agents.agent_definitions import DefinitionSourceKind
from shoal.core.errors import InvalidAgentDefinition, InvalidTeamTemplate, SettingsError, UnknownAgentType
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.teams.team_templates import TeamTemplate, TeamTemplateProblem, TeamTemplateSource
from shoal.policy.mode_inheritance import is_wider_permission_mode
from shoal.wire.team_template_codec import parse_team_template

SHIPPED_DIRECTORY = Path(__file__).with_name("shipped")
SUFFIXES = (".md", ".toml")


class TeamTemplateCatalogEntry(Struct, frozen=True, kw_only=True):
    """Template by name, or the problem of its file."""

    name: str
    origin: TeamTemplateSource
    template: TeamTemplate | None = None
    problem: TeamTemplateProblem | None = None
    hidden_by: TeamTemplateSource | None = None
    """Origin of a template with the same name that takes precedence."""


class TeamTemplateCatalog:
    """Templates, read once; the source with the highest precedence first."""

    def __init__(self, found: Sequence[TeamTemplateCatalogEntry]) -> None:
        self.all = tuple(found)

    @property
    def effective(self) -> tuple[TeamTemplateCatalogEntry, ...]:
        return tuple(each for each in self.all if each.hidden_by is None)

    def find(self, name: str) -> TeamTemplate:
        """Return the template. Raises `SettingsError` for an unknown name, and `InvalidTeamTemplate`."""
        found = next((each for each in self.effective if each.name == name), None)
        if found is None:
            names = [each.name for each in self.effective]
            close_names = get_close_matches(name, names, n=1)
            suggestion = f" Did you mean {close_names[0]}?" if close_names else ""
            raise SettingsError(
                f"There is no team template {name!r}.{suggestion} Templates: {', '.join(names)}. Create "
                "one: shoal team template new NAME"
            )
        if found.template is None:
            assert found.problem is not None
            raise InvalidTeamTemplate(found.problem)
        return found.template


def load_team_templates(*, cwd: Path, home: Path) -> TeamTemplateCatalog:
    """Load templates from `cwd` up to the repository root, then from the home, then the built-in ones."""
    user_directory = home / "teams"
    project_directories = (directory / ".claude" / "teams" for directory in iter_project_directories(cwd))
    directories: list[tuple[Path, DefinitionSourceKind]] = [
        (path, "project") for path in exclude_directory(user_directory, project_directories)
    ]
    directories += [(user_directory, "user"), (SHIPPED_DIRECTORY, "builtin")]
    strongest: dict[str, TeamTemplateSource] = {}
    found: list[TeamTemplateCatalogEntry] = []
    for directory, kind in directories:
        for entry in _read_template_directory(directory, kind):
            first = strongest.setdefault(entry.name, entry.origin)
            found.append(replace(entry, hidden_by=first if first is not entry.origin else None))
    return TeamTemplateCatalog(found)


def read_team_template_file(path: Path, kind: DefinitionSourceKind = "project") -> TeamTemplateCatalogEntry:
    origin = TeamTemplateSource(kind=kind, path=path)
    try:
        template = parse_team_template(_read_template_text(path, origin), origin)
    except InvalidTeamTemplate as error:
        return TeamTemplateCatalogEntry(name=path.stem, origin=origin, problem=error.problem)
    return TeamTemplateCatalogEntry(name=template.name, origin=origin, template=template)


def _read_template_directory(directory: Path, kind: DefinitionSourceKind) -> list[TeamTemplateCatalogEntry]:
    # In the home, this directory also holds the directories of running teams.
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES and path.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        origin = TeamTemplateSource(kind=kind, path=directory)
        problem = TeamTemplateProblem(what=f"cannot be read: {error.strerror}", source=origin)
        return [TeamTemplateCatalogEntry(name=directory.name, origin=origin, problem=problem)]
    return [read_team_template_file(path, kind) for path in files]


def _read_template_text(path: Path, origin: TeamTemplateSource) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidTeamTemplate(
                TeamTemplateProblem(what=f"larger than {MAX_FILE_BYTES:,} bytes", source=origin)
            )
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise InvalidTeamTemplate(TeamTemplateProblem(what=what, source=origin)) from error
    except UnicodeDecodeError as error:
        raise InvalidTeamTemplate(TeamTemplateProblem(what="not UTF-8 text", source=origin)) from error


class UserLimitsForTeamTemplate(Struct, frozen=True, kw_only=True):
    """Limits that the user sets for the session that would lead the team."""

    mode: PermissionMode
    max_usd: float | None
    max_tokens: int | None


def check_team_template(
    template: TeamTemplate, definitions: AgentCatalog, limits: UserLimitsForTeamTemplate | None = None
) -> TeamTemplate:
    """Return the template if its agents exist and its limits hold. Raises `InvalidTeamTemplate`."""
    problem = next(_find_template_problems(template, definitions, limits), None)
    if problem is not None:
        raise InvalidTeamTemplate(problem)
    return template


def _find_template_problems(
    template: TeamTemplate, definitions: AgentCatalog, limits: UserLimitsForTeamTemplate | None
) -> Iterator[TeamTemplateProblem]:
    for number, role in enumerate(template.roles):
        if role.kind is None:
            continue
        try:
            definitions.find(role.kind)
        except (UnknownAgentType, InvalidAgentDefinition) as error:
            what = str(error).rstrip(".")
            yield TeamTemplateProblem(what=what, source=template.source, field_path=("roles", number, "type"))
    if limits is not None and not template.source.is_trusted:
        yield from _find_limit_escalations(template, limits)


def _find_limit_escalations(
    template: TeamTemplate, limits: UserLimitsForTeamTemplate
) -> Iterator[TeamTemplateProblem]:
    """Yield what exceeds the limits: a project may come from anyone, so its templates only restrict."""
    alternative = "move the template to your home directory if you trust it, or pass the flag yourself"
    for number, role in enumerate(template.roles):
        if role.mode is not None and is_wider_permission_mode(role.mode, limits.mode):
            what = (
                f"a project's template cannot use {role.mode} if the session uses {limits.mode}; remove "
                f"it, {alternative} (--permission-mode)"
            )
            yield TeamTemplateProblem(what=what, source=template.source, field_path=("roles", number, "mode"))
    for key, requested, limit, flag in (
        ("usd", template.budget_usd, limits.max_usd, "--max-budget-usd"),
        ("tokens", template.budget_tokens, limits.max_tokens, "--max-total-tokens"),
    ):
        if requested is not None and limit is not None and requested > limit:
            what = (
                f"{requested:g} exceeds the limit of {limit:g} in your settings; lower the value, "
                f"{alternative} ({flag})"
            )
            yield TeamTemplateProblem(what=what, source=template.source, field_path=("budget", key))
