"""Codec between a member's launch arguments and a command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shoal.core.ids import AgentId
from shoal.core.names import TeamName, map_to_inbox_name, parse_agent_name, parse_team_name
from shoal.core.permissions.permission_changes import (
    PERMISSION_MODES,
    resolve_permission_mode,
)
from shoal.core.teams.member_backends import MemberLaunchArgs
from shoal.core.teams.roster import format_agent_id

_VALUE_FLAGS = {
    "--agent-id": "agent",
    "--agent-name": "name",
    "--team-name": "team",
    "--agent-color": "color",
    "--parent-session-id": "session",
    "--agent-type": "kind",
    "--model": "model",
    "--permission-mode": "mode",
    "--max-budget-usd": "max_budget_usd",
    "--settings": "settings",
}
_LIST_FLAGS = {"--allowedTools": "allowed", "--disallowedTools": "disallowed", "--plugin-dir": "plugin_dirs"}
_BOOLEAN_FLAGS = {
    "--plan-mode-required": "plan_mode_required",
    "--dangerously-skip-permissions": "skip_permissions",
}
_REQUIRED_FLAGS = (
    "--agent-id",
    "--agent-name",
    "--team-name",
    "--parent-session-id",
    "--agent-type",
    "--model",
)


def build_member_launch_flags(launch_args: MemberLaunchArgs) -> tuple[str, ...]:
    """Return the arguments after the program name: set flags only, a list flag once per entry."""
    return tuple(_generate_launch_flags(launch_args))


def _generate_launch_flags(launch_args: MemberLaunchArgs) -> Iterator[str]:
    for flag, field in _VALUE_FLAGS.items():
        if (value := getattr(launch_args, field)) is not None:
            yield from (flag, str(value))
        if flag == "--model":
            yield from (switch for switch, on in _BOOLEAN_FLAGS.items() if getattr(launch_args, on))
    for flag, field in _LIST_FLAGS.items():
        for entry in getattr(launch_args, field):
            yield from (flag, entry)


def parse_member_launch_flags(arguments: Sequence[str]) -> MemberLaunchArgs:
    """Parse the arguments; raise ValueError or `InvalidName` that names the wrong argument."""
    found: dict[str, Any] = {}
    remaining = iter(arguments)
    for argument in remaining:
        flag, separator, value = argument.partition("=")
        if flag in _BOOLEAN_FLAGS and not separator:
            found[_BOOLEAN_FLAGS[flag]] = True
            continue
        if flag not in _VALUE_FLAGS and flag not in _LIST_FLAGS:
            raise ValueError(f"{argument!r} is not a launch argument for a teammate")
        if not separator and (value := next(remaining, "")) == "":
            raise ValueError(f"{flag} needs a value")
        if flag in _LIST_FLAGS:
            found[_LIST_FLAGS[flag]] = (*found.get(_LIST_FLAGS[flag], ()), value)
        else:
            found[_VALUE_FLAGS[flag]] = value
    return _validate_launch_args(found)


def _validate_launch_args(values: dict[str, Any]) -> MemberLaunchArgs:
    for flag in _REQUIRED_FLAGS:
        if not values.get(_VALUE_FLAGS[flag]):
            raise ValueError(f"{flag} is missing")
    agent_id = format_agent_id(values["name"], values["team"])
    # Other programs pass names as given, and use other ones for files.
    values["name"] = parse_agent_name(map_to_inbox_name(values["name"]))
    given_team = values["team"]
    values["team"] = parse_team_name(map_to_inbox_name(given_team))
    if values["team"] != given_team:
        values["team"] = TeamName(values["team"].lower())
    mapped_id = format_agent_id(values["name"], values["team"])
    if values["agent"] not in (agent_id, mapped_id):
        raise ValueError(f"--agent-id is {values['agent']!r}, but the name and the team give {agent_id!r}")
    values["agent"] = mapped_id
    if (mode := values.get("mode")) is not None:
        values["mode"] = resolve_permission_mode(mode)
        if values["mode"] is None:
            raise ValueError(
                f"--permission-mode: {mode!r} is not a mode; use one of {', '.join(PERMISSION_MODES)}"
            )
    if (usd := values.get("max_budget_usd")) is not None:
        values["max_budget_usd"] = _parse_budget_flag(usd)
    values["agent"] = AgentId(values["agent"])
    return MemberLaunchArgs(**{"color": None, **values})


def _parse_budget_flag(text: str) -> float:
    try:
        usd = float(text)
    except ValueError:
        usd = 0.0
    if not 0 < usd < float("inf"):
        raise ValueError(f"--max-budget-usd: {text!r} is not a dollar amount greater than 0")
    return usd
