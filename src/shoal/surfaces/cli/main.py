"""The `shoal` command: a prompt for an agent, or the name of a sub-command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import click

import shoal
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import PICK, SECTIONS, check_together, options_from


class SubCommand(NamedTuple):
    module: str
    """Holds the click command as `command`."""
    help: str
    """The line in the list of commands, which costs no import."""
    examples: tuple[str, ...]


COMMANDS = {
    "agents": SubCommand(
        "shoal.surfaces.cli.agents",
        "List, show, check and add agents.",
        (
            "shoal agents ls",
            "shoal agents show Explore",
            "shoal agents show lead --permissions",
            "shoal agents validate .claude/agents",
            "shoal agents new reviewer --user",
        ),
    ),
    "ask": SubCommand(
        "shoal.surfaces.cli.ask",
        "See what agents ask, and answer.",
        (
            "shoal ask",
            "shoal ask ls --json | jq -r '.[].id'",
            "shoal ask show 3f",
            "shoal ask answer 3f yes",
            'shoal ask answer 3f no --reason "use the other branch"',
        ),
    ),
    "config": SubCommand(
        "shoal.surfaces.cli.config",
        "Show the settings that hold here.",
        ("shoal config show", "shoal config show --origin", "shoal config show --json | jq .settings.model"),
    ),
    "cost": SubCommand(
        "shoal.surfaces.cli.cost",
        "Show what a session has cost.",
        ("shoal cost", "shoal cost 3f2a", "shoal cost --json | jq .total.usd"),
    ),
    "demo": SubCommand(
        "shoal.surfaces.cli.demo",
        "Watch a team repair a small project, offline.",
        ("shoal demo", "shoal demo --keep", "shoal demo agents"),
    ),
    "export": SubCommand(
        "shoal.surfaces.cli.export",
        "Write a whole run into one file: a page with its replay, or JSON.",
        ("shoal export --html", "shoal export 3f2a --html -o run.html"),
    ),
    "doctor": SubCommand(
        "shoal.surfaces.cli.doctor",
        "Check the set-up and say what to type.",
        (
            "shoal doctor",
            "shoal doctor wait-does-not-end",
            "shoal doctor --json | jq '.facts[] | select(.state != \"ok\")'",
        ),
    ),
    "hooks": SubCommand(
        "shoal.surfaces.cli.hooks",
        "See what is run when agents do something.",
        ("shoal hooks ls", "shoal hooks ls --json | jq '.hooks[] | select(.trusted | not)'"),
    ),
    "inbox": SubCommand(
        "shoal.surfaces.cli.inbox",
        "Read the mail of an agent, or write to one.",
        (
            "shoal inbox show team-lead --all",
            'shoal inbox send alice "The build is green again."',
            "git log -1 | shoal inbox send alice - --team roof",
        ),
    ),
    "mcp": SubCommand(
        "shoal.surfaces.cli.mcp",
        "List, try, add and remove MCP servers, or be one.",
        (
            "shoal mcp ls",
            "shoal mcp show docs",
            "shoal mcp test docs",
            "shoal mcp add docs npx -y docs-server",
            "shoal mcp add -H 'Authorization: Bearer ${TOKEN}' issues https://example.org/mcp",
            "shoal mcp remove docs",
            "shoal mcp login issues",
            "shoal mcp test --json | jq -r '.[].status'",
            "shoal mcp serve --team roof --as codex --max-budget-usd 2",
        ),
    ),
    "models": SubCommand(
        "shoal.surfaces.cli.models",
        "List the models that can be asked, and try one.",
        (
            "shoal models ls",
            "shoal models ls --json | jq -r '.models[] | select(.configured).id'",
            "shoal models test",
            "shoal models test openai:gpt-6-luna",
        ),
    ),
    "permissions": SubCommand(
        "shoal.surfaces.cli.permissions",
        "See what is allowed here, and why.",
        (
            "shoal permissions ls",
            """shoal permissions explain Bash '{"command": "git push && rm -r build"}'""",
            """shoal permissions explain --mode plan --json Edit '{"file_path": "src/a.py"}'""",
        ),
    ),
    "plugin": SubCommand(
        "shoal.surfaces.cli.plugin",
        "List and check plug-ins.",
        (
            "shoal plugin ls",
            "shoal plugin ls --json | jq -r '.[].name'",
            "shoal plugin validate",
            "shoal plugin validate plugins/harbour --json",
        ),
    ),
    "ps": SubCommand(
        "shoal.surfaces.cli.ps",
        "List the agents of live runs.",
        ("shoal ps", "shoal ps 3f2a", "shoal ps --json | jq '.[] | select(.question != null)'"),
    ),
    "send": SubCommand(
        "shoal.surfaces.cli.send",
        "Say something to an agent of a live run.",
        ('shoal send 3f2a lead "Leave the tests alone."', "git diff | shoal send 3f2a plumber -"),
    ),
    "sessions": SubCommand(
        "shoal.surfaces.cli.sessions",
        "List the sessions of this directory.",
        ("shoal sessions", "shoal sessions --all --json | jq -r '.[0].session'"),
    ),
    "setup": SubCommand(
        "shoal.surfaces.cli.setup",
        "Give Shoal a key, and choose a model.",
        (
            "shoal setup",
            "pass show openai | shoal setup --provider openai --key-stdin",
            "shoal setup --provider server --base-url http://localhost:8000/v1 --model my-model",
            "shoal setup --remove openai",
        ),
    ),
    "skills": SubCommand(
        "shoal.surfaces.cli.skills",
        "List, show and check skills and commands.",
        (
            "shoal skills ls",
            "shoal skills show pdf",
            "shoal skills validate .claude/skills",
            "shoal skills ls --json | jq -r '.[].name'",
        ),
    ),
    "stop": SubCommand(
        "shoal.surfaces.cli.stop",
        "Stop a live run, or one of its agents.",
        ("shoal stop 3f2a", "shoal stop 3f2a plumber", "shoal stop 3f2a all"),
    ),
    "task": SubCommand(
        "shoal.surfaces.cli.task",
        "List, show, add and change tasks.",
        (
            "shoal task ls",
            "shoal task show 4",
            'shoal task add "Fix the login test" --blocked-by 3',
            "shoal task update 4 --status completed",
            "shoal task ls --team roof --json | jq -r '.[] | select(.status == \"pending\").id'",
        ),
    ),
    "team": SubCommand(
        "shoal.surfaces.cli.team",
        "See, start, talk to, stop and resume teams.",
        (
            "shoal team ls",
            "shoal team show roof --json | jq '.members[] | {name, state}'",
            'shoal team start review "the last commit"',
            'shoal team start feature "dark mode" --dry-run',
            'shoal team start bug-hunt "the nightly job fails" -p --max-budget-usd 5',
            "shoal team templates",
            "shoal team template show review",
            "shoal team template validate .claude/teams/audit.md",
            "shoal team template new audit",
            'shoal team send roof alice "Leave the tests alone."',
            "shoal team attach roof",
            "shoal team stop roof alice",
            'shoal team resume roof -p "go on"',
            "shoal team export roof --format md -o roof.md",
            "shoal team rm roof --yes",
        ),
    ),
    "trust": SubCommand(
        "shoal.surfaces.cli.trust",
        "Let a project's own settings allow things.",
        ("shoal trust --show", "shoal trust", "shoal trust --revoke"),
    ),
    "undo": SubCommand(
        "shoal.surfaces.cli.undo",
        "Bring back the files a turn changed.",
        ("shoal undo", "shoal undo 3 --conversation", "shoal undo --list"),
    ),
    "watch": SubCommand(
        "shoal.surfaces.cli.watch",
        "Follow a running session from another terminal.",
        ("shoal watch", "shoal watch 3f2a", "shoal watch --json | jq .type"),
    ),
    "web": SubCommand(
        "shoal.surfaces.cli.web",
        "See and steer every run in a browser.",
        ("shoal web", "shoal web --open", "shoal web --port 8765 --json | jq -r .url"),
    ),
    "worktree": SubCommand(
        "shoal.surfaces.cli.worktree",
        "Bring back what agents did in worktrees.",
        (
            "shoal worktree ls",
            "shoal worktree show agent-a1b2c3d4",
            "shoal worktree merge agent-a1b2c3d4",
            "shoal worktree rm agent-a1b2c3d4 --force",
            "shoal worktree reap",
            "shoal worktree ls --json | jq -r '.[] | select(.merged | not).name'",
        ),
    ),
}

UNLISTED = {
    "view": SubCommand(
        "shoal.surfaces.cli.view", "Show one agent of a run, and talk to it.", ("shoal view 3f2a alice",)
    ),
}
"""What other parts of Shoal start; a person may, but need not know it."""

EXAMPLES = """\
  shoal                                        talk with an agent in this directory
  shoal "why does the build fail?"             the same, with a first prompt
  shoal -p "fix the test" --permission-mode acceptEdits
  git diff | shoal -p "review this change"     the diff joins the prompt
  shoal -p "list the TODOs" --output-format json | jq -r .result
  shoal -c                                     go on with the last session here
