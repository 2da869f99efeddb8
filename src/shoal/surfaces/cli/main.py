"""The `shoal` command: runs a prompt, or a sub-command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import click

import shoal
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.commands import COMMANDS
from shoal.surfaces.cli.flags import PICK, SECTIONS, check_together, options_from

EXAMPLES = """\
  shoal                                        talk with an agent in this directory
  shoal "why does the build fail?"             the same, with a first prompt
  shoal -p "fix the test" --permission-mode acceptEdits
  git diff | shoal -p "review this change"     the diff joins the prompt
  shoal -p "list the TODOs" --output-format json | jq -r .result
  shoal -c                                     go on with the last session here
"""


class RunCommand(click.Command):
    """Command whose help has sections and examples, because there are many flags."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            formatter.write(EXAMPLES)
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])
        for title, options in SECTIONS:
            records = (option.get_help_record(ctx) for option in options)
            with formatter.section(title):
                formatter.write_dl([record for record in records if record is not None])
        with formatter.section("About"):
            formatter.write_dl([("--version", "Tell the version."), ("-h, --help", "Tell this.")])
        with formatter.section("Exit codes"):
            formatter.write_dl(list(exits.IN_HELP))


def main() -> NoReturn:
    _open_standard_streams()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _nobody_reads() if isinstance(error, BrokenPipeError) else _lost(error)
    sys.exit(code)


