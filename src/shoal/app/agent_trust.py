"""Whether a person trusts the hooks that a project's own agents bring along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shoal.app.definitions import definitions_for
from shoal.app.settings import Settings
from shoal.app.trust import Widening, trust_in
from shoal.core.definitions import Definition
from shoal.core.errors import StoreError
from shoal.stores.files.trust import TrustFile
from shoal.wire.settings import Document


class _Page(Document, frozen=True, kw_only=True):
    """The file of an agent."""

    line: int

    def place(self, keys: Sequence[str]) -> str:
        return f"{self.name}:{self.line}"


def agent_widening(definitions: Iterable[Definition], home: Path, project: Path) -> Iterator[Widening]:
    """The hooks of agents that may come from anyone, trusted or not."""
    for definition in definitions:
        source = definition.source
        if source.trusted or source.path is None or not definition.hooks:
            continue
        raw = {"hooks": dict(definition.hooks)}
        page = _Page(
            name=str(source),
            kind="project",
            path=source.path,
            text="",
            raw=raw,
            line=source.lines.get("hooks", 1),
        )
        wide = ((("hooks",), raw["hooks"]),)
        try:
            trust = trust_in(TrustFile(home), project, page, wide)
        except StoreError:
            trust = "unasked"
        yield Widening(document=page, keys=("hooks",), value=raw["hooks"], trust=trust)


def trusts_hooks_of(definition: Definition, home: Path, project: Path) -> bool:
    return all(each.trust == "trusted" for each in agent_widening([definition], home, project))


def everything_wide(settings: Settings, project: Path) -> tuple[Widening, ...]:
    """What of a project needs a person's trust: in its settings, and in its agents."""
    definitions = definitions_for(cwd=project, home=settings.home)
    return (*settings.widening, *agent_widening(definitions.all(), settings.home, project))
