"""Trust in the parts of project settings that extend permissions; untrusted parts are ignored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.settings.project_limits import raised_limits
from shoal.core.clock import SystemClock
from shoal.core.errors import StoreError
from shoal.policy.authority import is_wider
from shoal.stores.files.trust import TrustFile
from shoal.wire.settings import Document, Known, Own, known_part, merged
from shoal.wire.trust import Said

if TYPE_CHECKING:
    from shoal.app.settings.settings import Settings

Trust: TypeAlias = Literal["trusted", "refused", "unasked"]
_NAMES = {"local": "settings.local.json", "project": "settings.json", "mcp": ".mcp.json"}
_APPROVERS = ("user", "lead", "auto")
"""Ordered: each approves more plans than the one before."""
_TRUSTING = ("never", "ask", "always")
"""Ordered: each accepts more mail than the one before."""
_FILES = ("scripted:", "replay:")
"""Models that are files: the author of the project would control the lead."""


class Widening(Struct, frozen=True, kw_only=True):
    """Setting in a project file that allows agents more than the user's own settings."""

    document: Document
    keys: tuple[str, ...]
    value: Any
    trust: Trust

    @property
    def key(self) -> str:
        return ".".join(self.keys)

    @property
    def place(self) -> str:
        return self.document.place(self.keys)


class Judged(Struct, frozen=True, kw_only=True):
    """Settings files after the trust check."""

    documents: tuple[Document, ...]
    """Documents without their untrusted parts."""
    widening: tuple[Widening, ...]
    """Everything in the project's files that needs trust, trusted or not."""
    warnings: tuple[str, ...]


def judged(documents: Sequence[Document], home: Path, project: Path) -> Judged:
    person = persons_part(documents)
    file = TrustFile(home)
    counting: list[Document] = []
    widening: list[Widening] = []
    troubles: dict[str, None] = {}
    for document in documents:
        wide = () if document.is_persons else widening_part(document, person)
        if not wide:
            counting.append(document)
            continue
        try:
            trust = trust_in(file, project, document, wide)
        except StoreError as error:
            trust = "unasked"
            troubles[f"No project's settings are trusted: {error}"] = None
        widening += (Widening(document=document, keys=keys, value=value, trust=trust) for keys, value in wide)
        counting.append(document if trust == "trusted" else _without(document, [keys for keys, _ in wide]))
    left_out = [each for each in widening if each.trust != "trusted"]
    return Judged(
        documents=tuple(counting),
        widening=tuple(widening),
        warnings=(*troubles, *([_told(left_out)] if left_out else ())),
    )


def persons_part(documents: Sequence[Document]) -> Known:
    return known_part(merged([document for document in documents if document.is_persons]))


_Wide: TypeAlias = tuple[tuple[tuple[str, ...], Any], ...]


def widening_part(document: Document, person: Known) -> _Wide:
    """Return key path and value of each setting in a project file that allows more than the user's settings.

    Settings that a project can never set (skipping permissions, loosening the sandbox, provider addresses)
    are not included.
    """
    known, raw = known_part(document.raw), document.raw
    found: list[tuple[str, ...]] = []
    found += [
        ("permissions", key) for key in ("allow", "additionalDirectories") if _given(raw, "permissions", key)
    ]
    mode, own_mode = known.permissions.default_mode, person.permissions.default_mode or "default"
    if mode is not None and mode != "bypassPermissions" and is_wider(mode, own_mode):
        found.append(("permissions", "defaultMode"))
    found += [("env", name) for name in known.env]
    found += [("hooks",)] if raw.get("hooks") else []
    # A server is a program that runs, or an address that receives what agents send.
    found += [("mcpServers", name) for name in raw.get("mcpServers") or ()]
    minds = {("model",): known.model, ("shoal", "model"): known.shoal.model}
    found += [way for way, name in minds.items() if name is not None and name.startswith(_FILES)]
    found += [("shoal", key) for key in _wide_own(known.shoal, person.shoal) if _stands(raw, key)]
    return tuple((keys, _value(raw, keys)) for keys in found)


def trust_in(file: TrustFile, project: Path, document: Document, wide: _Wide) -> Trust:
    """Return the stored trust. Raises `StoreError` if it cannot be read."""
    said = file.said(project, _name(document))
    if said is None or said.digest != _digest(wide):
        return "unasked"
    return "trusted" if said.trusted else "refused"


def trust_files(home: Path, project: Path, documents: Sequence[Document], person: Known) -> None:
    """Store the user's trust in these project files in their current state. Raises `StoreError`."""
    wide = {_name(document): widening_part(document, person) for document in documents}
    TrustFile(home).say(project, {name: _said(part, trusted=True) for name, part in wide.items() if part})


def answer(
    settings: Settings, project: Path, *, trusted: bool, about: Sequence[Widening] | None = None
) -> None:
    """Store the user's answer about the project's escalations: all of them, or those that were shown.

    It applies to the values in these settings, even if the files have changed since. Raises `StoreError`.
    """
    parts: dict[str, _Wide] = {}
    for each in settings.widening if about is None else about:
        name = _name(each.document)
        parts[name] = (*parts.get(name, ()), (each.keys, each.value))
    said = {name: _said(part, trusted=trusted) for name, part in parts.items()}
    TrustFile(settings.home).say(project, said)


def forget(home: Path, project: Path) -> None:
    """Remove all answers about a project. Raises `StoreError`."""
    TrustFile(home).forget(project)


def _said(wide: _Wide, *, trusted: bool) -> Said:
    return Said(digest=_digest(wide), trusted=trusted, at=SystemClock().now())


def _wide_own(own: Own, person: Own) -> Iterator[str]:
    yield from ("models", "aliases")  # a budget is computed with their prices
    if _APPROVERS.index(own.plan_approver) > _APPROVERS.index(person.plan_approver):
        yield "plan_approver"
    if _TRUSTING.index(own.trust_unsigned_mail) > _TRUSTING.index(person.trust_unsigned_mail):
        yield "trust_unsigned_mail"
    yield from ("teammate_programs", "plugins")
    yield from raised_limits(own, person)


def _given(raw: dict[str, Any], *keys: str) -> bool:
    return bool(_value(raw, keys))


def _stands(raw: dict[str, Any], key: str) -> bool:
    """Return True if the key is set, also to null, which matters for limits, but not to `{}`."""
    return bool((raw.get("shoal") or {}).get(key, {}) != {})


def _value(raw: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def _without(document: Document, ways: Sequence[tuple[str, ...]]) -> Document:
    raw = document.raw
    for way in ways:
        raw = _cut(raw, way)
    return replace(document, raw=raw)


def _cut(raw: dict[str, Any], way: Sequence[str]) -> dict[str, Any]:
    first, *rest = way
    if not rest:
        return {key: value for key, value in raw.items() if key != first}
    return {**raw, first: _cut(raw[first], rest)}


def _digest(wide: _Wide) -> str:
    listed = [[list(keys), value] for keys, value in wide]
    # Front matter can hold dates, which JSON cannot.
    text = json.dumps(listed, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _name(document: Document) -> str:
    if document.kind in ("agent", "plugin"):
        # Each of these files is trusted separately.
        return f"{document.kind}:{document.path}"
    return _NAMES.get(document.kind, _NAMES["project"])


def _told(left_out: Sequence[Widening]) -> str:
    keys = ", ".join(dict.fromkeys("env" if each.keys[0] == "env" else each.key for each in left_out))
    return (
        f"This project's own settings are not trusted, so what they would widen is left out ({keys}). "
        "See it with `shoal trust --show`, trust it with `shoal trust`."
    )