"""


class RunCommand(click.Command):
    """Help in sections, with examples: the flags are many."""

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
    """One that whoever started us closed becomes /dev/null.

    Otherwise the next file that is opened takes its number, and our output is written into it.
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
    """The exit code. Nothing but an exit code comes out of here: every error is told as a sentence."""
    debug = "--debug" in arguments
    try:
        command, name, rest = _routed(list(arguments))
        code = command.main(rest, prog_name=name, standalone_mode=False)
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        return _told(error.format_message(), exits.ERROR)
    except (click.Abort, KeyboardInterrupt):
        return _told("Interrupted.", exits.INTERRUPTED)
    except BrokenPipeError:
        return _nobody_reads()
    except Exception as error:
        # The outermost wall: a person gets a sentence, and a traceback only on request.
        if debug:
            raise
        from shoal.surfaces.cli.sentences import explain

        return _told(explain(error), exits.ERROR)
    return code if isinstance(code, int) else exits.OK


def _shown(examples: Sequence[str]) -> str:
    return "\n".join(("\b", "Examples:", *(f"  {example}" for example in examples)))


def _give_examples(command: click.Command, own: str, examples: Sequence[str]) -> None:
    """To each command those that use it."""
    command.epilog = _shown([example for example in examples if f"{own} " in f"{example} "])
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        _give_examples(part, f"{own} {name}", examples)


