"""`shoal permissions` commands: list the rules in force, and explain the decision about a call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.cli.printing import print_json
from shoal.surfaces.terminal.listings import BEHAVIORS, left_out_lines, rule_lines
from shoal.surfaces.terminal.paint import DIM, cut, has_colours, painted

if TYPE_CHECKING:
    from shoal.app.views.permissions import View
    from shoal.policy.explain import Explanation

_MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "delegate", "bubble")
_WIDEST = 100
_FOR = {
    "session": "for the session",
    "localSettings": "in .claude/settings.local.json",
    "projectSettings": "in .claude/settings.json",
    "userSettings": "in your own settings",
}


@click.group("permissions")
def command() -> None:
    """See what an agent may do in this directory, without running anything."""


@command.command("explain", short_help="Say what would be decided about one call.")
@click.option(
    "--mode", type=click.Choice(_MODES, case_sensitive=False), metavar="MODE", help="As in this mode."
)
@settings_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.argument("tool")
@click.argument("input_json", metavar="INPUT_JSON")
def explain(*, mode: Any, settings: str | None, as_json: bool, tool: str, input_json: str) -> int:
    """Say what would be decided about one call of TOOL: allow, ask or deny, by which rule, from where.

    INPUT_JSON is the call's input, as '{"command": "git push"}'; - reads it from stdin.
    """
    from shoal.app.views import permissions as permissions_view
    from shoal.core.messages import ToolUse
    from shoal.policy.explain import explained

    call = ToolUse(id="explain", name=tool, input=_object(input_json))
    cwd = Path.cwd()
    loaded = permissions_view.load(cwd, given=settings)
    explanation = explained(permissions_view.engine(loaded, cwd, mode=mode), call)
    _point_out_unknown(tool, cwd, settings)
    left_out = permissions_view.left_out(loaded)
    if as_json:
        from msgspec import to_builtins

        print_json({**to_builtins(explanation), "left_out": left_out})
    else:
        for line in (*_told(explanation, colours=has_colours(sys.stdout)), *left_out_lines(left_out)):
            click.echo(line)
    return exits.OK


@command.command("ls", short_help="List the rules in force, the strongest first.")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def ls(*, settings: str | None, as_json: bool) -> int:
    """List the rules in force, the strongest first, with the file and line of each."""
    show_view(settings, as_json=as_json)
    return exits.OK


def show_view(settings: str | None, *, as_json: bool) -> None:
    from shoal.app.views import permissions as permissions_view

    cwd = Path.cwd()
    print_view(permissions_view.view(permissions_view.load(cwd, given=settings), cwd), as_json=as_json)


def print_view(seen: View, *, as_json: bool) -> None:
    if as_json:
        print_json(seen)
        return
    for line in rule_lines(seen, colours=has_colours(sys.stdout)):
        click.echo(line)


def _point_out_unknown(tool: str, cwd: Path, settings: str | None) -> None:
    """Warn that no tool has this name: the answer is right but hardly intended. MCP tools are not checked."""
    from shoal.app.views.agents import offered_tools
    from shoal.core.tools import ALIASES
    from shoal.surfaces.terminal.sentences import say

    if tool.startswith("mcp__") or tool in ALIASES:
        return
    known = asyncio.run(offered_tools(cwd, settings))
    if tool not in known:
        folded = {name.casefold(): name for name in known}
        near = get_close_matches(tool.casefold(), folded, n=1)
        say(f"There is no tool {tool!r} here.{f' Is {folded[near[0]]} meant?' if near else ''}")


def _object(text: str) -> dict[str, Any]:
    from shoal.wire.content import load

    if text == "-":
        from shoal.surfaces.cli.headless.stdin import read_prompt

        text = read_prompt()
    try:
        found = load(text.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise click.UsageError(f"INPUT_JSON is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.UsageError('INPUT_JSON is a JSON object, as {"command": "git push"}.')
    return found


def _told(explanation: Explanation, *, colours: bool) -> Iterator[str]:
    from shoal.surfaces.terminal.question_words import change_words

    decision = painted(explanation.decision, BEHAVIORS[explanation.decision], colours=colours)
    yield f"{decision}  {explanation.tool} in mode {explanation.mode}: {clean(explanation.reason)}"
    if explanation.rule is not None:
        yield f"  rule    {clean(explanation.rule)}"
        yield f"  source  {clean(explanation.source or '')}"
    for part in explanation.parts:
        verdict = painted(f"{part.decision:<5}", BEHAVIORS[part.decision], colours=colours)
        under = f" (under {', '.join(part.via)})" if part.via else ""
        yield f"  {verdict}  {cut(clean(part.text), _WIDEST)}{under}"
        yield painted(f"         {clean(part.reason)}", DIM, colours=colours)
    if explanation.suggestions:
        yield "A person could answer once, or:"
        yield from (f"  {_FOR[each.destination]}: {change_words(each)}" for each in explanation.suggestions)
