"""Selection of the hooks that run for an event."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from shoal.core.errors import SettingsError, WorkspaceError
from shoal.core.extensions.hooks import (
    MATCHER_FIELDS,
    Hook,
    HookEvent,
    HttpPostHookAction,
    McpToolHookAction,
    ModelPromptHookAction,
    PythonCallbackHookAction,
    ShellCommandHookAction,
)
from shoal.core.names import FORMER_TOOL_NAMES, TOOL_NAMES
from shoal.core.user_environment import UserEnvironment
from shoal.policy.command_rules import ShellCommandRule
from shoal.policy.path_patterns import convert_path_pattern_to_regex
from shoal.policy.permission_rules import (
    AGENT_TOOLS,
    FILE_TOOLS,
    ToolPermissionRule,
    get_file_tool_call_path,
    parse_permission_rule,
)
from shoal.policy.rule_tables import is_tool_argument_pattern_match
from shoal.policy.shell.command_analysis import analyze_shell_command

ConditionMatch: TypeAlias = Literal["no", "perhaps", "yes"]
_NAMES = re.compile(r"[\w\-,| ]+")
_SEPARATOR = re.compile(r"[,|]")


def select_matching_hooks(
    hooks: Iterable[Hook], event: HookEvent, fields: Mapping[str, Any], user: UserEnvironment
) -> tuple[Hook, ...]:
    """Return the matching hooks in order.

    Of hooks that do exactly the same, only the first is kept, or one that blocks on failure if there is one.
    """
    field = MATCHER_FIELDS.get(event)
    value = None if field is None else str(fields.get(field, ""))
    former_names = _list_former_names(value, fields.get("tool_input")) if field == "tool_name" else ()
    found: dict[object, Hook] = {}
    for each in hooks:
        hook = each
        if value is not None and not is_hook_matcher_match(hook.matcher, value, former_names):
            continue
        if hook.condition:
            match = match_hook_condition(hook.condition, event, fields, user)
            if match == "no":
                continue
            if match == "perhaps":
                hook = replace(hook, can_allow=False)
        earlier = found.setdefault(action_key := _get_hook_action_key(hook), hook)
        if hook.blocks_on_failure and not earlier.blocks_on_failure:
            found[action_key] = hook
    return tuple(found.values())


@lru_cache(maxsize=1024)
def is_hook_matcher_match(matcher: str, value: str, former_names: tuple[str, ...] = ()) -> bool:
    """Match names as a whole, so `Edit` does not match `NotebookEdit`; expressions match anywhere.

    An expression means former names of a tool only if it matches no current one.
    """
    if matcher in ("", "*"):
        return True
    # One tool has two names.
    values = AGENT_TOOLS if value in AGENT_TOOLS else frozenset({value})
    if names := list_matcher_names(matcher):
        return not values.isdisjoint(names) or any(name in names for name in former_names)
    if any(re.search(matcher, each) for each in values):
        return True
    is_former = any(re.search(matcher, each) for each in former_names)
    return is_former and not any(re.search(matcher, each) for each in TOOL_NAMES)


@lru_cache(maxsize=256)
def _list_names_before(tool: str) -> tuple[str, ...]:
    return tuple(former for former, current in FORMER_TOOL_NAMES.items() if current == tool)


def _list_former_names(tool: str | None, arguments: object) -> tuple[str, ...]:
    """Return the former names of the tool that a call uses."""
    names = _list_names_before(tool or "")
    if tool == "Read" and not (
        isinstance(arguments, dict) and str(arguments.get("file_path", "")).endswith(".ipynb")
    ):
        return tuple(name for name in names if name != "NotebookRead")
    return names


def list_matcher_names(matcher: str) -> list[str]:
    """Return the names that a matcher consists of; none if it is empty, `*` or a regular expression."""
    if not _NAMES.fullmatch(matcher):
        return []
    return [name.strip() for name in _SEPARATOR.split(matcher)]


def match_hook_condition(
    condition: str, event: HookEvent, fields: Mapping[str, Any], user: UserEnvironment
) -> ConditionMatch:
    """Return how the call of an event matches the permission rule of a hook; other events never match."""
    if MATCHER_FIELDS.get(event) != "tool_name":
        return "no"
    try:
        rule = parse_permission_rule(condition)
    except SettingsError:
        return "perhaps"
    tool, arguments = str(fields.get("tool_name", "")), fields.get("tool_input")
    if not rule.applies_to_tool(tool):
        return "no"
    if rule.pattern is None:
        return "yes"
    if not isinstance(arguments, dict):
        return "perhaps"
    if tool == "Bash":
        return _match_command_condition(rule, str(arguments.get("command", "")), user.home)
    if tool in FILE_TOOLS:
        return _match_path_condition(rule, tool, arguments, str(fields.get("cwd", "")), user)
    return "perhaps" if is_tool_argument_pattern_match(tool, rule.pattern, arguments, forbids=True) else "no"


def _match_command_condition(rule: ToolPermissionRule, command: str, home: str) -> ConditionMatch:
    """Match if any command that it runs matches; only a line of one certain command matches for certain."""
    analysis = analyze_shell_command(command, home)
    command_rule = ShellCommandRule(rule)
    if not analysis.is_complete:
        return "perhaps"
    matches = {command_rule.match_as_forbidding_rule(part) for part in analysis.parts}
    if matches <= {"no"}:
        return "no"
    is_covered = analysis.trouble is None and all(map(command_rule.covers_command, analysis.parts))
    return "yes" if is_covered else "perhaps"


def _match_path_condition(
    rule: ToolPermissionRule, tool: str, arguments: dict[str, Any], cwd: str, user: UserEnvironment
) -> ConditionMatch:
    from shoal.core.conversation.messages import ToolUseBlock

    try:
        path = get_file_tool_call_path(ToolUseBlock(id="", name=tool, input=arguments))
    except WorkspaceError:
        return "perhaps"
    full = os.path.join(cwd, user.expand_home(path))  # noqa: PTH118 - of any text
    expression = re.compile(convert_path_pattern_to_regex(rule.pattern or "", cwd, user.home), re.DOTALL)
    named = expression.fullmatch(os.path.normpath(full))
    real = expression.fullmatch(os.path.realpath(full))
    return "yes" if named and real else "perhaps" if named or real else "no"


def _get_hook_action_key(hook: Hook) -> object:
    match hook.action:
        case ShellCommandHookAction(command=command, args=args, shell=shell):
            # A background hook must not replace a hook that decides.
            return ("command", command, args, shell, hook.background, hook.rewakes)
        case HttpPostHookAction(url=url, headers=headers):
            return ("http", url, tuple(sorted(headers.items())))
        case ModelPromptHookAction(prompt=prompt, model=model, continues_on_block=continues):
            return ("prompt", prompt, model, continues)
        case McpToolHookAction(server=server, tool=tool, input=arguments):
            return ("mcp_tool", server, tool, str(arguments))
        case PythonCallbackHookAction(function=function):
            return ("called", id(function))
