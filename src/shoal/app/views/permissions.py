"""Report on the permissions that a session in this directory would have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.settings.settings import Settings, load_settings
from shoal.core.permissions import Behavior, Mode
from shoal.policy.permissions import RulePermissions
from shoal.policy.rules import Standing
from shoal.wire.json_lines import lines_in
from shoal.workspaces.local import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class RuleShown(Struct, frozen=True, kw_only=True):
    behavior: Behavior
    rule: str
    source: str


class View(Struct, frozen=True, kw_only=True):
    """Permissions of an agent and the origin of each part."""

    agent: str
    mode: Mode
    mode_source: str
    rules: tuple[RuleShown, ...]
    directories: tuple[str, ...]
    """Directories it may work in: the project first."""
    may_skip: bool
    left_out: tuple[RuleShown, ...]
    """Allow rules of the project's files without effect, because nobody trusted them."""


def engine(settings: Settings, cwd: Path, *, mode: Mode | None = None) -> RulePermissions:
    workspace = LocalWorkspace(cwd, granted=settings.standing.directories)
    return RulePermissions(
        workspace,
        mode=mode or settings.permissions.default_mode or "default",
        standing=settings.standing,
        home=settings.home,
    )


def load(cwd: Path, *, given: str | None = None) -> Settings:
    return load_settings(cwd=cwd.resolve(), given=given)


def view(settings: Settings, cwd: Path) -> View:
    """Build the report for the lead, the only agent that exists before a run."""
    permissions = engine(settings, cwd)
    return View(
        agent="lead",
        mode=permissions.mode,
        mode_source=settings.origin("permissions.defaultMode"),
        rules=tuple(_rows(permissions.rules_in_force())),
        directories=tuple(map(str, (cwd.resolve(), *settings.standing.directories))),
        may_skip=permissions.may_skip,
        left_out=left_out(settings),
    )


def session_view(session: Session) -> View:
    """Build the report for the lead of a running session."""
    parts = session.parts
    return View(
        agent="lead",
        mode=parts.permissions.mode,
        mode_source="this session",
        rules=tuple(_rows(parts.permissions.rules_in_force())),
        directories=tuple(map(str, (parts.workspace.root, *parts.settings.standing.directories))),
        may_skip=parts.permissions.may_skip,
        left_out=left_out(parts.settings),
    )


def left_out(settings: Settings) -> tuple[RuleShown, ...]:
    found: list[RuleShown] = []
    for each in settings.left_out:
        if each.keys == ("permissions", "allow"):
            lines = lines_in(each.document.text, each.keys)
            found += (
                RuleShown(behavior="allow", rule=str(rule), source=f"{each.document.name}:{line}")
                for rule, line in zip(each.value, lines[-len(each.value) :], strict=True)
            )
    return tuple(found)


def _rows(standing: Standing) -> Iterator[RuleShown]:
    strengths: tuple[tuple[Behavior, tuple[object, ...]], ...] = (
        ("deny", standing.deny),
        ("ask", standing.ask),
        ("allow", standing.allow),
    )
    for behavior, rules in strengths:
        for rule in rules:
            yield RuleShown(behavior=behavior, rule=str(rule), source=getattr(rule, "source", ""))
