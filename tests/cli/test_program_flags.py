"""Flags that programs pass: the options they set, and errors for unusable values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from shoal.app.options import Options
from shoal.surfaces.cli.flags import options_from_flags
from shoal.surfaces.cli.main import root_command, run_command_line
from shoal.surfaces.cli.program_flags import split_relayed_mcp_servers


def parse_options(*arguments: str) -> Options:
    with click.Context(root_command) as context:
        root_command.parse_args(context, list(arguments))
        return options_from_flags(context.params, attended=False)


@pytest.mark.parametrize(
    ("flags", "tokens"),
    [
        ((), None),
        (("--effort", "low"), 1_024),
        (("--thinking", "adaptive"), 16_384),
        (("--thinking", "adaptive", "--effort", "max"), 65_536),
        (("--thinking", "disabled", "--effort", "max"), 0),
        (("--max-thinking-tokens", "2000", "--thinking-display", "omitted"), 2_000),
    ],
)
def test_thinking_flags_become_one_number(flags: tuple[str, ...], tokens: int | None) -> None:
    assert parse_options(*flags).thinking_tokens == tokens


def test_an_empty_list_is_not_the_same_as_none() -> None:
    assert (parse_options().available_tools, parse_options("--tools", "default").available_tools) == (
        None,
        None,
    )
    assert parse_options("--tools", "").available_tools == ()
    assert parse_options().setting_sources is None
    assert parse_options("--setting-sources=").setting_sources == ()
    assert parse_options("--setting-sources=user,project").setting_sources == ("user", "project")


def test_a_flag_allows_skipping_permissions_later_without_doing_it_now() -> None:
    options = parse_options("--allow-dangerously-skip-permissions")
    assert (options.allow_bypass, options.skip_permissions) == (True, False)
    assert not parse_options().allow_bypass


def test_prompts_and_schemas_can_be_in_files(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("Be brief.")
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    found = parse_options(
        *("--append-system-prompt-file", str(tmp_path / "prompt.md")),
        *("--json-schema", str(tmp_path / "schema.json")),
        *("--betas", "one,two"),
    )
    assert (found.append_system_prompt, found.output_schema) == ("Be brief.", {"type": "object"})
    assert found.betas == ("one", "two")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--json-schema", "{not json"), "--json-schema"),
        (("--json-schema", "[]"), "--json-schema"),
        (("--setting-sources", "user,sea"), "'sea'"),
        (("--system-prompt-file", "/nowhere/at/all"), "--system-prompt-file"),
        (("--system-prompt", "a", "--system-prompt-file", "b"), "cannot be used together"),
        (("--effort", "boundless"), "boundless"),
        (("--task-budget", "0"), "--task-budget"),
        (("--session-mirror",), "--session-mirror"),
        (("--mcp-config", '{"mcpServers": {"a": {"type": "sdk"}}}'), "--input-format stream-json"),
    ],
)
def test_a_flag_that_cannot_be_used_is_named(
    flags: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["-p", "hello", *flags]) == 2
    assert named in capsys.readouterr().err


def test_sdk_servers_are_separated_from_other_servers() -> None:
    servers: dict[str, Any] = {"own": {"type": "sdk", "name": "own"}, "other": {"command": "x"}}
    given = json.dumps({"mcpServers": servers})
    names, rest = split_relayed_mcp_servers([given, "file.json", "{broken"])
    assert names == ("own",)
    assert json.loads(rest[0]) == {"mcpServers": {"other": {"command": "x"}}}
    assert rest[1:] == ("file.json", "{broken")
