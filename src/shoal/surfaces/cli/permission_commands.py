"""`shoal permissions` commands: list the active rules, and explain the decision about a call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.terminal.listings import (
    BEHAVIOR_STYLES,
    format_permission_report_lines,
    format_untrusted_rule_lines,
)
from shoal.surfaces.terminal.text_styles import DIM, apply_style, has_colours, truncate_text

if TYPE_CHECKING:
    from shoal.app.reports.permission_report import PermissionReport
    from shoal.policy.permission_explanation import PermissionExplanation

_MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "delegate", "bubble")
_MAX_WIDTH = 100
_DESTINATION_LABELS = {
    "session": "for the session",
    "localSettings": "in .claude/settings.local.json",
    "projectSettings": "in .claude/settings.json",
    "userSettings": "in your own settings",
}


@click.group("permissions")
def permission_commands() -> None:
    """Show what agents may do in this directory, without running anything."""


@permission_commands.command("explain", short_help="Show the decision for one tool call.")
@click.option(
    "--mode",
    type=click.Choice(_MODES, case_sensitive=False),
    metavar="MODE",
    help="Assume this permission mode.",
)
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("tool")
@click.argument("input_json", metavar="INPUT_JSON")
def explain_permission(*, mode: Any, settings: str | None, as_json: bool, tool: str, input_json: str) -> int:
    """Show the decision for one call of TOOL (allow, ask or deny), with the rule and its origin.

    INPUT_JSON is the call's input, such as '{"command": "git push"}'; - reads it from stdin.
    """
    from shoal.app.reports import permission_report
    from shoal.core.conversation.messages import ToolUseBlock
    from shoal.policy.permission_explanation import explain_permission_decision

    call = ToolUseBlock(id="explain", name=tool, input=_parse_tool_input_argument(input_json))
    cwd = Path.cwd()
    loaded_settings = permission_report.load_project_settings(cwd, given=settings)
    explanation = explain_permission_decision(
        permission_report.create_permission_engine(loaded_settings, cwd, mode=mode), call
    )
    _warn_unknown_tool(tool, cwd, settings)
    untrusted_rules = permission_report.list_untrusted_permission_rules(loaded_settings)
    if as_json:
        from msgspec import to_builtins

        print_json({**to_builtins(explanation), "left_out": untrusted_rules})
    else:
        for line in (
            *_format_permission_explanation(explanation, colours=has_colours(sys.stdout)),
            *format_untrusted_rule_lines(untrusted_rules),
        ):
            click.echo(line)
    return exit_codes.OK


@permission_commands.command("ls", short_help="List the active rules, highest precedence first.")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_permission_rules(*, settings: str | None, as_json: bool) -> int:
    """List the active rules, highest precedence first, and the file and line that each comes from."""
    show_lead_permissions(settings, as_json=as_json)
    return exit_codes.OK


def show_lead_permissions(settings: str | None, *, as_json: bool) -> None:
    from shoal.app.reports import permission_report

    cwd = Path.cwd()
    print_permission_report(
        permission_report.build_lead_permission_report(
            permission_report.load_project_settings(cwd, given=settings), cwd
        ),
        as_json=as_json,
    )


def print_permission_report(view: PermissionReport, *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    for line in format_permission_report_lines(view, colours=has_colours(sys.stdout)):
        click.echo(line)


def _warn_unknown_tool(tool: str, cwd: Path, settings: str | None) -> None:
    """Warn that no tool has this name: the answer is correct, but probably not what was meant. MCP tools are
    not checked."""
    from shoal.app.reports.agent_report import list_session_tools
    from shoal.core.conversation.tools import TOOL_ALIASES
    from shoal.core.names import TOOL_NAMES
    from shoal.surfaces.terminal.user_messages import print_user_message

    # A tool that is denied as a whole is not a tool of the session.
    if tool.startswith("mcp__") or tool in TOOL_ALIASES or tool in TOOL_NAMES:
        return
    tool_names = asyncio.run(list_session_tools(cwd, settings))
    if tool not in tool_names:
        folded = {name.casefold(): name for name in tool_names}
        matches = get_close_matches(tool.casefold(), folded, n=1)
        print_user_message(
            f"There is no tool {tool!r}.{f' Did you mean {folded[matches[0]]}?' if matches else ''}"
        )


def _parse_tool_input_argument(text: str) -> dict[str, Any]:
    from shoal.wire.json_codec import decode_json

    if text == "-":
        from shoal.surfaces.cli.headless.stdin import read_prompt_from_stdin

        text = read_prompt_from_stdin()
    try:
        tool_input = decode_json(text.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise click.UsageError(f"INPUT_JSON is not valid JSON: {error}") from error
    if not isinstance(tool_input, dict):
        raise click.UsageError('INPUT_JSON must be a JSON object, such as {"command": "git push"}.')
    return tool_input


def _format_permission_explanation(explanation: PermissionExplanation, *, colours: bool) -> Iterator[str]:
    from shoal.surfaces.terminal.question_text import describe_permission_suggestion

    decision = apply_style(explanation.decision, BEHAVIOR_STYLES[explanation.decision], colours=colours)
    reason = strip_terminal_codes(explanation.reason)
    yield f"{decision}  {explanation.tool} in {explanation.mode} mode: {reason}"
    if explanation.rule is not None:
        yield f"  rule    {strip_terminal_codes(explanation.rule)}"
        yield f"  source  {strip_terminal_codes(explanation.source or '')}"
    for part in explanation.parts:
        part_decision = apply_style(f"{part.decision:<5}", BEHAVIOR_STYLES[part.decision], colours=colours)
        wrapper_note = f" (under {', '.join(part.via)})" if part.via else ""
        yield f"  {part_decision}  {truncate_text(strip_terminal_codes(part.text), _MAX_WIDTH)}{wrapper_note}"
        yield apply_style(f"         {strip_terminal_codes(part.reason)}", DIM, colours=colours)
    if explanation.suggestions:
        yield "Allow it once when asked, or add a rule:"
        yield from (
            f"  {_DESTINATION_LABELS[each.destination]}: {describe_permission_suggestion(each)}"
            for each in explanation.suggestions
        )
