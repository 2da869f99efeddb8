"""Rules for calls that may run unattended, from the person's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.app.settings.settings import Settings
from shoal.app.settings.standing import with_flags
from shoal.core.decisions import Allow
from shoal.core.identity import Identity
from shoal.core.messages import ToolUse
from shoal.core.ports import Workspace
from shoal.core.questions import MayRun, Question
from shoal.core.tools import Tool
from shoal.policy.permissions import RulePermissions
from shoal.policy.rules import Standing


def listed(
    settings: Settings, workspace: Workspace, tools: Mapping[str, Tool], agent: Identity
) -> Callable[[Question], bool]:
    rules = with_flags(Standing(), allow=settings.own.unattended_allow, deny=())
    engine = RulePermissions(workspace, mode="dontAsk", standing=rules, home=settings.home)

    def is_listed(question: Question) -> bool:
        if not isinstance(question, MayRun) or not rules.allow:
            return False
        call = ToolUse(id=question.tool_use_id, name=question.tool, input=question.input)
        # An agent's own MCP servers have tools that the session does not know.
        return isinstance(engine.decide(call, tools.get(question.tool), agent), Allow)

    return is_listed
