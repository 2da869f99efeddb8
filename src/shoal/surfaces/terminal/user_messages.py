"""Messages for a person: what happened, and what to do next."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.core import errors
from shoal.core.agents.subagents import AgentResult, AgentStatusSnapshot
from shoal.core.budgets.limits import LimitKind, format_limit_amount
from shoal.core.events import BudgetThresholdReached, RepetitionStopped, RunFinished
from shoal.core.permissions.permission_changes import is_allow_rule_suggestion
from shoal.core.permissions.questions import PermissionQuestion
from shoal.core.text.text_format import (
    format_count_with_noun,
    format_duration,
    format_token_count,
    strip_terminal_codes,
    to_one_line,
)
from shoal.surfaces.terminal.text_styles import truncate_text

if TYPE_CHECKING:
    from shoal.core.teams.tasks import Task
    from shoal.core.teams.team_operations import TeammateStatusSnapshot

NO_MODEL = (
    "No model is configured. You can do one of these:\n  1. Use a provider: store a key once "
    "with\n         shoal setup\n     or set ANTHROPIC_API_KEY or OPENAI_API_KEY, for example\n         "
    "export ANTHROPIC_API_KEY=…\n     For your own server with an OpenAI-compatible API:\n         export "
    "OPENAI_BASE_URL=http://localhost:8000/v1\n  2. Use a model on this machine: start Ollama "
    "(https://ollama.com) and pull\n     one, for example\n         ollama pull qwen3\n     Shoal finds it "
    "automatically.\n  3. Try Shoal without any model:\n         shoal demo\n`shoal doctor` shows what "
    "Shoal looked for."
)

_LONGEST_RULE = 80
_MAX_TASKS = 10
KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}


def print_user_message(text: str) -> None:
    """Print a message to the user. A closed terminal is ignored.

    Models, servers and hooks wrote parts of it, so control codes are removed.
    """
    with suppress(OSError):
        print(f"shoal: {strip_terminal_codes(text)}", file=sys.stderr, flush=True)


def explain_error(error: BaseException) -> str:
    """Return the message for an exception that ends a command."""
    error = unwrap_error_group(error)
    match error:
        case errors.ModelError():
            return _explain_model_error(error)
        case errors.NoModelConfigured():
            return NO_MODEL
        case errors.SessionNotFound():
            return "\n".join((str(error), *_recent_session_lines()))
        case errors.SettingsError(path=path, line=line) if path is not None and str(path) not in str(error):
            return f"{path}:{line}: {error}" if line is not None else f"{path}: {error}"
        case errors.ShoalError():
            return str(error)
        case OSError():
            return _explain_os_error(error)
        case _:
            return (
                f"Shoal failed because of a bug: {type(error).__name__}: {error}\nThe conversation so far "
                "is stored on disk. Run Shoal again with --debug to get a traceback."
            )


def unwrap_error_group(error: BaseException) -> BaseException:
    """Return the single error inside nested groups: leaving a session passes errors through task groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def describe_turn_end(finished: RunFinished) -> str:
    """Explain why a turn ended early; empty if it is done."""
    match finished.reason:
        case "done":
            return ""
        case "max_turns":
            return f"The turn limit was reached: {finished.detail}. Allow more with --max-turns."
        case "budget":
            return f"A limit was reached: {finished.detail}. {_suggest_higher_limit(finished.limit)}"
        case "deadline":
            advice = (
                "Allow more time with --deadline."
                if finished.limit is None
                else _suggest_higher_limit(finished.limit)
            )
            return f"Stopped: {finished.detail}. {advice}"
        case "interrupted":
            return "Interrupted."
        case "blocked" | "no_output":
            return f"Stopped: {finished.detail}."
        case "model_error" | "store_error" | "error":
            if isinstance(finished.error, BaseException):
                return explain_error(finished.error)
            return finished.detail or "The turn failed."


def _suggest_higher_limit(limit: LimitKind | None) -> str:
    match limit:
        case "usd" | None:
            return "Allow more with --max-budget-usd."
        case "tokens":
            return "Allow more with --max-total-tokens."
        case _:
            return f'Allow more with "max_{limit}" in settings.json under "shoal".'


