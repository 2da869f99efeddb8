"""Flags of a run, and the `Options` built from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import Option

from shoal.surfaces.cli import program_flags

if TYPE_CHECKING:
    from shoal.app.options import Options

PICK = "\0pick"
"""Value of `--resume` without an id: choose from the list."""
MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def duration(value: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", value)
    if found is None or float(found[1]) <= 0:
        raise click.BadParameter(f"{value!r} is not a time: write seconds, or 90s, 10m, 2h.")
    return float(found[1]) * _UNITS[found[2] or ""]


def budget(value: str) -> float:
    """Parse dollars; rejects NaN and infinity, which could never be reached."""
    try:
        usd = float(value)
    except ValueError:
        usd = 0.0
    if not 0 < usd < float("inf"):
        raise click.BadParameter(f"{value!r} is no number of dollars above 0.")
    return usd


def permission_mode(value: str) -> str:
    """Parse a permission mode, ignoring case."""
    for mode in MODES:
        if value.lower() == mode.lower():
            return mode
    raise click.BadParameter(f"{value!r} is not one of {', '.join(MODES)}.")


def session_uuid(value: str) -> str:
    from shoal.core.ids import is_uuid

    if not is_uuid(value):
        raise click.BadParameter(f"{value!r} is not a UUID (as `uuidgen` prints one).")
    return value


def directory(value: str) -> Path:
    path = Path(value).expanduser()
    if not path.is_dir():
        raise click.BadParameter(f"{str(path)!r} is not a directory.")
    return path


_RUN = (
    Option(["-p", "--print", "print_"], is_flag=True, help="Headless: answer PROMPT, print, exit."),
    Option(["-c", "--continue", "continue_last"], is_flag=True, help="Go on with the last session here."),
    Option(
        ["-r", "--resume"],
        is_flag=False,
        flag_value=PICK,
        default=None,
        metavar="[ID]",
        help="Go on with a session: its id or the start of it. Without: choose from a list.",
    ),
    Option(["--fork-session", "fork"], is_flag=True, help="Go on in a copy of the resumed session."),
    Option(["--session-id"], type=session_uuid, metavar="UUID", help="Give the new session this id."),
    Option(
        ["--no-session-persistence", "forget"], is_flag=True, help="Keep nothing on disk; cannot be resumed."
    ),
)
_MODEL = (
    Option(["--model"], metavar="NAME", help="provider:name, a name, an alias, or replay:FILE."),
    Option(["--system-prompt"], metavar="TEXT", help="Replace the system prompt."),
    Option(["--append-system-prompt"], metavar="TEXT", help="Add to the system prompt."),
    Option(
        ["--record"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Keep every reply for replay:FILE.",
    ),
)
_AGENTS = (
    Option(["--agents"], metavar="JSON|FILE", help="Agents for this run: names and their fields."),
    Option(["--coordinator"], is_flag=True, help="The lead only starts, tells and stops agents."),
    Option(["--assistant"], is_flag=True, help="Stay open for people and schedules; agents work beside."),
)
_PLUGINS = (
    Option(
        ["--plugin-dir", "plugin_dirs"],
        multiple=True,
        type=directory,
        metavar="DIR",
        help="A plug-in for this run; may be given again.",
    ),
)
plugin_dirs_option = click.option(
    "--plugin-dir", "plugin_dirs", multiple=True, type=directory, metavar="DIR", help="A plug-in on top."
)
settings_option = click.option("--settings", metavar="FILE|JSON", help="Settings on top of those in files.")
_SERVERS = (
    Option(
        ["--mcp-config"],
        multiple=True,
        metavar="FILE|JSON",
        help="MCP servers for this run, written as in .mcp.json; may be given again.",
    ),
    Option(["--strict-mcp-config"], is_flag=True, help="No other MCP servers than those."),
    Option(
        ["--channels"],
        multiple=True,
        metavar="server:NAME",
        help="Let this MCP server push messages to the lead; may be given again.",
    ),
)
_LIMITS = (
    Option(["--max-turns"], type=click.IntRange(min=1), metavar="N", help="At most N requests to the model."),
    Option(
        ["--max-budget-usd"],
        type=budget,
        metavar="USD",
        help="Stop before a request once the session with all its agents has spent this much.",
    ),
    Option(
        ["--max-total-tokens"],
        type=click.IntRange(min=1),
        metavar="N",
        help="The same for tokens, read and written.",
    ),
    Option(
        ["--max-agents"],
        type=click.IntRange(min=1),
        metavar="N",
        help="Start at most N agents beside the lead.",
    ),
    Option(["--deadline"], type=duration, metavar="TIME", help="Stop after this time: 90s, 10m, 2h."),
)
_ALLOWED = (
    Option(
        ["--permission-mode", "mode"],
        type=permission_mode,
        metavar="MODE",
        help="default, acceptEdits, plan, dontAsk or bypassPermissions.",
    ),
    Option(
        ["--dangerously-skip-permissions", "skip_permissions"],
        is_flag=True,
        help="Run every tool without asking. For places where nothing can be harmed.",
    ),
    Option(
        ["--allowedTools", "--allowed-tools", "allowed_tools"],
        multiple=True,
        metavar="RULES",
        help='Run these without asking: "Read,Bash(git log:*)".',
    ),
    Option(
        ["--disallowedTools", "--disallowed-tools", "disallowed_tools"],
        multiple=True,
        metavar="RULES",
        help="Never run these.",
    ),
    Option(
        ["--tools", "available"],
        multiple=True,
        metavar="NAMES",
        help='Give the agent only these tools: "Bash,Edit,Read".',
    ),
    Option(
        ["--permission-prompt-tool"],
        type=click.Choice(("stdio",)),
        metavar="stdio",
        help="With --input-format stream-json: ask the program that drives the run.",
    ),
    Option(
        ["--add-dir", "add_dirs"],
        type=directory,
        multiple=True,
        metavar="DIR",
        help="Let tools also work in DIR.",
    ),
)
_FORMS = (
    Option(
        ["--output-format"],
        type=click.Choice(("text", "json", "stream-json")),
        default="text",
        metavar="FORMAT",
        help="text, json (one result object) or stream-json (every message).",
    ),
    Option(
        ["--input-format"],
        type=click.Choice(("text", "stream-json")),
        default="text",
        metavar="FORMAT",
        help="text or stream-json (prompts and control requests, a line each).",
    ),
    Option(
        ["--include-partial-messages"], is_flag=True, help="In stream-json: pieces of answers as they come."
    ),
    Option(
        ["--replay-user-messages"], is_flag=True, help="In stream-json: also tell back what came from stdin."
    ),
    Option(["--verbose"], is_flag=True, help="Headless: say on stderr what each turn took."),
    Option(["-q", "--quiet"], is_flag=True, help="Headless: no progress on stderr."),
    Option(["--plain"], is_flag=True, help="At a terminal: line by line, no full screen."),
)
_SETTINGS = (
    Option(["--settings"], metavar="FILE|JSON", help="Settings on top of those in files."),
    Option(
        ["--debug", "--debug-to-stderr"],
        is_flag=True,
        help="Show tracebacks; write a debug log into the home.",
    ),
)

SECTIONS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("Run", _RUN),
    ("Model", (*_MODEL, *program_flags.MODEL)),
    ("Agents", (*_AGENTS, *_PLUGINS)),
    ("MCP servers", _SERVERS),
    ("Limits", _LIMITS),
    ("Permissions", _ALLOWED),
    ("Input and output", (*_FORMS, *program_flags.FORMS)),
    ("Settings", (*_SETTINGS, *program_flags.SETTINGS)),
)


def rules(values: Sequence[str], flag: str) -> tuple[str, ...]:
    """Parse the rules of a flag here, so that an error can name the flag."""
    from shoal.core.errors import SettingsError
    from shoal.policy.rules import parse_rule, split_rules

    try:
        return tuple(str(parse_rule(rule, flag)) for value in values for rule in split_rules(value))
    except SettingsError as error:
        raise click.BadParameter(str(error), param_hint=flag) from error


def names(values: Sequence[str]) -> tuple[str, ...] | None:
    """Parse the tool names of `--tools`; None means all tools."""
    listed = tuple(name for value in values for name in value.replace(",", " ").split())
    return None if not values or listed == ("default",) else listed


def agents(value: str | None) -> str | None:
    """Check the value of `--agents` here, so that an error can name the flag."""
    if value is not None:
        from shoal.app.definitions.definitions import given_definitions
        from shoal.core.errors import BadDefinition

        try:
            given_definitions(value, Path.cwd())
        except BadDefinition as error:
            raise _refused("--agents", error) from error
    return value


def _refused(flag: str, error: Exception) -> click.UsageError:
    """Build a usage error that names the flag once: many errors already name it."""
    told = str(error)
    return click.UsageError(told) if told.startswith(flag) else click.BadParameter(told, param_hint=flag)


def servers(values: Sequence[str]) -> tuple[str, ...]:
    """Check the values of `--mcp-config` here, so that an error can name the flag."""
    if values:
        from shoal.app.settings.mcp_files import given_servers
        from shoal.core.errors import SettingsError

        try:
            for value in values:
                given_servers(value, Path.cwd())
        except SettingsError as error:
            raise _refused("--mcp-config", error) from error
    return tuple(values)


def channels(values: Sequence[str]) -> tuple[str, ...]:
    """Check the values of `--channels` here, so that an error can name the flag."""
    if values:
        from shoal.app.mcp.channels import named_channels
        from shoal.core.errors import SettingsError

        try:
            named_channels(values, "--channels")
        except SettingsError as error:
            raise _refused("--channels", error) from error
    return tuple(values)


def options_from(given: Mapping[str, Any], *, attended: bool) -> Options:
    from shoal.app.options import Options

    return Options(
        model=given["model"],
        mode=given["mode"],
        skip_permissions=given["skip_permissions"],
        allowed_tools=rules(given["allowed_tools"], "--allowedTools"),
        disallowed_tools=rules(given["disallowed_tools"], "--disallowedTools"),
        available_tools=names(given["available"]),
        add_dirs=given["add_dirs"],
        max_turns=given["max_turns"],
        max_budget_usd=given["max_budget_usd"],
        max_total_tokens=given["max_total_tokens"],
        max_agents=given["max_agents"],
        deadline=given["deadline"],
        resume=given["resume"],
        continue_last=given["continue_last"],
        fork=given["fork"],
        session_id=given["session_id"],
        agents=agents(given["agents"]),
        coordinator=given["coordinator"] or None,
        mcp_config=servers(given["mcp_config"]),
        strict_mcp_config=given["strict_mcp_config"],
        channels=channels(given["channels"]),
        assistant=given["assistant"] or None,
        plugin_dirs=given["plugin_dirs"],
        settings=given["settings"],
        record=given["record"],
        attended=attended,
        persist=not given["forget"],
        debug=given["debug"],
        **program_flags.more_options(given),
    )


def check_together(given: Mapping[str, Any], *, headless: bool) -> None:
    """Reject flags that contradict each other, each with a hint what to do instead."""
    resumes = given["resume"] is not None or given["continue_last"]
    if given["resume"] is not None and given["continue_last"]:
        raise click.UsageError(
            "--resume and --continue exclude each other: --continue takes the last session."
        )
    if given["resume"] == PICK and headless:
        raise click.UsageError(
            "--resume needs the id of a session here: `shoal sessions` lists them, --continue takes the last."
        )
    if given["fork"] and not resumes:
        raise click.UsageError("--fork-session needs a session to copy: add --resume ID or --continue.")
    if given["session_id"] and resumes and not given["fork"]:
        raise click.UsageError(
            "--session-id names a new session: add --fork-session, or leave one of them out."
        )
    if given["forget"] and resumes:
        raise click.UsageError("--no-session-persistence keeps nothing, so it cannot go on with a session.")
    _check_formats(given)


def _check_formats(given: Mapping[str, Any]) -> None:
    if given["assistant"] and given["output_format"] == "json":
        raise click.UsageError(
            "--assistant stays open, and json is one result at the end: use text or stream-json."
        )
    if given["input_format"] == "stream-json" and given["output_format"] != "stream-json":
        raise click.UsageError("--input-format stream-json needs --output-format stream-json.")
    if given["permission_prompt_tool"] and given["input_format"] != "stream-json":
        raise click.UsageError("--permission-prompt-tool stdio needs --input-format stream-json.")
    for flag in ("include_partial_messages", "replay_user_messages"):
        if given[flag] and given["output_format"] != "stream-json":
            raise click.UsageError(f"--{flag.replace('_', '-')} needs --output-format stream-json.")
