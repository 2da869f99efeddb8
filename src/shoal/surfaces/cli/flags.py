"""Flags of a run, and the `Options` built from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click import Option

from shoal.surfaces.cli import program_flags
from shoal.surfaces.cli.comfort_flags import build_comfort_options

if TYPE_CHECKING:
    from shoal.app.options import Options

PICK_SESSION = "\0pick"
"""Value of `--resume` without an id: choose from the list."""
PERMISSION_MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto", "manual")
_SECONDS_PER_UNIT = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def parse_duration(value: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", value)
    if match is None or float(match[1]) <= 0:
        raise click.BadParameter(
            f"{value!r} is not a duration. Use a number of seconds, or a value such as 90s, 10m or 2h."
        )
    return float(match[1]) * _SECONDS_PER_UNIT[match[2] or ""]


def parse_budget(value: str) -> float:
    """Parse dollars; rejects NaN and infinity, which could never be reached."""
    try:
        usd = float(value)
    except ValueError:
        usd = 0.0
    if not 0 < usd < float("inf"):
        raise click.BadParameter(f"{value!r} is not a dollar amount greater than 0.")
    return usd


def parse_permission_mode(value: str) -> str:
    """Parse a permission mode, ignoring case."""
    for mode in PERMISSION_MODES:
        if value.lower() == mode.lower():
            return mode
    raise click.BadParameter(f"{value!r} is not one of {', '.join(PERMISSION_MODES)}.")


def parse_session_uuid(value: str) -> str:
    from shoal.core.ids import is_uuid

    if not is_uuid(value):
        raise click.BadParameter(f"{value!r} is not a UUID. `uuidgen` prints one.")
    return value


def parse_permission_prompt_tool(value: str) -> str:
    if value == "stdio" or re.fullmatch(r"mcp__.+__.+", value):
        return value
    raise click.BadParameter(f"{value!r} is neither mcp__SERVER__TOOL nor stdio.")


def parse_directory(value: str) -> Path:
    path = Path(value).expanduser()
    if not path.is_dir():
        raise click.BadParameter(f"{str(path)!r} is not a directory.")
    return path


_RUN_FLAGS = (
    Option(
        ["-p", "--print", "print_"],
        is_flag=True,
        help="Run headless: answer PROMPT, print the result and exit.",
    ),
    Option(
        ["-c", "--continue", "continue_last"], is_flag=True, help="Resume the last session in this directory."
    ),
    Option(
        ["-r", "--resume"],
        is_flag=False,
        flag_value=PICK_SESSION,
        default=None,
        metavar="[ID]",
        help="Resume a session by its name, its id or the beginning of its id. Without a value, choose "
        "from a list.",
    ),
    Option(
        ["-n", "--name", "title"], metavar="NAME", help="Name the session, so that --resume NAME can find it."
    ),
    Option(
        ["-w", "--worktree"],
        is_flag=False,
        flag_value="",
        default=None,
        metavar="[NAME|#PR]",
        help="Work in a git worktree under .claude/worktrees; create it if it does not exist.",
    ),
    Option(
        ["--init", "init"],
        is_flag=True,
        help="Run the Setup hooks whose trigger is `init` before the session starts.",
    ),
    Option(["--init-only"], is_flag=True, help="Run the Setup and SessionStart hooks, then exit."),
    Option(
        ["--maintenance"],
        is_flag=True,
        help="Run the Setup hooks whose trigger is `maintenance` before the session starts.",
    ),
    Option(["--fork-session", "fork"], is_flag=True, help="Continue in a copy of the resumed session."),
    Option(["--session-id"], type=parse_session_uuid, metavar="UUID", help="Give the new session this id."),
    Option(
        ["--no-session-persistence", "forget"],
        is_flag=True,
        help="Store nothing on disk; the session cannot be resumed.",
    ),
)
_MODEL_FLAGS = (
    Option(["--model"], metavar="NAME", help="provider:name, a model name, an alias, or replay:FILE."),
    Option(["--system-prompt"], metavar="TEXT", help="Replace the system prompt."),
    Option(["--append-system-prompt"], metavar="TEXT", help="Append to the system prompt."),
    Option(
        ["--record"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Record every reply in FILE, for --model replay:FILE.",
    ),
)
_AGENT_FLAGS = (
    Option(["--agents"], metavar="JSON|FILE", help="Define agents for this run, as JSON."),
    Option(
        ["--teammate-mode"],
        type=click.Choice(("auto", "in-process", "process", "tmux", "iterm2", "ray")),
        metavar="MODE",
        help="Backend for teammates: in-process, process, tmux, iterm2, ray or auto.",
    ),
    Option(["--agent"], metavar="NAME", help="Use this agent's prompt, tools and model for the lead."),
    Option(
        ["--coordinator"], is_flag=True, help="Restrict the lead to starting, messaging and stopping agents."
    ),
    Option(
        ["--assistant"],
        is_flag=True,
        help="Stay open for messages and scheduled prompts while agents work in the background.",
    ),
)
_PLUGIN_FLAGS = (
    Option(
        ["--plugin-dir", "plugin_dirs"],
        multiple=True,
        type=parse_directory,
        metavar="DIR",
        help="Load a plug-in for this run; repeatable.",
    ),
)
plugin_dirs_option = click.option(
    "--plugin-dir",
    "plugin_dirs",
    multiple=True,
    type=parse_directory,
    metavar="DIR",
    help="Load another plug-in.",
)
settings_option = click.option(
    "--settings", metavar="FILE|JSON", help="Additional settings, as JSON or a file."
)
_MCP_FLAGS = (
    Option(
        ["--mcp-config"],
        multiple=True,
        metavar="FILE|JSON",
        help="MCP servers for this run, in the format of .mcp.json; repeatable.",
    ),
    Option(["--strict-mcp-config"], is_flag=True, help="Use only the MCP servers from --mcp-config."),
    Option(
        ["--channels"],
        multiple=True,
        metavar="server:NAME",
        help="Let this MCP server push messages to the lead; repeatable.",
    ),
)
_LIMIT_FLAGS = (
    Option(
        ["--max-turns"], type=click.IntRange(min=1), metavar="N", help="Send at most N requests to the model."
    ),
    Option(
        ["--max-budget-usd"],
        type=parse_budget,
        metavar="USD",
        help="Stop when the session and all its agents have spent this much.",
    ),
    Option(
        ["--max-total-tokens"],
        type=click.IntRange(min=1),
        metavar="N",
        help="Stop when the session and all its agents have used this many tokens.",
    ),
    Option(
        ["--task-budget"],
        type=click.IntRange(min=1),
        hidden=True,
        metavar="N",
        help="The same as --max-total-tokens; the lower value applies.",
    ),
    Option(
        ["--max-agents"],
        type=click.IntRange(min=1),
        metavar="N",
        help="Start at most N agents in addition to the lead.",
    ),
    Option(["--deadline"], type=parse_duration, metavar="TIME", help="Stop after this time: 90s, 10m, 2h."),
)
_PERMISSION_FLAGS = (
    Option(
        ["--permission-mode", "mode"],
        type=parse_permission_mode,
        metavar="MODE",
        help="default (or manual), acceptEdits, plan, dontAsk or bypassPermissions; auto means default.",
    ),
    Option(
        ["--dangerously-skip-permissions", "skip_permissions"],
        is_flag=True,
        help="Run every tool without asking. Use only in an environment that you can afford to lose.",
    ),
    Option(
        ["--allow-dangerously-skip-permissions", "allow_bypass"],
        is_flag=True,
        help="Allow the session to switch to bypassPermissions mode later.",
    ),
    Option(
        ["--allowedTools", "--allowed-tools", "allowed_tools"],
        multiple=True,
        metavar="RULES",
        help='Run these tools without asking: "Read,Bash(git log:*)".',
    ),
    Option(
        ["--disallowedTools", "--disallowed-tools", "disallowed_tools"],
        multiple=True,
        metavar="RULES",
        help="Never run these tools.",
    ),
    Option(
        ["--tools", "available"],
        multiple=True,
        metavar="NAMES",
        help='Give agents only these tools: "Bash,Edit,Read".',
    ),
    Option(
        ["--permission-prompt-tool"],
        type=parse_permission_prompt_tool,
        metavar="TOOL",
        help="Let this MCP tool (mcp__SERVER__TOOL) answer questions. With the value stdio and "
        "--input-format stream-json, questions go to the program that controls the run.",
    ),
    Option(
        ["--add-dir", "add_dirs"],
        type=parse_directory,
        multiple=True,
        metavar="DIR",
        help="Let tools work in this directory too.",
    ),
)
_FORMAT_FLAGS = (
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
        help="text or stream-json (prompts and control requests, one per line).",
    ),
    Option(
        ["--include-partial-messages"],
        is_flag=True,
        help="With stream-json: send partial answers as they arrive.",
    ),
    Option(["--replay-user-messages"], is_flag=True, help="With stream-json: echo the messages from stdin."),
    Option(
        ["--verbose"], is_flag=True, help="Headless: report the cost and duration of each turn on stderr."
    ),
    Option(["-q", "--quiet"], is_flag=True, help="Headless: print no notices or progress on stderr."),
    Option(
        ["--plain", "--ax-screen-reader", "plain"],
        is_flag=True,
        help="Use the line-based terminal instead of the full screen.",
    ),
)
_SETTINGS_FLAGS = (
    Option(["--settings"], metavar="FILE|JSON", help="Additional settings, as JSON or a file."),
    Option(
        ["--bare", "--safe-mode", "bare"],
        is_flag=True,
        help="Load no hooks, skills, agents, plug-ins, MCP servers or instructions from files.",
    ),
    Option(
        ["--disable-slash-commands", "no_slash_commands"], is_flag=True, help="Load no skills or commands."
    ),
    Option(
        ["-d", "--debug", "--debug-to-stderr", "debug"],
        is_flag=True,
        help="Show tracebacks and write a debug log to the home directory. --debug=WORDS logs only events "
        "whose names contain one of these words, for example api,hooks or !mcp.",
    ),
    Option(["--debug-filter"], hidden=True, default="", help="The same as the words in --debug=WORDS."),
    Option(
        ["--debug-file"],
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write the debug log to this file.",
    ),
    Option(["--ide"], is_flag=True, hidden=True, help="Accepted for compatibility; has no effect."),
    Option(["--no-chrome"], is_flag=True, hidden=True, help="Accepted for compatibility; has no effect."),
)

FLAG_SECTIONS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("Run", _RUN_FLAGS),
    ("Model", (*_MODEL_FLAGS, *program_flags.MODEL_FLAGS)),
    ("Agents", (*_AGENT_FLAGS, *_PLUGIN_FLAGS)),
    ("MCP servers", _MCP_FLAGS),
    ("Limits", _LIMIT_FLAGS),
    ("Permissions", _PERMISSION_FLAGS),
    ("Input and output", (*_FORMAT_FLAGS, *program_flags.FORMAT_FLAGS)),
    ("Settings", (*_SETTINGS_FLAGS, *program_flags.SETTINGS_FLAGS, *build_comfort_options())),
)


def parse_permission_rules(values: Sequence[str], flag: str) -> tuple[str, ...]:
    """Parse the rules of a flag here, so that an error can name the flag."""
    from shoal.core.errors import SettingsError
    from shoal.policy.permission_rules import parse_permission_rule, split_permission_rule_list

    try:
        return tuple(
            str(parse_permission_rule(rule, flag))
            for value in values
            for rule in split_permission_rule_list(value)
        )
    except SettingsError as error:
        raise click.BadParameter(str(error), param_hint=flag) from error


def parse_tool_names(values: Sequence[str]) -> tuple[str, ...] | None:
    """Parse the tool names of `--tools`; None means all tools."""
    tool_names = tuple(name for value in values for name in value.replace(",", " ").split())
    if not values or tool_names == ("default",):
        return None
    from shoal.core.names import FORMER_TOOL_NAMES

    return tuple(FORMER_TOOL_NAMES.get(name, name) for name in tool_names)


def check_agents_flag(value: str | None) -> str | None:
    """Check the value of `--agents` here, so that an error can name the flag."""
    if value is not None:
        from shoal.app.definitions.agent_catalog import parse_agents_option
        from shoal.core.errors import InvalidAgentDefinition

        try:
            parse_agents_option(value, Path.cwd())
        except InvalidAgentDefinition as error:
            raise _build_flag_error("--agents", error) from error
    return value


def _build_flag_error(flag: str, error: Exception) -> click.UsageError:
    """Build a usage error that names the flag once: many errors already name it."""
    message = str(error)
    return (
        click.UsageError(message)
        if message.startswith(flag)
        else click.BadParameter(message, param_hint=flag)
    )


def check_mcp_config_flag(values: Sequence[str]) -> tuple[str, ...]:
    """Check the values of `--mcp-config` here, so that an error can name the flag."""
    if values:
        from shoal.app.settings.mcp_files import parse_mcp_config_option
        from shoal.core.errors import SettingsError

        try:
            for value in values:
                parse_mcp_config_option(value, Path.cwd())
        except SettingsError as error:
            raise _build_flag_error("--mcp-config", error) from error
    return tuple(values)


def check_mcp_channels_flag(values: Sequence[str]) -> tuple[str, ...]:
    """Check the values of `--channels` here, so that an error can name the flag."""
    if values:
        from shoal.app.mcp.mcp_channels import parse_mcp_channel_names
        from shoal.core.errors import SettingsError

        try:
            parse_mcp_channel_names(values, "--channels")
        except SettingsError as error:
            raise _build_flag_error("--channels", error) from error
    return tuple(values)


def options_from_flags(flag_values: Mapping[str, Any], *, attended: bool) -> Options:
    from shoal.app.options import Options

    return Options(
        model=flag_values["model"],
        mode=flag_values["mode"],
        skip_permissions=flag_values["skip_permissions"],
        allowed_tools=parse_permission_rules(flag_values["allowed_tools"], "--allowedTools"),
        disallowed_tools=parse_permission_rules(flag_values["disallowed_tools"], "--disallowedTools"),
        available_tools=parse_tool_names(flag_values["available"]),
        add_dirs=flag_values["add_dirs"],
        max_turns=flag_values["max_turns"],
        max_budget_usd=flag_values["max_budget_usd"],
        max_total_tokens=min(
            filter(None, (flag_values["max_total_tokens"], flag_values["task_budget"])), default=None
        ),
        max_agents=flag_values["max_agents"],
        deadline=flag_values["deadline"],
        resume=flag_values["resume"],
        continue_last=flag_values["continue_last"],
        fork=flag_values["fork"],
        session_id=flag_values["session_id"],
        setup=_get_setup_trigger(flag_values),
        agents=check_agents_flag(flag_values["agents"]),
        agent=flag_values["agent"],
        coordinator=flag_values["coordinator"] or None,
        mcp_config=check_mcp_config_flag(flag_values["mcp_config"]),
        strict_mcp_config=flag_values["strict_mcp_config"],
        channels=check_mcp_channels_flag(flag_values["channels"]),
        assistant=flag_values["assistant"] or None,
        plugin_dirs=flag_values["plugin_dirs"],
        settings=flag_values["settings"],
        record=flag_values["record"],
        attended=attended,
        persist=not flag_values["forget"],
        bare=flag_values["bare"],
        slash_commands=not flag_values["no_slash_commands"],
        allow_bypass=flag_values["allow_bypass"],
        title=flag_values["title"],
        teammate_mode=flag_values["teammate_mode"],
        debug=flag_values["debug"] or flag_values["debug_file"] is not None,
        debug_file=flag_values["debug_file"],
        debug_filter=flag_values["debug_filter"],
        **program_flags.build_option_fields_from_flags(flag_values),
    )


def _get_setup_trigger(flag_values: Mapping[str, Any]) -> Literal["init", "maintenance"] | None:
    if flag_values["maintenance"]:
        return "maintenance"
    return "init" if flag_values["init"] or flag_values["init_only"] else None


def check_flag_conflicts(flag_values: Mapping[str, Any], *, headless: bool) -> None:
    """Reject flags that contradict each other, each with a hint about what to do instead."""
    is_resuming = flag_values["resume"] is not None or flag_values["continue_last"]
    if flag_values["resume"] is not None and flag_values["continue_last"]:
        raise click.UsageError(
            "--resume and --continue cannot be used together because --continue resumes the last session."
        )
    if flag_values["resume"] == PICK_SESSION and headless:
        raise click.UsageError(
            "--resume needs a session id. List them with `shoal sessions`, or use --continue for "
            "the last one."
        )
    if flag_values["fork"] and not is_resuming:
        raise click.UsageError("--fork-session needs a session to copy: add --resume ID or --continue.")
    if flag_values["session_id"] and is_resuming and not flag_values["fork"]:
        raise click.UsageError(
            "--session-id works only for a new session. Add --fork-session, or leave out one of the flags."
        )
    if flag_values["forget"] and is_resuming:
        raise click.UsageError(
            "--no-session-persistence stores nothing. It cannot be used with --resume or --continue."
        )
    _check_output_format_conflicts(flag_values)


def _check_output_format_conflicts(flag_values: Mapping[str, Any]) -> None:
    if flag_values["assistant"] and flag_values["output_format"] == "json":
        raise click.UsageError(
            "--assistant keeps the session open, so --output-format json would never print its result. Use "
            "text or stream-json."
        )
    if flag_values["input_format"] == "stream-json" and flag_values["output_format"] != "stream-json":
        raise click.UsageError("--input-format stream-json needs --output-format stream-json.")
    if flag_values["permission_prompt_tool"] == "stdio" and flag_values["input_format"] != "stream-json":
        raise click.UsageError("--permission-prompt-tool stdio needs --input-format stream-json.")
    for flag in ("include_partial_messages", "replay_user_messages"):
        if flag_values[flag] and flag_values["output_format"] != "stream-json":
            raise click.UsageError(f"--{flag.replace('_', '-')} needs --output-format stream-json.")