def describe_budget_warning(warned: BudgetThresholdReached) -> str:
    owner_note = f" of {warned.whose}" if warned.whose else ""
    spent_amount, limit_amount = (
        format_limit_amount(warned.limit, warned.spent),
        format_limit_amount(warned.limit, warned.of),
    )
    return f"{warned.percent}% of the budget{owner_note} is spent: {spent_amount} of {limit_amount}"


def describe_stopped_agents(stopped: Sequence[AgentStatusSnapshot]) -> str:
    """List the agents that were stopped early, with their progress."""
    lines = ["Stopped before they finished:" if len(stopped) > 1 else "Stopped before it finished:"]
    for snapshot in stopped:
        calls = format_count_with_noun(snapshot.tool_calls, "tool call")
        lines.append(
            f"  {snapshot.agent}  {to_one_line(snapshot.name or snapshot.kind)}: "
            f"{truncate_text(to_one_line(snapshot.description), 60)} "
            f"({calls}, {format_token_count(snapshot.tokens)} tokens, {format_duration(snapshot.seconds)}; "
            f"output: {snapshot.output})"
        )
    return "\n".join(lines)


def describe_repetition_stops(stops: Sequence[RepetitionStopped]) -> str:
    """List the agents that were stopped because they were in a loop."""
    return "\n".join(
        ("Stopped because of a loop:", *(f"  {stop.agent}: {to_one_line(stop.reason)}" for stop in stops))
    )


def describe_down_members(members: Sequence[TeammateStatusSnapshot]) -> str:
    """List the members that were down when the run ended, and how to restart them."""
    team = members[0].agent.rpartition("@")[2]
    lines = [f"Down at the end of the run: {', '.join(each.name for each in members)}."]
    lines += [f"  {each.name}: {to_one_line(each.down_cause)}" for each in members]
    lines.append(f"They stay in the team. Resume the team to restart them: shoal team resume {team}")
    return "\n".join(lines)


def describe_unfinished_tasks(tasks: Sequence[Task]) -> str:
    """List the open tasks: first those that nobody claimed, then those that have an owner."""
    claimed: list[Task] = []
    unclaimed: list[Task] = []
    for task in tasks:
        (claimed if task.owner or task.status == "in_progress" else unclaimed).append(task)
    return "\n".join(
        (
            *_list_tasks(unclaimed, "that nobody claimed"),
            *_list_tasks(claimed, "that the owner did not complete"),
        )
    )


def _list_tasks(tasks: Sequence[Task], state: str) -> list[str]:
    if not tasks:
        return []
    lines = [f"{format_count_with_noun(len(tasks), 'open task')} {state}:"]
    for task in tasks[:_MAX_TASKS]:
        owner = f" ({to_one_line(task.owner)})" if task.owner else ""
        lines.append(f"  #{task.id} {truncate_text(to_one_line(task.subject), 60)}{owner}")
    if len(tasks) > _MAX_TASKS:
        lines.append(f"  and {len(tasks) - _MAX_TASKS} more")
    return lines


def describe_cut_off_agents(ends: Sequence[AgentResult]) -> str:
    """List the agents that were running when an earlier process of the session died."""
    agents = ", ".join(
        f"{to_one_line(end.name or end.kind)} "
        f"({truncate_text(to_one_line(end.description), 60)}, {end.agent})"
        for end in ends
    )
    return (
        f"These agents were interrupted when the last run of this session died: {agents}. "
        "The lead is notified and can resume them."
    )


def describe_ended_shells(shells: Sequence[tuple[str, str]]) -> str:
    """List the background shells, by id and command, that were still running at the end."""
    lines = [f"  {identity}  {truncate_text(to_one_line(command), 80)}" for identity, command in shells]
    return "\n".join(("Stopped because they were still running in the background:", *lines))


def describe_message_delivery(name: str, how: str) -> str:
    """Describe what happens with a message to an agent, by the way it was delivered."""
    return f"{name} {'continues with it' if how == 'resumed' else 'reads it at its next step'}."


def format_resume_hint(session: str) -> str:
    return f"The session is stored. Resume it:  shoal --resume {session}"


def _choose_pronoun(refused: Sequence[PermissionQuestion]) -> str:
    return "it" if len(refused) == 1 else "them"


