"""Flags that mostly programs pass, and the options built from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click import Option

EFFORTS = ("low", "medium", "high", "xhigh", "max")
SETTING_SOURCES = ("user", "project", "local")
_DEFAULT_EFFORT = "high"
"""Effort used if thinking is requested without a level."""

MODEL_FLAGS = (
    Option(
        ["--system-prompt-file"], metavar="FILE", help="Replace the system prompt with the text of a file."
    ),
    Option(
        ["--append-system-prompt-file"],
        metavar="FILE",
        help="Append the text of a file to the system prompt.",
    ),
    Option(
        ["--fallback-model"],
        metavar="NAME",
        help="Use this model if the main model does not answer. Separate up to three names with commas.",
    ),
    Option(["--effort"], type=click.Choice(EFFORTS), metavar="LEVEL", help=f"{', '.join(EFFORTS)}."),
    Option(
        ["--thinking"],
        type=click.Choice(("adaptive", "enabled", "disabled")),
        metavar="HOW",
        help="adaptive (uses --effort), or disabled.",
    ),
    Option(
        ["--max-thinking-tokens"],
        type=click.IntRange(min=0),
        metavar="N",
        help="Use at most N thinking tokens.",
    ),
    Option(
        ["--thinking-display"],
        type=click.Choice(("summarized", "omitted")),
        metavar="HOW",
        hidden=True,
        help="Accepted for compatibility; has no effect.",
    ),
    Option(["--betas"], multiple=True, metavar="NAMES", help="Enable these Messages API betas."),
)
FORMAT_FLAGS = (
    Option(["--json-schema"], metavar="JSON|FILE", help="JSON Schema for the answer (structured_output)."),
    Option(["--include-hook-events"], is_flag=True, help="With stream-json: include hook events."),
)
SETTINGS_FLAGS = (
    Option(
        ["--setting-sources"],
        metavar="NAMES",
        help='Load settings and agents only from these sources, for example "user,project".',
    ),
)


def build_option_fields_from_flags(flag_values: Mapping[str, Any]) -> dict[str, Any]:
    """Build fields of `Options`. An unusable value raises a `BadParameter` that names the flag."""
    return {
        "system_prompt": _read_text_flag(flag_values, "system_prompt"),
        "append_system_prompt": _read_text_flag(flag_values, "append_system_prompt"),
        "fallback_model": flag_values["fallback_model"],
        "thinking_tokens": _resolve_thinking_tokens(flag_values),
        "effort": _find_effort(flag_values),
        "betas": tuple(name for value in flag_values["betas"] for name in value.replace(",", " ").split()),
        "output_schema": _load_output_schema(flag_values["json_schema"]),
        "setting_sources": _parse_setting_sources(flag_values["setting_sources"]),
    }


def _read_text_flag(flag_values: Mapping[str, Any], name: str) -> str | None:
    """Return the text of a flag, or of the file named by its `-file` counterpart."""
    flag, path = f"--{name.replace('_', '-')}", flag_values[f"{name}_file"]
    if path is None:
        text: str | None = flag_values[name]
        return text
    if flag_values[name] is not None:
        raise click.UsageError(f"{flag} and {flag}-file cannot be used together.")
    return _read_flag_file(path, f"{flag}-file")


def _read_flag_file(path: str, flag: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path!r} is not UTF-8 text.", param_hint=flag) from error
    except OSError as error:
        raise click.BadParameter(f"Cannot read {path!r}: {error.strerror}.", param_hint=flag) from error


def _find_effort(flag_values: Mapping[str, Any]) -> str | None:
    """Return the effort unless another flag sets the thinking tokens."""
    if flag_values["thinking"] == "disabled" or flag_values["max_thinking_tokens"] is not None:
        return None
    effort: str | None = flag_values["effort"]
    return effort


def _resolve_thinking_tokens(flag_values: Mapping[str, Any]) -> int | None:
    """Return the number of thinking tokens; None if no flag sets it."""
    thinking_mode, tokens, effort = (
        flag_values["thinking"],
        flag_values["max_thinking_tokens"],
        flag_values["effort"],
    )
    if thinking_mode == "disabled":
        return 0
    if tokens is not None:
        return int(tokens)
    if effort is None and thinking_mode is None:
        return None
    from shoal.app.agents.spawn_requests import parse_effort_thinking_tokens

    return parse_effort_thinking_tokens(effort or _DEFAULT_EFFORT)


def _load_output_schema(value: str | None) -> Mapping[str, Any] | None:
    if value is None:
        return None
    from shoal.wire.json_codec import decode_json

    text = value if value.lstrip().startswith(("{", "[")) else _read_flag_file(value, "--json-schema")
    try:
        schema = decode_json(text.encode())
    except ValueError as error:
        raise click.BadParameter(f"it is not valid JSON ({error}).", param_hint="--json-schema") from error
    if not isinstance(schema, dict):
        raise click.BadParameter("a JSON Schema must be an object.", param_hint="--json-schema")
    return schema


def _parse_setting_sources(value: str | None) -> tuple[str, ...] | None:
    """Parse `--setting-sources`; None means all sources."""
    if value is None:
        return None
    names = tuple(value.replace(",", " ").split())
    for name in names:
        if name not in SETTING_SOURCES:
            message = f"{name!r} is not one of {', '.join(SETTING_SOURCES)}."
            raise click.BadParameter(message, param_hint="--setting-sources")
    return names


def split_relayed_mcp_servers(values: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split `--mcp-config` into the names of servers in the driving program, and the remaining values."""
    from shoal.wire.json_codec import encode_json

    names: list[str] = []
    rest: list[str] = []
    for value in values:
        servers = _parse_inline_mcp_servers(value)
        relayed_names = [name for name, each in servers.items() if _is_relayed_mcp_server(each)]
        others = {name: each for name, each in servers.items() if name not in relayed_names}
        names += relayed_names
        rest.append(encode_json({"mcpServers": others}).decode() if relayed_names else value)
    return tuple(names), tuple(rest)


def _parse_inline_mcp_servers(value: str) -> Mapping[str, Any]:
    """Parse the servers of an inline JSON value: a file cannot name a server that lives in a program."""
    from shoal.wire.json_codec import decode_json

    try:
        raw = decode_json(value.encode()) if value.lstrip().startswith("{") else None
    except ValueError:
        return {}  # reported where the flag is read
    servers = raw.get("mcpServers") if isinstance(raw, dict) else None
    return servers if isinstance(servers, dict) else {}


def _is_relayed_mcp_server(server: object) -> bool:
    return isinstance(server, Mapping) and server.get("type") == "sdk"
