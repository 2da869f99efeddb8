"""Flags that mostly programs pass, and the options built from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click import Option

EFFORTS = ("low", "medium", "high", "xhigh", "max")
SOURCES = ("user", "project", "local")
_ADAPTIVE = "high"
"""Effort used if thinking is requested without a level."""

MODEL = (
    Option(["--system-prompt-file"], metavar="FILE", help="Replace the system prompt by the text of a file."),
    Option(["--append-system-prompt-file"], metavar="FILE", help="Add the text of a file to it."),
    Option(["--fallback-model"], metavar="NAME", help="Ask this model when the first does not answer."),
    Option(["--effort"], type=click.Choice(EFFORTS), metavar="LEVEL", help=f"{', '.join(EFFORTS)}."),
    Option(
        ["--thinking"],
        type=click.Choice(("adaptive", "enabled", "disabled")),
        metavar="HOW",
        help="adaptive (as --effort says), or disabled.",
    ),
    Option(
        ["--max-thinking-tokens"],
        type=click.IntRange(min=0),
        metavar="N",
        help="Think with at most N tokens.",
    ),
    Option(
        ["--thinking-display"],
        type=click.Choice(("summarized", "omitted")),
        metavar="HOW",
        hidden=True,
        help="Taken for other programs' sake: thinking is told as the provider gives it.",
    ),
    Option(["--betas"], multiple=True, metavar="NAMES", help="Ask the Messages API for these betas."),
)
FORMS = (
    Option(
        ["--json-schema"], metavar="JSON|FILE", help="The answer must fit this schema: structured_output."
    ),
    Option(["--include-hook-events"], is_flag=True, help="In stream-json: what hooks did."),
)
SETTINGS = (
    Option(
        ["--setting-sources"], metavar="NAMES", help='Files to take settings and agents from: "user,project".'
    ),
)


def more_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Build fields of `Options`. An unusable value raises a `BadParameter` that names the flag."""
    return {
        "system_prompt": _one_of(given, "system_prompt"),
        "append_system_prompt": _one_of(given, "append_system_prompt"),
        "fallback_model": given["fallback_model"],
        "thinking_tokens": _thinking(given),
        "betas": tuple(name for value in given["betas"] for name in value.replace(",", " ").split()),
        "output_schema": _schema(given["json_schema"]),
        "setting_sources": _sources(given["setting_sources"]),
    }


def _one_of(given: Mapping[str, Any], name: str) -> str | None:
    """Return the text of a flag, or of the file named by its `-file` counterpart."""
    flag, path = f"--{name.replace('_', '-')}", given[f"{name}_file"]
    if path is None:
        text: str | None = given[name]
        return text
    if given[name] is not None:
        raise click.UsageError(f"{flag} and {flag}-file exclude each other.")
    return _text(path, f"{flag}-file")


def _text(path: str, flag: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path!r} is not UTF-8 text.", param_hint=flag) from error
    except OSError as error:
        raise click.BadParameter(f"{path!r} cannot be read: {error.strerror}.", param_hint=flag) from error


def _thinking(given: Mapping[str, Any]) -> int | None:
    """Return the number of thinking tokens; None if no flag sets it."""
    how, tokens, effort = given["thinking"], given["max_thinking_tokens"], given["effort"]
    if how == "disabled":
        return 0
    if tokens is not None:
        return int(tokens)
    if effort is None and how is None:
        return None
    from shoal.app.agents.orders import thinking_tokens

    return thinking_tokens(effort or _ADAPTIVE)


def _schema(value: str | None) -> Mapping[str, Any] | None:
    if value is None:
        return None
    from shoal.wire.content import load

    text = value if value.lstrip().startswith(("{", "[")) else _text(value, "--json-schema")
    try:
        schema = load(text.encode())
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON ({error}).", param_hint="--json-schema") from error
    if not isinstance(schema, dict):
        raise click.BadParameter("a JSON Schema is an object.", param_hint="--json-schema")
    return schema


def _sources(value: str | None) -> tuple[str, ...] | None:
    """Parse `--setting-sources`; None means all sources."""
    if value is None:
        return None
    names = tuple(value.replace(",", " ").split())
    for name in names:
        if name not in SOURCES:
            told = f"{name!r} is not one of {', '.join(SOURCES)}."
            raise click.BadParameter(told, param_hint="--setting-sources")
    return names


def relayed_servers(values: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split `--mcp-config` into the names of servers in the driving program, and the remaining values."""
    from shoal.wire.content import dump

    names: list[str] = []
    rest: list[str] = []
    for value in values:
        servers = _servers_in(value)
        own = [name for name, each in servers.items() if _is_relayed(each)]
        others = {name: each for name, each in servers.items() if name not in own}
        names += own
        rest.append(dump({"mcpServers": others}).decode() if own else value)
    return tuple(names), tuple(rest)


def _servers_in(value: str) -> Mapping[str, Any]:
    """Parse the servers of an inline JSON value: a file cannot name a server that lives in a program."""
    from shoal.wire.content import load

    try:
        raw = load(value.encode()) if value.lstrip().startswith("{") else None
    except ValueError:
        return {}  # reported where the flag is read
    servers = raw.get("mcpServers") if isinstance(raw, dict) else None
    return servers if isinstance(servers, dict) else {}


def _is_relayed(server: object) -> bool:
    return isinstance(server, Mapping) and server.get("type") == "sdk"
