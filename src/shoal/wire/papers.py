"""Codec between a member's launch arguments and a command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from shoal.core.backends import Papers
from shoal.core.decisions import Mode
from shoal.core.ids import AgentId
from shoal.core.names import agent_name, team_name
from shoal.core.roster import agent_id

_VALUES = {
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
_LISTS = {"--allowedTools": "allowed", "--disallowedTools": "disallowed", "--plugin-dir": "plugin_dirs"}
_SWITCHES = {
    "--plan-mode-required": "plan_mode_required",
    "--dangerously-skip-permissions": "skip_permissions",
}
_NEEDED = ("--agent-id", "--agent-name", "--team-name", "--parent-session-id", "--agent-type", "--model")


def command_line(papers: Papers) -> tuple[str, ...]:
    """Return the arguments after the program name: set flags only, a list flag once per entry."""
    return tuple(_words(papers))


def _words(papers: Papers) -> Iterator[str]:
    for flag, field in _VALUES.items():
        if (value := getattr(papers, field)) is not None:
            yield from (flag, str(value))
        if flag == "--model":
            yield from (switch for switch, on in _SWITCHES.items() if getattr(papers, on))
    for flag, field in _LISTS.items():
        for entry in getattr(papers, field):
            yield from (flag, entry)


def papers_of(words: Sequence[str]) -> Papers:
    """Parse the arguments; raise ValueError or `InvalidName` that names the wrong argument."""
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        flag, given, value = word.partition("=")
        if flag in _SWITCHES and not given:
            found[_SWITCHES[flag]] = True
            continue
        if flag not in _VALUES and flag not in _LISTS:
            raise ValueError(f"{word!r} is no part of a teammate's papers")
        if not given and (value := next(rest, "")) == "":
            raise ValueError(f"{flag} needs a value")
        if flag in _LISTS:
            found[_LISTS[flag]] = (*found.get(_LISTS[flag], ()), value)
        else:
            found[_VALUES[flag]] = value
    return _checked(found)


def _checked(found: dict[str, Any]) -> Papers:
    for flag in _NEEDED:
        if not found.get(_VALUES[flag]):
            raise ValueError(f"{flag} is missing")
    found["name"], found["team"] = agent_name(found["name"]), team_name(found["team"])
    if found["agent"] != (whole := agent_id(found["name"], found["team"])):
        raise ValueError(f"--agent-id is {found['agent']!r}, but the name and the team say {whole!r}")
    if (mode := found.get("mode")) is not None and mode not in get_args(Mode):
        raise ValueError(f"--permission-mode: {mode!r} is no mode; they are {', '.join(get_args(Mode))}")
    if (usd := found.get("max_budget_usd")) is not None:
        found["max_budget_usd"] = _budget(usd)
    found["agent"] = AgentId(found["agent"])
    return Papers(**{"color": None, **found})


def _budget(given: str) -> float:
    try:
        usd = float(given)
    except ValueError:
        usd = 0.0
    if not 0 < usd < float("inf"):
        raise ValueError(f"--max-budget-usd: {given!r} is no number of dollars above 0")
    return usd
