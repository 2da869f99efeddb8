"""Arguments of `shoal mcp add`, in the orders that Claude Code accepts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

_VALUE_OPTIONS = ("-s", "--scope", "-t", "--transport", "-e", "--env", "-H", "--header")
_REPEATED = {
    "-e": re.compile(r"[A-Za-z_]\w*="),
    "--env": re.compile(r"[A-Za-z_]\w*="),
    "-H": re.compile(r"[\w-]+:\s"),
    "--header": re.compile(r"[\w-]+:\s"),
}
"""Options that take several values in a row."""


class McpAddCommand(click.Command):
    """Command whose options may precede or follow the name; those of the added command are left alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, order_mcp_add_arguments(args))


def order_mcp_add_arguments(args: Sequence[str]) -> list[str]:
    """Return the options first, then `--`, the name, and the command or the URL."""
    options: list[str] = []
    words: list[str] = []
    pending = list(args)
    while pending:
        word = pending.pop(0)
        if word == "--":
            words += pending
            break
        if _is_command_complete(words, options):
            words += [word, *pending]
            break
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        options.append(word)
        if word in _VALUE_OPTIONS and pending:
            options.append(pending.pop(0))
            while word in _REPEATED and pending and _REPEATED[word].match(pending[0]):
                options += [word, pending.pop(0)]
    return [*options, "--", *words] if words else options


def _is_command_complete(words: Sequence[str], options: Sequence[str]) -> bool:
    """Return True if the rest belongs to a command: it was named, and it is not a URL."""
    is_url = len(words) > 1 and words[1].startswith(("http://", "https://"))
    return len(words) > 1 and not is_url and not {"http", "sse"} & set(options)


def parse_mcp_server_json(text: str) -> dict[str, Any]:
    """Return the configuration that `shoal mcp add-json` is given. Raises `UsageError`."""
    from shoal.wire.json_codec import decode_json

    try:
        raw = decode_json(text.encode())
    except ValueError as error:
        raise click.UsageError(f"The configuration is not valid JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise click.UsageError('Write the configuration as a JSON object: {"command": "…", "args": []}.')
    return raw