def _routed(arguments: list[str]) -> tuple[click.Command, str, list[str]]:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"] if arguments[1:2] else ["--help"]
    if arguments and (sub := COMMANDS.get(arguments[0]) or UNLISTED.get(arguments[0])):
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


def is_member(arguments: Sequence[str]) -> bool:
    """Whether another program starts us as a member of its team."""
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

    return interactive(options_from(given, attended=True), prompt)


def _headless(given: dict[str, Any], prompt: str | None) -> int:
    from shoal.surfaces.cli.headless import Job, headless
    from shoal.surfaces.cli.output import Wanted
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
    from shoal.surfaces.cli.stdin import argument_text

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
    from shoal.surfaces.cli import stdin

    piped = stdin.read_prompt() if stdin.piped() else ""
    whole = "\n\n".join(part for part in (prompt or "", piped) if part.strip())
    if not whole:
        raise click.UsageError('There is no prompt. Give one: shoal -p "…", or pipe it in: … | shoal -p')
    return whole


def _refuse_a_command_as_prompt(prompt: str | None) -> None:
    """A mistyped command would otherwise be sent to a model, and paid for."""
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
        text += " (Before a prompt that begins with a dash, write --.)"
    _told(text, exits.USAGE)
    print(f"See `{where} --help`.", file=sys.stderr)
    return exits.USAGE


def _told(text: str, code: int) -> int:
    from shoal.surfaces.cli.sentences import say

    say(text)
    return code


def _nobody_reads() -> int:
    _let_go_of_stdout()
    return exits.READER_GONE


def _lost(error: OSError) -> int:
    _let_go_of_stdout()
    return _told(f"Standard output cannot be written: {error.strerror}.", exits.ERROR)


def _let_go_of_stdout() -> None:
    # Or the interpreter tries to flush once more at its end, and complains.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
