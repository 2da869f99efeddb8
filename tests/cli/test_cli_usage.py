"""Help, version and usage errors, before any model request."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from shoal_process import ShoalProgram

from shoal.surfaces.cli import flags
from shoal.surfaces.cli.command_registry import COMMANDS, load_subcommand
from shoal.surfaces.cli.main import root_command, run_command_line

pytestmark = pytest.mark.fresh_interpreter


def test_help_shows_examples_commands_flags_and_exit_codes() -> None:
    help_result = CliRunner().invoke(root_command, ["--help"]).output
    for part in (
        "Examples:",
        "git diff | shoal -p",
        "Commands:",
        "doctor",
        "--allowed-tools",
        "--version",
        "Exit codes:",
    ):
        assert part in help_result


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([name, "--help"]) == 0
    help_result = capsys.readouterr().out
    assert f"Usage: shoal {name}" in help_result
    assert f"  shoal {name}" in help_result


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--agents", "none.json"), ("--mcp-config", "none.json"), ("--mcp-config", "{"), ("--channels", "chat")],
)
def test_an_invalid_flag_value_names_the_flag_once(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["-p", "hi", flag, value]) == 2
    assert capsys.readouterr().err.count(flag) == 1


def test_an_invalid_amount_of_memory_for_a_cluster_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["cluster", "join", "127.0.0.1:1", "--memory", "a lot"]) == 2
    assert "--memory: expected bytes, or a size such as 512 MiB" in capsys.readouterr().err


def _parts() -> list[tuple[str, str]]:
    commands = ((name, load_subcommand(sub.module)) for name, sub in COMMANDS.items())
    return [
        (name, part) for name, each in commands if isinstance(each, click.Group) for part in each.commands
    ]


@pytest.mark.parametrize(("name", "part"), _parts())
def test_every_subcommand_has_help_with_its_own_example(
    name: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([name, part, "--help"]) == 0
    examples = capsys.readouterr().out.split("Examples:\n")[1].splitlines()
    assert examples
    assert all(f"shoal {name} {part}" in line for line in examples)


@pytest.mark.parametrize("name", sorted({name for name, _ in _parts()}))
def test_descriptions_in_command_lists_are_not_truncated(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([name, "--help"]) == 0
    assert "..." not in capsys.readouterr().out.split("\nCommands:\n")[1]


def test_help_and_version_load_nothing_heavy() -> None:
    script = (
        "import sys; from shoal.surfaces.cli.main import run_command_line\n"
        "run_command_line(['--help']); run_command_line(['--version'])\n"
        "print([m for m in ('httpx', 'rich', 'asyncio', 'msgspec', 'shoal.app.session') if m in sys.modules])"
    )
    help_result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert help_result.splitlines()[-1] == "[]"
    assert "\nshoal 0." in help_result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modle", "x", "-p", "hi"], "Did you mean '--model'?"),
        (["-p", "hi", "--json"], "`shoal` has no --json option. Use --output-format json."),
        (["-p", "hi", "--mcp-config", "none.json"], "none.json cannot be read: No such file or directory."),
        (["-p", "hi", "--output-format", "xml"], "'--output-format': 'xml' is not one of 'text', 'json'"),
        (["-p", "hi", "--max-turns", "0"], "--max-turns"),
        (["-p", "hi", "--max-budget-usd", "-1"], "--max-budget-usd"),
        (["-p", "hi", "--max-budget-usd", "nan"], "not a dollar amount"),
        (["-p", "hi", "--max-total-tokens", "0"], "--max-total-tokens"),
        (["-p", "hi", "--max-agents", "none"], "--max-agents"),
        (["-p", "hi", "--deadline", "soon"], "90s, 10m or 2h"),
        pytest.param(
            ["-p", "hi", "--permission-mode", "yolo"],
            "'yolo' is not one of default, acceptEdits, plan, dontAsk, bypassPermissions",
            marks=pytest.mark.spec("PRM-01"),
        ),
        (["-p", "hi", "--session-id", "7"], "is not a UUID"),
        (["-p", "hi", "--add-dir", "/no/such/place"], "is not a directory"),
        (["-p", "fix", "the", "tests"], "put it in quotes. Extra arguments: 'the tests'"),
        (["tema", "ls"], "Did you mean `shoal team ls`?"),
        (["docter"], "Did you mean `shoal doctor`?"),
        (["--debug", "doctor"], "A command comes first"),
        (["-p", "hi", "-r"], "--resume needs a session id"),
        (["-p", "hi", "-c", "-r", "abc"], "cannot be used together"),
        (["-p", "hi", "--fork-session"], "needs a session to copy"),
        (["-p", "hi", "-c", "--session-id", "6f1c0d7e-3b1a-4b7e-9a55-0a2f3d4c5b6a"], "Add --fork-session"),
        (["-p", "hi", "-c", "--no-session-persistence"], "stores nothing"),
        (["-p", "hi", "--input-format", "stream-json"], "needs --output-format stream-json"),
        (["-p", "hi", "--include-partial-messages"], "needs --output-format stream-json"),
        (["-p", "hi", "--output-format=stream-json", "--input-format=stream-json"], "Leave out PROMPT"),
        (["-p", "hi", "--allowedTools", "Bash("], "--allowedTools: The parentheses"),
        (["-p", "hi", "--disallowed-tools", "7"], "--disallowedTools: '7' is not a permission rule"),
        (["doctor", "--jsno"], "Did you mean '--json'?"),
        (["help", "tema"], "Unknown command 'tema'. Did you mean `shoal help team`?"),
        (["help", "xyzzy"], "Unknown command 'xyzzy'."),
        (["stop"], "`shoal ps` lists live runs"),
        (["send"], "`shoal ps` lists live runs"),
        (["view"], "`shoal ps` lists live runs"),
    ],
)
def test_wrong_usage_exits_2_with_a_suggestion(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "--help" in err


def test_a_command_without_its_subcommand_shows_only_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["team"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: shoal team")
    assert "See `shoal team --help`" not in err


async def test_no_prompt_at_all_is_wrong_usage(shoal: ShoalProgram) -> None:
    ran = await shoal("-p")
    assert (ran.code, ran.out) == (2, b"")
    assert 'shoal -p "…"' in ran.err


@pytest.mark.parametrize(
    ("value", "rules"),
    [
        (["Read,Edit"], ("Read", "Edit")),
        (["Read Edit"], ("Read", "Edit")),
        (["Bash(git log:*), Bash(a, b)"], ("Bash(git log:*)", "Bash(a, b)")),
        (["Read", "Edit,Write"], ("Read", "Edit", "Write")),
    ],
)
def test_rules_may_be_repeated_or_listed_with_parentheses_respected(
    value: list[str], rules: tuple[str, ...]
) -> None:
    assert flags.parse_permission_rules(value, "--allowedTools") == rules


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("1.5", 1.5), ("90s", 90), ("10m", 600), ("2h", 7200)]
)
def test_a_deadline_accepts_common_duration_formats(text: str, seconds: float) -> None:
    assert flags.parse_duration(text) == seconds


def test_both_spellings_mean_the_same_option() -> None:
    for spelling in ("--allowedTools", "--allowed-tools"):
        with root_command.make_context("shoal", ["-p", "hi", spelling, "Read"]) as context:
            assert context.params["allowed_tools"] == ("Read",)
    for spelling in ("--disallowedTools", "--disallowed-tools"):
        with root_command.make_context("shoal", ["-p", "hi", spelling, "Read"]) as context:
            assert context.params["disallowed_tools"] == ("Read",)
