"""Pages docs/reference/flags.md and commands-*.md: every command, with its options and examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from reference_pages.doc_text import format_code, format_sentence, render_page, render_table
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.command_registry import COMMANDS, LazySubCommandEntry, load_subcommand
from shoal.surfaces.cli.flags import FLAG_SECTIONS
from shoal.surfaces.cli.main import EXAMPLES, root_command

_OPENING = """
`shoal --help` lists the flags of a run, and `shoal COMMAND --help` lists the flags of a command.
`--json` prints JSON for programs, and `--debug` shows tracebacks if something fails. [The command
line](../command-line.md) explains how the parts work together.
"""
_COMMON = frozenset({"--debug", "--help"})


class CommandGroup(NamedTuple):
    page: str
    title: str
    commands: tuple[str, ...]


GROUPS = (
    CommandGroup(
        "commands-runs.md",
        "Watch and control live runs",
        ("watch", "ps", "view", "attach", "send", "stop", "ask", "web"),
    ),
    CommandGroup("commands-sessions.md", "Sessions, costs and undo", ("sessions", "cost", "export", "undo")),
    CommandGroup("commands-teams.md", "Teams, tasks and mail", ("team", "task", "inbox")),
    CommandGroup(
        "commands-agents.md", "Agents, skills, hooks and plug-ins", ("agents", "skills", "hooks", "plugin")
    ),
    CommandGroup("commands-mcp.md", "MCP servers", ("mcp",)),
    CommandGroup("commands-workflows.md", "Workflows", ("workflow",)),
    CommandGroup("commands-worktrees.md", "Worktrees", ("worktree",)),
    CommandGroup(
        "commands-setup.md",
        "Setup, settings and permissions",
        ("setup", "models", "doctor", "config", "permissions", "trust", "demo"),
    ),
    CommandGroup("commands-machines.md", "PostgreSQL stores and Ray clusters", ("store", "cluster")),
)


def build_flags_page() -> str:
    codes = render_table(
        ("code", "meaning"), [(format_code(number), words) for number, words in exit_codes.HELP_ROWS]
    )
    groups = render_table(
        ("page", "commands"),
        [
            (
                f"[{group.title}]({group.page})",
                ", ".join(format_code(f"shoal {each}") for each in group.commands),
            )
            for group in GROUPS
        ],
    )
    return render_page(
        "Commands and flags", _OPENING, f"## Commands\n\n{groups}", _render_run(), f"## Exit codes\n\n{codes}"
    )


def build_command_page(group: CommandGroup) -> str:
    commands = [
        _render_command(f"shoal {name}", load_subcommand(COMMANDS[name].module), COMMANDS[name])
        for name in group.commands
    ]
    return render_page(
        f"Commands: {group.title}",
        "[Commands and flags](flags.md) lists all commands, the flags of a run and the exit codes.",
        *commands,
    )


def _render_run() -> str:
    parts = [
        "## `shoal [PROMPT]`",
        format_sentence(root_command.help or ""),
        _render_console(EXAMPLES.splitlines()),
    ]
    for title, options in FLAG_SECTIONS:
        parts += [f"### {title}", _render_options(options)]
    return "\n\n".join(parts)


def _render_command(name: str, command: click.Command, sub: LazySubCommandEntry) -> str:
    return "\n\n".join(_render_parts(name, command, sub.examples, "##"))


def _render_parts(name: str, command: click.Command, examples: Sequence[str], mark: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{mark} `{name}`"
    yield format_sentence(command.help or "")
    parts = command.commands if isinstance(command, click.Group) else {}
    if not parts or (isinstance(command, click.Group) and command.invoke_without_command):
        yield f"```text\n{name} {usage}\n```"
    options = [each for each in command.params if isinstance(each, click.Option)]
    shown = [
        each
        for each in options
        if not _COMMON & set(each.opts) and not each.hidden and not _is_run_flag(each)
    ]
    if shown:
        yield _render_options(shown)
    if any(_is_run_flag(each) for each in options):
        yield "The flags of [a run](flags.md#shoal-prompt) also apply, if they make sense for this command."
    own_examples = [each for each in examples if f"{name} " in f"{each} "]
    if own_examples and not parts:
        yield _render_console(own_examples)
    for part, inner in sorted(parts.items()):
        yield from _render_parts(f"{name} {part}", inner, examples, f"{mark}#")


def _is_run_flag(option: click.Option) -> bool:
    return any(option is each for _, options in FLAG_SECTIONS for each in options)


def _render_options(options: Sequence[click.Option]) -> str:
    rows = []
    for option in options:
        context = click.Context(root_command)
        record = option.get_help_record(context)
        if record is not None:
            flag, help_text = record
            rows.append((format_code(flag), help_text))
    return render_table(("flag", "meaning"), rows)


def _render_console(lines: Sequence[str]) -> str:
    return "\n".join(("```console", *(f"$ {_format_example(line)}" for line in lines if line.strip()), "```"))


def _format_example(line: str) -> str:
    command, _, comment = line.strip().partition("   ")
    return f"{command}  # {comment.strip()}" if comment else command