def _open_standard_streams() -> None:
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


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit code. Every error is reported as a sentence."""
    debug = "--debug" in arguments
    try:
        command, name, rest = _routed(list(arguments))
        code = command.main(rest, prog_name=name, standalone_mode=False)
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        return _told(error.format_message(), exits.ERROR)
    except (click.Abort, KeyboardInterrupt):
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the terminal has shown ^C at the cursor
        return _told("Interrupted.", exits.INTERRUPTED)
    except BrokenPipeError:
        return _nobody_reads()
    except Exception as error:
        # Outermost wall: the user gets a sentence, and a traceback only on request.
        if debug:
            raise
        from shoal.surfaces.terminal.sentences import explain

        return _told(explain(error), exits.ERROR)
    return code if isinstance(code, int) else exits.OK


def _shown(examples: Sequence[str]) -> str:
    return "\n".join(("\b", "Examples:", *(f"  {example}" for example in examples)))


def _give_examples(command: click.Command, own: str, examples: Sequence[str]) -> None:
    """Attach to each command the examples that use it."""
    command.epilog = _shown([example for example in examples if f"{own} " in f"{example} "])
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        _give_examples(part, f"{own} {name}", examples)


def _routed(arguments: list[str]) -> tuple[click.Command, str, list[str]]:
    if arguments[:1] == ["help"]:
        arguments = [*_known_command(arguments[1:]), "--help"]
    if arguments and (sub := COMMANDS.get(arguments[0])):
        command: click.Command = import_module(sub.module).command
        _give_examples(command, f"shoal {arguments[0]}", sub.examples)
        command.context_settings.setdefault("help_option_names", ["-h", "--help"])
        if all(option.name != "debug" for option in command.params):
            debug = click.Option(["--debug"], is_flag=True, expose_value=False, help="Show tracebacks.")
            command.params.append(debug)
        return command, f"shoal {arguments[0]}", arguments[1:]
    if is_member(arguments):
        return import_module("shoal.surfaces.cli.member").command, "shoal", arguments
    return root, "shoal", arguments


def _known_command(words: list[str]) -> list[str]:
    """Check the arguments of `shoal help`, such as `team start`; a flag belongs to a run."""
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        near = _near_command(words[0])
        raise click.UsageError(
            f"There is no command {words[0]!r}.{f' Did you mean `shoal help {near}`?' if near else ''}"
        )
    return words


def is_member(arguments: Sequence[str]) -> bool:
    """Return True if another program starts us as a member of its team."""
    return any(word.partition("=")[0] == "--agent-id" for word in arguments)


def _run(**given: Any) -> int:
    prompt = _one_prompt(given.pop("prompt"))
    headless = given["print_"] or given["output_format"] != "text" or given["input_format"] != "text"
    check_together(given, headless=headless)
    if headless:
        return _headless(given, prompt)
    _refuse_a_command_as_prompt(prompt)
    if given["resume"] == PICK:
        from shoal.surfaces.cli.sessions import picked

        given["resume"] = picked()
    from shoal.surfaces.cli.interactive import interactive

    return interactive(options_from(given, attended=True), prompt, plain=given["plain"])


def _headless(given: dict[str, Any], prompt: str | None) -> int:
    from shoal.surfaces.cli.headless.output import Wanted
    from shoal.surfaces.cli.headless.run import Job, headless
    from shoal.surfaces.cli.program_flags import relayed_servers

    streaming = given["input_format"] == "stream-json"
    if streaming and prompt is not None:
        raise click.UsageError("With --input-format stream-json prompts come from stdin: leave PROMPT out.")
    relayed, given["mcp_config"] = relayed_servers(given["mcp_config"])
    if relayed and not streaming:
        raise click.UsageError("MCP servers of the type sdk need --input-format stream-json.")
    wanted = Wanted(
        format=given["output_format"],
        partial_messages=given["include_partial_messages"],
        replay_user_messages=given["replay_user_messages"],
        hook_events=given["include_hook_events"],
        states=streaming,
    )
    return headless(
        Job(
            options=options_from(given, attended=given["permission_prompt_tool"] is not None),
            prompt=None if streaming else _with_stdin(prompt),
            relayed_servers=relayed,
            output=wanted,
            quiet=given["quiet"],
            verbose=given["verbose"],
        )
    )


def _one_prompt(words: Sequence[str]) -> str | None:
    from shoal.surfaces.cli.headless.stdin import argument_text

    if len(words) > 1:
        extra = " ".join(words[1:])
        if near := _near_command(words[0]):
            raise click.UsageError(
                f"There is no command {words[0]!r}. Did you mean `shoal {near} {extra}`? "
                "(A prompt is one argument, in quotes.)"
            )
        raise click.UsageError(
            f"The prompt is one argument, so put it in quotes; left over: {extra!r}. "
            'Lists also go in one argument: --allowedTools "Read,Edit".'
        )
    return argument_text(words[0]) if words else None


def _with_stdin(prompt: str | None) -> str:
    from shoal.surfaces.cli.headless.stdin import with_piped

    whole = with_piped(prompt)
    if not whole:
        raise click.UsageError('There is no prompt. Give one: shoal -p "…", or pipe it in: … | shoal -p')
    return whole


def _refuse_a_command_as_prompt(prompt: str | None) -> None:
    """Reject a mistyped command, which would otherwise be sent to a model and paid for."""
    if near := _near_command(prompt or ""):
        raise click.UsageError(
            f"Did you mean the command `shoal {near}`? (A command comes first, before any flag. "
            f"To send {prompt!r} to the model: shoal -p {prompt})"
        )


def _near_command(word: str) -> str:
    return next(iter(get_close_matches(word, COMMANDS, n=1, cutoff=0.75)), "")


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click calls it so
    if wanted and not ctx.resilient_parsing:
        click.echo(f"shoal {shoal.__version__}")
        ctx.exit()


root = RunCommand(
    name="shoal",
    callback=_run,
    help="Run an agent on this directory: interactive, or headless with -p.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Argument(["prompt"], nargs=-1, metavar="[PROMPT]"),
        *(option for _, options in SECTIONS for option in options),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Version.",
        ),
    ],
)


def _usage(error: click.UsageError) -> int:
    where = error.ctx.command_path if error.ctx is not None else "shoal"
    text = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(text, file=sys.stderr)
        return exits.USAGE
    if isinstance(error, click.NoSuchOption) and where == "shoal":
        if error.option_name == "--json":
            text = "A run has no --json: give --output-format json."
        else:
            text += " (Before a prompt that begins with a dash, write --.)"
    if (
        isinstance(error, click.MissingParameter)
        and error.param is not None
        and error.param.name == "session"
    ):
        text += " `shoal ps` lists the runs that are live, `shoal sessions` all of this directory."
    _told(text, exits.USAGE)
    print(f"See `{where} --help`.", file=sys.stderr)
    return exits.USAGE


def _told(text: str, code: int) -> int:
    from shoal.surfaces.terminal.sentences import say

    say(text)
    return code


def _nobody_reads() -> int:
    _let_go_of_stdout()
    return exits.READER_GONE


def _lost(error: OSError) -> int:
    _let_go_of_stdout()
    return _told(f"Standard output cannot be written: {error.strerror}.", exits.ERROR)


def _let_go_of_stdout() -> None:
    # Otherwise the interpreter flushes again at its end, and complains.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
