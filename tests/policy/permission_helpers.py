"""A permission engine on a real project directory, and calls for it to decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.ids import SessionId
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.permissions.permission_decisions import AllowDecision, AskDecision, PermissionDecision
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import PermissionRuleSet, parse_permission_rule, split_permission_rule_list
from shoal.tools.function_tool import tool
from shoal.workspaces.local_workspace import LocalWorkspace

AGENT = AgentIdentity(session=SessionId("s"))


@tool(reads_only=True)
async def read_only_tool() -> str:
    return ""


@tool
async def writing_tool() -> str:
    return ""


def make_tool_use(name: str, **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id="c", name=name, input=arguments)


def decide_call(permissions: PermissionEngine, name: str, **arguments: Any) -> PermissionDecision:
    kind = read_only_tool if name in ("Read", "Glob", "Grep", "WebFetch") else writing_tool
    return permissions.decide_tool_call(make_tool_use(name, **arguments), kind, AGENT)


def name_decision(decision: PermissionDecision) -> str:
    return (
        "allow"
        if isinstance(decision, AllowDecision)
        else "ask"
        if isinstance(decision, AskDecision)
        else "deny"
    )


def decide_command(permissions: PermissionEngine, command: str) -> str:
    return name_decision(decide_call(permissions, "Bash", command=command))


def parse_rules(**rules: str) -> PermissionRuleSet:
    parsed = {
        kind: tuple(parse_permission_rule(rule, "a test") for rule in split_permission_rule_list(text))
        for kind, text in rules.items()
    }
    return PermissionRuleSet(**parsed)


def create_engine(
    root: Path, mode: PermissionMode = "default", *, home: Path | None = None, **rules: str
) -> PermissionEngine:
    return PermissionEngine(LocalWorkspace(root), mode=mode, rules=parse_rules(**rules), home=home)
