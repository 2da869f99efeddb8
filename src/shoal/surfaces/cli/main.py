"""The `shoal` command: runs a prompt, or a sub-command."""

from __future__ import annotations

import codecs
import gc
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

import shoal
from shoal.core.journal_progress import journal_progress
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.command_registry import COMMANDS, load_subcommand
from shoal.surfaces.cli.flags import FLAG_SECTIONS, PICK_SESSION, check_flag_conflicts, options_from_flags
from shoal.surfaces.terminal.terminal_stream import guard_terminal_streams

_GC_THRESHOLD = 50_000
EXAMPLES = (
    '  shoal                                        talk to an agent in this directory\n  shoal "why does '
    'the build fail?"             the same, with a first prompt\n  shoal -p "fix the test" '
    '--permission-mode acceptEdits\n  git diff | shoal -p "review this change"     the diff is added to '
    'the prompt\n  shoal -p "list the TODOs" --output-format json | jq -r .result\n  shoal '
    "-c                                     resume the last session in this directory\n"
)


class SectionedHelpCommand(click.Command):
    """Command whose help has sections and examples, because there are many flags."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            formatter.write(EXAMPLES)
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])
        for title, options in FLAG_SECTIONS:
            records = (option.get_help_record(ctx) for option in options)
            with formatter.section(title):
                formatter.write_dl([record for record in records if record is not None])
        with formatter.section("About"):
            formatter.write_dl([("-v, --version", "Show the version."), ("-h, --help", "Show this help.")])
        with formatter.section("Exit codes"):
            formatter.write_dl(list(exit_codes.HELP_ROWS))


def main() -> NoReturn:
    # Nearly all objects of a start live as long as the process, so searching them for garbage is a waste.
    gc.set_threshold(_GC_THRESHOLD)
    _reopen_closed_standard_streams()
    _escape_unencodable_output()
    guard_terminal_streams()
    code = run_command_line(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _handle_broken_pipe() if isinstance(error, BrokenPipeError) else _handle_output_error(error)
    sys.exit(code)


def _escape_unencodable_output() -> None:
    """Write characters that the locale cannot encode as escapes, as Python does on standard error.

    In UTF-8 these are halves of surrogate pairs, which texts of models and other programs may contain.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        is_escaped = sys.stdout.errors == "surrogateescape"
        sys.stdout.reconfigure(errors=_BYTES_OR_ESCAPES if is_escaped else "backslashreplace")


def _restore_bytes_or_escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write the bytes of a file name that is not UTF-8 as they are, and escape the rest."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.backslashreplace_errors(error)


_BYTES_OR_ESCAPES = "shoal-bytes-or-escapes"
codecs.register_error(_BYTES_OR_ESCAPES, _restore_bytes_or_escape)


def _reopen_closed_standard_streams() -> None:
    """Open /dev/null for each standard stream that our parent closed.

    Otherwise the next opened file takes its number, and our output is written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def run_command_line(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit code. Every error is reported as a sentence."""
    debug = any(word.partition("=")[0] in ("-d", "--debug") for word in arguments)
    journal_progress.set(JournalProgressPrinter().print_progress)
    stdout = sys.stdout
    try:
        command, name, rest = _resolve_command(list(arguments))
        code = command.main(rest, prog_name=name, standalone_mode=False)
    except click.UsageError as error:
        return _report_usage_error(error)
    except click.ClickException as error:
        return _print_error_and_return_code(error.format_message(), exit_codes.ERROR)
    except (click.Abort, KeyboardInterrupt):
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the terminal has shown ^C at the cursor
        return _print_error_and_return_code("Interrupted.", exit_codes.INTERRUPTED)
    except BrokenPipeError:
        return _handle_broken_pipe()
    except SystemExit:
        # click catches a closed pipe itself: it replaces the output and exits with code 1.
        if sys.stdout is stdout:
            raise
        return _handle_broken_pipe()
    except Exception as error:
        # Outermost wall: the user gets a sentence, and a traceback only on request.
        if debug:
            raise
        from shoal.surfaces.terminal.user_messages import explain_error

        return _print_error_and_return_code(explain_error(error), exit_codes.ERROR)
    return code if isinstance(code, int) else exit_codes.OK


