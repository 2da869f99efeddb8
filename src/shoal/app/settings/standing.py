"""Permission rules of settings and flags, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shoal.core.errors import SettingsError
from shoal.core.permissions import Behavior
from shoal.policy.rules import Rule, Standing, contradiction, parse_rule
from shoal.wire.json_lines import lines_in
from shoal.wire.settings import Document, known_part

BEHAVIORS: tuple[Behavior, ...] = ("allow", "ask", "deny")
FLAGS: dict[Behavior, str] = {"allow": "--allowedTools", "deny": "--disallowedTools"}


def standing_rules(documents: Sequence[Document], cwd: Path) -> Standing:
    """Load the rules. Raises `SettingsError` for an invalid rule, or two contradicting rules in one file."""
    rules: dict[str, Any] = {"allow": (), "ask": (), "deny": ()}
    directories: list[Path] = []
    for document in documents:
        if "permissions" not in document.raw:
            continue
        known = known_part(document.raw).permissions
        mine: dict[str, Any] = {kind: _of(document, kind, getattr(known, kind)) for kind in BEHAVIORS}
        _refuse_contradiction(Standing(**mine), document.path)
        rules = {kind: (*rules[kind], *mine[kind]) for kind in BEHAVIORS}
        directories.extend(cwd / Path(each).expanduser() for each in known.additional_directories)
    return replace(Standing(**rules), directories=tuple(dict.fromkeys(directories)))


def with_flags(standing: Standing, *, allow: Sequence[str], deny: Sequence[str]) -> Standing:
    given = Standing(
        allow=tuple(parse_rule(rule, FLAGS["allow"]) for rule in allow),
        deny=tuple(parse_rule(rule, FLAGS["deny"]) for rule in deny),
    )
    for rule in given.deny:
        if str(rule) in map(str, given.allow):
            raise SettingsError(f"{rule} is both in --allowedTools and in --disallowedTools: leave one out.")
    return replace(standing, allow=(*given.allow, *standing.allow), deny=(*given.deny, *standing.deny))


def _of(document: Document, behavior: Behavior, texts: Sequence[str]) -> tuple[Rule, ...]:
    if not texts:
        return ()
    lines = lines_in(document.text, ("permissions", behavior))
    found: list[Rule] = []
    # The last value of a duplicate key counts.
    for text, line in zip(texts, lines[-len(texts) :], strict=True):
        try:
            found.append(replace(parse_rule(text), source=f"{document.name}:{line}"))
        except SettingsError as error:
            told = f"{document.name}:{line}: permissions.{behavior}: {error}"
            raise SettingsError(told, path=document.path, line=line) from error
    return tuple(found)


def _refuse_contradiction(standing: Standing, path: Path | None) -> None:
    found = contradiction(standing)
    if found is None:
        return
    weaker, stronger = found
    name, _, line = stronger.source.rpartition(":")
    raise SettingsError(
        f"{stronger.source}: the rule {stronger} contradicts the same rule in line "
        f"{weaker.source.rpartition(':')[2]} of {name}: remove one of them.",
        path=path,
        line=int(line),
    )
