"""Rules for calls that may run unattended, from the person's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.app.settings.configured_rules import add_permission_flag_rules
from shoal.app.settings.settings import Settings
from shoal.core.identity import AgentIdentity
from shoal.core.messages import ToolUseBlock
from shoal.core.permission_decisions import AllowDecision
from shoal.core.ports import Workspace
from shoal.core.questions import PermissionQuestion, Question
from shoal.core.tools import Tool
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import PermissionRuleSet


def create_unattended_permission_check(
    settings: Settings, workspace: Workspace, tools: Mapping[str, Tool], agent: AgentIdentity
) -> Callable[[Question], bool]:
    rules = add_permission_flag_rules(PermissionRuleSet(), allow=settings.own.unattended_allow, deny=())
    engine = PermissionEngine(workspace, mode="dontAsk", rules=rules, home=settings.home)

    def is_allowed_unattended(question: Question) -> bool:
        if not isinstance(question, PermissionQuestion) or not rules.allow:
            return False
        call = ToolUseBlock(id=question.tool_use_id, name=question.tool, input=question.input)
        # An agent's own MCP servers have tools that the session does not know.
        return isinstance(engine.decide_tool_call(call, tools.get(question.tool), agent), AllowDecision)

    return is_allowed_unattended