class JournalProgressPrinter:
    """Prints a line for every tenth of a long journal, so that nobody mistakes the wait for a hang."""

    def __init__(self) -> None:
        self._printed: tuple[Path, int] | None = None

    def print_progress(self, journal: Path, done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if self._printed != (journal, tenth):
            self._printed = (journal, tenth)
            print(
                f"shoal: Reading the journal of session {journal.parent.name[:8]} (needed only once): "
                f"{10 * tenth}% of {total / 1_000_000:.0f} MB",
                file=sys.stderr,
            )


def _format_examples(examples: Sequence[str]) -> str:
    return "\n".join(("\b", "Examples:", *(f"  {example}" for example in examples)))


def _attach_examples(command: click.Command, command_path: str, examples: Sequence[str]) -> None:
    """Attach to each command the examples that use it."""
    command.epilog = _format_examples(
        [example for example in examples if f"{command_path} " in f"{example} "]
    )
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        _attach_examples(part, f"{command_path} {name}", examples)


def _resolve_command(arguments: list[str]) -> tuple[click.Command, str, list[str]]:
    if arguments[:1] == ["help"]:
        arguments = [*_check_help_command_exists(arguments[1:]), "--help"]
    if arguments and (subcommand := COMMANDS.get(arguments[0])):
        command = load_subcommand(subcommand.module)
        arguments = _complete_list_command(command, arguments)
        _refuse_other_subcommand(command, arguments)
        _attach_examples(command, f"shoal {arguments[0]}", subcommand.examples)
        command.context_settings.setdefault("help_option_names", ["-h", "--help"])
        if all(option.name != "debug" for option in command.params):
            debug_option = click.Option(
                ["--debug"], is_flag=True, expose_value=False, help="Show tracebacks."
            )
            command.params.append(debug_option)
        return command, f"shoal {arguments[0]}", arguments[1:]
    if is_member_invocation(arguments):
        return load_subcommand("shoal.surfaces.cli.member_command"), "shoal", arguments
    return root_command, "shoal", _expand_run_arguments(arguments)


def _refuse_other_subcommand(command: click.Command, arguments: list[str]) -> None:
    from shoal.surfaces.cli.argument_list import explain_other_command

    is_known = (
        not isinstance(command, click.Group) or arguments[1:2] == [] or arguments[1] in command.commands
    )
    if not is_known and (explanation := explain_other_command(" ".join(arguments[:2]))):
        raise click.UsageError(explanation)


def _complete_list_command(command: click.Command, arguments: list[str]) -> list[str]:
    """Return the arguments with `ls` for `list`, and for no subcommand if the rest are flags of `ls`."""
    if not isinstance(command, click.Group) or "ls" not in command.commands:
        return arguments
    if arguments[1:2] == ["list"] and "list" not in command.commands:
        return [arguments[0], "ls", *arguments[2:]]
    return [arguments[0], "ls", *arguments[1:]] if arguments[1:2] == ["--json"] else arguments


def _expand_run_arguments(arguments: list[str]) -> list[str]:
    """Return the arguments of a run. A first word that looks like a command is never sent to a model."""
    from shoal.surfaces.cli.argument_list import expand_list_flags, explain_other_command, is_command_word

    if arguments and is_command_word(arguments[0]):
        if explanation := explain_other_command(arguments[0]):
            raise click.UsageError(explanation)
        import itertools
        import shlex

        match = _suggest_command(arguments[0])
        hint = f" Did you mean `shoal {' '.join((match, *arguments[1:]))}`?" if match else ""
        words = " ".join(itertools.takewhile(lambda word: not word.startswith("-"), arguments))
        prompt = f"this text to the model: shoal -p {shlex.quote(words)}"
        raise click.UsageError(f"Unknown command {arguments[0]!r}.{hint} To send {prompt}")
    return expand_list_flags(arguments)


def _check_help_command_exists(arguments: list[str]) -> list[str]:
    """Check the arguments of `shoal help`, such as `team start`; a flag belongs to a run."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        match = _suggest_command(arguments[0])
        raise click.UsageError(
            f"Unknown command {arguments[0]!r}.{f' Did you mean `shoal help {match}`?' if match else ''}"
        )
    return arguments


def is_member_invocation(arguments: Sequence[str]) -> bool:
    """Return True if another program starts us as a member of its team."""
    return any(word.partition("=")[0] == "--agent-id" for word in arguments)


def _run_root_command(**flag_values: Any) -> int:
    prompt = _parse_prompt(flag_values.pop("prompt"))
    headless = (
        flag_values["print_"]
        or flag_values["output_format"] != "text"
        or flag_values["input_format"] != "text"
    )
    check_flag_conflicts(flag_values, headless=headless)
    if not headless:
        _reject_command_as_prompt(prompt)
    if not (headless and flag_values["quiet"]):
        _print_flag_notes(flag_values)
    if flag_values["worktree"] is None:
        return _run_from_flags(flag_values, prompt, headless=headless)
    from shoal.surfaces.cli.start_worktree import enter_start_worktree

    with enter_start_worktree(flag_values, headless=headless):
        return _run_from_flags(flag_values, prompt, headless=headless)


def _print_flag_notes(flag_values: dict[str, Any]) -> None:
    from shoal.surfaces.cli.comfort_flags import list_comfort_flag_notes
    from shoal.surfaces.terminal.user_messages import print_user_message

    for note in list_comfort_flag_notes():
        print_user_message(note)
    if tokens := flag_values["task_budget"]:
        print_user_message(f"Shoal treats --task-budget as a limit: the run stops after {tokens:,} tokens.")


def _run_from_flags(flag_values: dict[str, Any], prompt: str | None, *, headless: bool) -> int:
    if flag_values["init_only"]:
        import asyncio

        from shoal.app.session.session_changes import run_start_hooks_only
        from shoal.surfaces.terminal.user_messages import print_user_message

        for note in asyncio.run(run_start_hooks_only(options_from_flags(flag_values, attended=False))):
            print_user_message(note)
        return exit_codes.OK
    if headless:
        return _run_headless_from_flags(flag_values, prompt)
    if flag_values["resume"] == PICK_SESSION:
        from shoal.surfaces.cli.session_command import pick_session

        flag_values["resume"] = pick_session()
    from shoal.surfaces.cli.interactive_session import run_interactive_session

    return run_interactive_session(
        options_from_flags(flag_values, attended=True), prompt, plain=flag_values["plain"]
    )


def _run_headless_from_flags(flag_values: dict[str, Any], prompt: str | None) -> int:
    from shoal.surfaces.cli.headless.headless_run import HeadlessRunRequest, run_headless
    from shoal.surfaces.cli.headless.output_formats import HeadlessOutputOptions
    from shoal.surfaces.cli.program_flags import split_relayed_mcp_servers

    is_streaming = flag_values["input_format"] == "stream-json"
    if is_streaming and prompt is not None:
        raise click.UsageError("With --input-format stream-json, prompts come from stdin. Leave out PROMPT.")
    relayed_servers, flag_values["mcp_config"] = split_relayed_mcp_servers(flag_values["mcp_config"])
    if relayed_servers and not is_streaming:
        raise click.UsageError("MCP servers of type sdk need --input-format stream-json.")
    output_options = HeadlessOutputOptions(
        format=flag_values["output_format"],
        partial_messages=flag_values["include_partial_messages"],
        replay_user_messages=flag_values["replay_user_messages"],
        hook_events=flag_values["include_hook_events"],
        states=is_streaming,
    )
    return run_headless(
        HeadlessRunRequest(
            options=options_from_flags(
                flag_values, attended=flag_values["permission_prompt_tool"] is not None
            ),
            prompt=None if is_streaming else _require_prompt_or_piped_input(prompt),
            relayed_servers=relayed_servers,
            prompt_tool=_find_prompt_tool(flag_values),
            output=output_options,
            quiet=flag_values["quiet"],
            verbose=flag_values["verbose"],
        )
    )


def _find_prompt_tool(flag_values: dict[str, Any]) -> str | None:
    tool: str | None = flag_values["permission_prompt_tool"]
    return None if tool == "stdio" else tool


def _parse_prompt(arguments: Sequence[str]) -> str | None:
    from shoal.surfaces.cli.headless.stdin import decode_prompt_argument

    if len(arguments) > 1:
        extra_words = " ".join(arguments[1:])
        if suggestion := _suggest_command(arguments[0]):
            raise click.UsageError(
                f"Unknown command {arguments[0]!r}. Did you mean `shoal {suggestion} {extra_words}`? (A "
                "prompt is one argument, in quotes.)"
            )
        raise click.UsageError(
            f"The prompt must be one argument: put it in quotes. Extra arguments: {extra_words!r}."
        )
    return decode_prompt_argument(arguments[0]) if arguments else None


def _require_prompt_or_piped_input(prompt: str | None) -> str:
    from shoal.surfaces.cli.headless.stdin import append_piped_input

    full_prompt = append_piped_input(prompt)
    if not full_prompt:
        raise click.UsageError(
            'There is no prompt. Pass one (shoal -p "…") or pipe one in (… | shoal -p). A list flag such as '
            "--allowedTools takes every word up to the next flag: put the prompt before it, or after --."
        )
    return full_prompt


def _reject_command_as_prompt(prompt: str | None) -> None:
    """Reject a mistyped command, which would otherwise be sent to a model and paid for."""
    if suggestion := _suggest_command(prompt or ""):
        raise click.UsageError(
            f"Did you mean the command `shoal {suggestion}`? (A command comes first, before any flag. "
            f"To send {prompt!r} to the model: shoal -p {prompt})"
        )


def _suggest_command(word: str) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, COMMANDS, n=1, cutoff=0.75)), "")


def _show_version(ctx: click.Context, _: click.Parameter, is_requested: bool) -> None:  # noqa: FBT001 - click passes it positionally
    if is_requested and not ctx.resilient_parsing:
        click.echo(f"shoal {shoal.__version__}")
        ctx.exit()


root_command = SectionedHelpCommand(
    name="shoal",
    callback=_run_root_command,
    help="Run an agent in this directory: interactively, or headless with -p.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Argument(["prompt"], nargs=-1, metavar="[PROMPT]"),
        *(option for _, options in FLAG_SECTIONS for option in options),
        click.Option(
            ["-v", "--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Version.",
        ),
    ],
)


def _report_usage_error(error: click.UsageError) -> int:
    command_path = error.ctx.command_path if error.ctx is not None else "shoal"
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        del error.possibilities[1:]  # the best one is first
    text = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(text, file=sys.stderr)
        return exit_codes.USAGE
    if isinstance(error, click.NoSuchOption) and command_path == "shoal":
        from shoal.surfaces.cli.argument_list import explain_other_flag

        if error.option_name == "--json":
            text = "`shoal` has no --json option. Use --output-format json."
        elif explanation := explain_other_flag(error.option_name):
            text = explanation
        else:
            text += " (Put -- before a prompt that starts with a dash.)"
    if (
        isinstance(error, click.MissingParameter)
        and error.param is not None
        and error.param.name == "session"
    ):
        text += " `shoal ps` lists live runs, and `shoal sessions` lists all runs in this directory."
    _print_error_and_return_code(text, exit_codes.USAGE)
    print(f"See `{command_path} --help`.", file=sys.stderr)
    return exit_codes.USAGE


def _print_error_and_return_code(text: str, code: int) -> int:
    from shoal.surfaces.terminal.user_messages import print_user_message

    print_user_message(text)
    return code


def _handle_broken_pipe() -> int:
    _redirect_stdout_to_dev_null()
    return exit_codes.BROKEN_PIPE


def _handle_output_error(error: OSError) -> int:
    _redirect_stdout_to_dev_null()
    return _print_error_and_return_code(
        f"Cannot write to standard output: {error.strerror}.", exit_codes.ERROR
    )


def _redirect_stdout_to_dev_null() -> None:
    # Otherwise the interpreter flushes again at its end, and complains.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
