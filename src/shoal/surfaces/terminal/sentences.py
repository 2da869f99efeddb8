"""Messages for a person: what happened, and what to do next."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from shoal.core import errors
from shoal.core.agents import Completion, Glimpse
from shoal.core.caps import Limit, amount
from shoal.core.events import BudgetWarned, Finished
from shoal.core.questions import MayRun
from shoal.core.wording import clean, count, many, one_line, seconds
from shoal.surfaces.terminal.paint import cut

NO_MODEL = """\
No model is configured, so there is nobody to ask. Three ways on:
  1. Use a provider: give Shoal a key once with
         shoal setup
     or set ANTHROPIC_API_KEY or OPENAI_API_KEY, for example
         export ANTHROPIC_API_KEY=…
     For a server of your own that speaks the same protocol:
         export OPENAI_BASE_URL=http://localhost:8000/v1
  2. Use a model on this machine: start Ollama (https://ollama.com) and fetch
     one, for example
         ollama pull qwen3
     Shoal finds it by itself.
  3. See Shoal work without any model:
         shoal demo
`shoal doctor` shows what was looked for."""

_LONGEST_RULE = 80
KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}


def say(text: str) -> None:
    """Print a message to the person. A closed terminal is ignored.

    Models, servers and hooks wrote parts of it, so control codes are removed.
    """
    with suppress(OSError):
        print(f"shoal: {clean(text)}", file=sys.stderr, flush=True)


def explain(error: BaseException) -> str:
    """Return the message for an exception that ends a command."""
    error = unwrapped(error)
    match error:
        case errors.ModelError():
            return _model(error)
        case errors.NoModel():
            return NO_MODEL
        case errors.NoSuchSession():
            return "\n".join((str(error), *_recent_sessions()))
        case errors.SettingsError(path=path, line=line) if path is not None and str(path) not in str(error):
            return f"{path}:{line}: {error}" if line is not None else f"{path}: {error}"
        case errors.ShoalError():
            return str(error)
        case OSError():
            return _system(error)
        case _:
            return (
                f"Something in Shoal broke that should not: {type(error).__name__}: {error}\n"
                "What was said so far is kept on disk. Run it again with --debug to see where it broke."
            )


def unwrapped(error: BaseException) -> BaseException:
    """Return the single error inside nested groups: leaving a session passes errors through task groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def ending(finished: Finished) -> str:
    """Explain why a turn ended early; empty if it is done."""
    match finished.reason:
        case "done":
            return ""
        case "max_turns":
            return f"The turn limit is reached: {finished.detail}. Allow more with --max-turns."
        case "budget":
            return f"The budget is reached: {finished.detail}. {_more(finished.limit)}"
        case "deadline":
            more = "Allow more time with --deadline." if finished.limit is None else _more(finished.limit)
            return f"Stopped: {finished.detail}. {more}"
        case "interrupted":
            return "Interrupted."
        case "blocked" | "no_output":
            return f"Stopped: {finished.detail}."
        case "model_error" | "store_error" | "error":
            if isinstance(finished.error, BaseException):
                return explain(finished.error)
            return finished.detail or "The turn failed."


def _more(limit: Limit | None) -> str:
    match limit:
        case "usd" | None:
            return "Allow more with --max-budget-usd."
        case "tokens":
            return "Allow more with --max-total-tokens."
        case _:
            return f'Allow more with "max_{limit}" in settings.json under "shoal".'


def budget_warning(warned: BudgetWarned) -> str:
    whose = f" of {warned.whose}" if warned.whose else ""
    spent, of = amount(warned.limit, warned.spent), amount(warned.limit, warned.of)
    return f"{warned.percent} % of the budget{whose} is spent: {spent} of {of}"


def stopped_agents(stopped: Sequence[Glimpse]) -> str:
    """List the agents that were stopped early, with their progress."""
    lines = ["Stopped before they were done:" if len(stopped) > 1 else "Stopped before it was done:"]
    for each in stopped:
        calls = many(each.tool_calls, "tool call")
        lines.append(
            f"  {each.agent}  {one_line(each.name or each.kind)}: {cut(one_line(each.description), 60)} "
            f"({calls}, {count(each.tokens)} tokens, {seconds(each.seconds)}; output: {each.output})"
        )
    return "\n".join(lines)


def cut_off_agents(ends: Sequence[Completion]) -> str:
    """List the agents that were running when an earlier process of the session died."""
    who = ", ".join(
        f"{one_line(end.name or end.kind)} ({cut(one_line(end.description), 60)}, {end.agent})"
        for end in ends
    )
    return f"Cut off when the last run of this session died: {who}. The lead is told, and can let them go on."


def ended_shells(shells: Sequence[tuple[str, str]]) -> str:
    """List the background shells, by id and command, that were still running at the end."""
    lines = [f"  {identity}  {cut(one_line(command), 80)}" for identity, command in shells]
    return "\n".join(("Still running in the background, and ended now:", *lines))


def reached(name: str, how: str) -> str:
    """Describe what happens with a message to an agent, by the way it was delivered."""
    return f"{name} {'goes on with it' if how == 'resumed' else 'hears it at its next step'}."


def how_to_go_on(session: str) -> str:
    return f"The session is kept. Go on with it:  shoal --resume {session}"


def how_to_allow(refused: Sequence[MayRun]) -> str:
    """Tell how to allow calls that were not run because nobody could be asked."""
    import shlex

    tools = dict.fromkeys(question.tool for question in refused)
    rules = dict.fromkeys(_typed(question) for question in refused)
    return (
        f"Not run, because nobody is there to be asked: {named(tools)}. "
        f"Allow it with --allowedTools {shlex.quote(' '.join(rules))}, or choose a --permission-mode."
    )


def _typed(question: MayRun) -> str:
    """Return the rule as a person can type it; a placeholder if it cannot be typed."""
    rule = question.rule
    can_be_typed = 0 < len(rule) <= _LONGEST_RULE and rule.count("(") < 2 and rule.count(")") < 2
    return rule if can_be_typed and rule.isprintable() else f"{question.tool}(…)"


def _model(error: errors.ModelError) -> str:
    said = str(error).rstrip()
    match error:
        case errors.Unauthorized():
            variable = KEY_VARIABLES.get(error.provider)
            ways = [f"Set {variable} to a valid key" if variable and variable not in said else ""]
            return _joined(said, *ways, "`shoal doctor` shows which variables are set.")
        case errors.UnknownModel():
            return _joined(said, "Choose one with --model NAME or --model PROVIDER:NAME.")
        case errors.ConnectionLost():
            return _joined(
                said, "Check the network and the base URL; `shoal doctor` shows which one is used."
            )
        case errors.Transient():
            return _joined(said, "It was asked again as often as makes sense. Try later, or another --model.")
        case errors.ContextTooLong():
            return _joined(said, "Start a new session, or use a model with a larger window.")
        case errors.ReplayMismatch():
            return _joined(said, "Record the run again with --record, if the change is meant.")
        case _:
            return said


def _system(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"No space is left to write{where}. Make room, then go on with --continue."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return (
                f"Not allowed to write or read here{where}: {error.strerror}. "
                "Make it accessible, or choose another home with SHOAL_HOME=DIRECTORY."
            )
        case errno.ENOENT if not where and _nowhere():
            return "The directory Shoal was started in is gone. Change to one that exists, and start again."
        case _:
            return f"{error.strerror or error}{where}."


def _nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() is the same with a detour
    except FileNotFoundError:
        return True
    return False


def _recent_sessions() -> Iterator[str]:
    from shoal.surfaces.terminal.listings import recent_sessions, session_lines

    if sessions := recent_sessions(limit=5):
        yield "The latest of this directory:"
        yield from (f"  {line}" for line in session_lines(sessions))


def _joined(*parts: str) -> str:
    return " ".join(_ended(part) for part in parts if part)


def _ended(text: str) -> str:
    return text if text.endswith((".", "?", "!", "…", "\n")) else f"{text}."


def named(names: Iterable[str], *, most: int = 8) -> str:
    shown = list(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
