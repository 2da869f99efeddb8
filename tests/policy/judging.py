"""A permission engine on a real project directory, and calls for it to decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.core.decisions import Allow, Ask, Decision
from shoal.core.identity import Identity
from shoal.core.ids import SessionId
from shoal.core.messages import ToolUse
from shoal.core.permissions import Mode
from shoal.policy.permissions import RulePermissions
from shoal.policy.rules import Standing, parse_rule, split_rules
from shoal.tools.define import tool
from shoal.workspaces.local import LocalWorkspace

ME = Identity(session=SessionId("s"))


@tool(reads_only=True)
async def reader() -> str:
    return ""


@tool
async def writer() -> str:
    return ""


def use(name: str, **arguments: Any) -> ToolUse:
    return ToolUse(id="c", name=name, input=arguments)


def decide(permissions: RulePermissions, name: str, **arguments: Any) -> Decision:
    kind = reader if name in ("Read", "Glob", "Grep", "WebFetch") else writer
    return permissions.decide(use(name, **arguments), kind, ME)


def word(decision: Decision) -> str:
    return "allow" if isinstance(decision, Allow) else "ask" if isinstance(decision, Ask) else "deny"


def shell(permissions: RulePermissions, command: str) -> str:
    return word(decide(permissions, "Bash", command=command))


def standing(**rules: str) -> Standing:
    parsed = {
        kind: tuple(parse_rule(rule, "a test") for rule in split_rules(text)) for kind, text in rules.items()
    }
    return Standing(**parsed)


def permissions(
    root: Path, mode: Mode = "default", *, home: Path | None = None, **rules: str
) -> RulePermissions:
    return RulePermissions(LocalWorkspace(root), mode=mode, standing=standing(**rules), home=home)
