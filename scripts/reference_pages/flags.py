"""docs/reference/flags.md: every command of the command line, with its options and examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

import click

from reference_pages.words import code, page, sentence, table
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.commands import COMMANDS, SubCommand
from shoal.surfaces.cli.flags import SECTIONS
from shoal.surfaces.cli.main import EXAMPLES, root

_OPENING = """
`shoal --help` lists the flags of a run, `shoal COMMAND --help` those of a command. `--json` prints JSON
for programs, `--debug` shows tracebacks where something goes wrong. [The command
line](../command-line.md) says how the parts fit together.
"""
_COMMON = frozenset({"--debug", "--help"})


def flags_page() -> str:
    commands = [
        _command(f"shoal {name}", import_module(sub.module).command, sub) for name, sub in COMMANDS.items()
    ]
    codes = table(("code", "meaning"), [(code(number), words) for number, words in exits.IN_HELP])
    return page("Commands and flags", _OPENING, _run(), *commands, f"## Exit codes\n\n{codes}")


def _run() -> str:
    parts = ["## `shoal [PROMPT]`", sentence(root.help or ""), _console(EXAMPLES.splitlines())]
    for title, options in SECTIONS:
        parts += [f"### {title}", _options(options)]
    return "\n\n".join(parts)


def _command(name: str, command: click.Command, sub: SubCommand) -> str:
    return "\n\n".join(_told(name, command, sub.examples, "##"))


def _told(name: str, command: click.Command, examples: Sequence[str], mark: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{mark} `{name}`"
    yield sentence(command.help or "")
    parts = command.commands if isinstance(command, click.Group) else {}
    if not parts or (isinstance(command, click.Group) and command.invoke_without_command):
        yield f"```text\n{name} {usage}\n```"
    options = [each for each in command.params if isinstance(each, click.Option)]
    shown = [
        each for each in options if not _COMMON & set(each.opts) and not each.hidden and not _of_a_run(each)
    ]
    if shown:
        yield _options(shown)
    if any(_of_a_run(each) for each in options):
        yield "The flags of [a run](#shoal-prompt) hold here too, where they make sense."
    own = [each for each in examples if f"{name} " in f"{each} "]
    if own and not parts:
        yield _console(own)
    for part, inner in sorted(parts.items()):
        yield from _told(f"{name} {part}", inner, examples, f"{mark}#")


def _of_a_run(option: click.Option) -> bool:
    return any(option is each for _, options in SECTIONS for each in options)


def _options(options: Sequence[click.Option]) -> str:
    rows = []
    for option in options:
        context = click.Context(root)
        record = option.get_help_record(context)
        if record is not None:
            flag, words = record
            rows.append((code(flag), words))
    return table(("flag", "meaning"), rows)


def _console(lines: Sequence[str]) -> str:
    return "\n".join(("```console", *(f"$ {_plain(line)}" for line in lines if line.strip()), "```"))


def _plain(line: str) -> str:
    command, _, words = line.strip().partition("   ")
    return f"{command}  # {words.strip()}" if words else command