def format_permission_hint(refused: Sequence[PermissionQuestion]) -> str:
    """Explain how to allow calls that were not run because nobody was available to answer."""
    import shlex

    allowable = [
        question
        for question in refused
        if question.rule or any(map(is_allow_rule_suggestion, question.suggestions))
    ]
    ruleless = [question for question in refused if question.suggestions and question not in allowable]
    others = [question for question in refused if not (question.rule or question.suggestions)]
    hints: list[str] = []
    if allowable:
        rules = dict.fromkeys(_format_allow_rule(question) for question in allowable)
        hints.append(
            f"{_describe_refused_calls(allowable)} Allow {_choose_pronoun(allowable)} with --allowedTools "
            f"{shlex.quote(' '.join(rules))}, or choose a --permission-mode."
        )
    if ruleless:
        hints.append(
            f"{_describe_refused_calls(ruleless)} A rule that allows it works only in a managed file. "
            "Choose a --permission-mode, or add the file's directory with --add-dir."
        )
    if others:
        hints.append(
            f"{_describe_refused_calls(others)} A person must approve it each time: run `shoal` in a "
            "terminal, or set shoal.question_patience and answer with `shoal ask`."
        )
    return "\n".join(hints)


def _describe_refused_calls(refused: Sequence[PermissionQuestion]) -> str:
    tools = dict.fromkeys(question.tool for question in refused)
    return f"Not run because nobody can answer the permission question: {join_names(tools)}."


def _format_allow_rule(question: PermissionQuestion) -> str:
    """Return the rule as a person can type it; a placeholder if it cannot be typed."""
    rule = question.rule
    is_typable = 0 < len(rule) <= _LONGEST_RULE and rule.count("(") < 2 and rule.count(")") < 2
    return rule if is_typable and rule.isprintable() else f"{question.tool}(…)"


def _explain_model_error(error: errors.ModelError) -> str:
    message = str(error).rstrip()
    match error:
        case errors.Unauthorized():
            variable = KEY_VARIABLES.get(error.provider)
            remedies = [f"Set {variable} to a valid key" if variable and variable not in message else ""]
            return _join_sentences(message, *remedies, "`shoal doctor` shows which variables are set.")
        case errors.UnknownModel():
            return _join_sentences(message, "Choose one with --model NAME or --model PROVIDER:NAME.")
        case errors.ConnectionLost():
            return _join_sentences(
                message, "Check the network and the base URL; `shoal doctor` shows which one is used."
            )
        case errors.TransientModelError():
            return _join_sentences(message, "Shoal retried several times. Try later, or use another --model.")
        case errors.ContextTooLong():
            return _join_sentences(message, "Start a new session, or use a model with a larger window.")
        case errors.ReplayMismatch():
            return _join_sentences(message, "If the change is intended, record the run again with --record.")
        case _:
            return message


def _explain_os_error(error: OSError) -> str:
    filename_note = f" ({error.filename})" if error.filename else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return (
                f"The disk is full: cannot write{filename_note}. Free some space, then resume with "
                "--continue."
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return (
                f"Permission denied{filename_note}: {error.strerror}. Change the permissions, or choose "
                "another home with SHOAL_HOME=DIRECTORY."
            )
        case errno.ENOENT if not filename_note and _is_cwd_deleted():
            return (
                "The directory that Shoal was started in is gone. Change to an existing directory and "
                "start again."
            )
        case _:
            return f"{error.strerror or error}{filename_note}."


def _is_cwd_deleted() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() only wraps this call
    except FileNotFoundError:
        return True
    return False


def _recent_session_lines() -> Iterator[str]:
    from shoal.surfaces.terminal.listings import format_session_lines, list_recent_sessions

    if sessions := list_recent_sessions(limit=5):
        yield "The latest sessions in this directory:"
        yield from (f"  {line}" for line in format_session_lines(sessions))


def _join_sentences(*parts: str) -> str:
    return " ".join(_end_sentence(part) for part in parts if part)


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!", "…", "\n")) else f"{text}."


def join_names(names: Iterable[str], *, most: int = 8) -> str:
    all_names = list(names)
    rest_note = f" and {len(all_names) - most} more" if len(all_names) > most else ""
    return ", ".join(all_names[:most]) + rest_note
