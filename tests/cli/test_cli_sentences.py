"""Every error ends as a sentence that says what to do next."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shoal.core import errors
from shoal.core.events import BudgetWarned, Finished
from shoal.core.ids import LEAD
from shoal.core.questions import MayRun
from shoal.core.usage import Usage
from shoal.surfaces.terminal.sentences import (
    budget_warning,
    ending,
    explain,
    how_to_allow,
    how_to_go_on,
    say,
)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (errors.Unauthorized("no", provider="anthropic", status=401), "Set ANTHROPIC_API_KEY"),
        (errors.Unauthorized("no", provider="openai", status=401), "Set OPENAI_API_KEY"),
        (errors.Unauthorized("no", provider="anthropic", status=401), "shoal doctor"),
        (errors.UnknownModel("There is no model 'x'."), "--model"),
        (errors.ConnectionLost("nobody answers"), "base URL"),
        (errors.RateLimited("slow down", status=429), "Try later"),
        (errors.ContextTooLong("too long"), "larger window"),
        (errors.ReplayMismatch("- a\n+ b"), "+ b. Record the run again with --record"),
        (errors.NoModel("none"), "shoal demo"),
        (errors.SettingsError("bad value", path=Path("/s.json"), line=3), "/s.json:3: bad value"),
        (errors.MissingExtra("PDF", "pdf"), "pip install 'shoal[pdf]'"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/h/x"),
            "No space is left to write (/h/x). Make room",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/h/x"), "SHOAL_HOME"),
        (KeyError("x"), "--debug"),
    ],
)
def test_an_error_is_told_with_what_to_do(error: Exception, advice: str) -> None:
    assert advice in explain(error)


def test_an_error_in_task_groups_is_told_as_itself() -> None:
    inner = errors.BudgetError("cannot be kept")
    assert explain(ExceptionGroup("outer", [ExceptionGroup("inner", [inner])])) == "cannot be kept"


def test_a_key_variable_that_was_named_already_is_not_named_twice() -> None:
    error = errors.Unauthorized("401. Set ANTHROPIC_API_KEY.", provider="anthropic", status=401)
    assert explain(error).count("ANTHROPIC_API_KEY") == 1


def finished(reason: str, **more: object) -> Finished:
    facts = {"text": "", "detail": "d", "requests": 1, "usage": Usage(), "cost_usd": None}
    return Finished(agent=LEAD, reason=reason, duration_ms=1, duration_api_ms=1, **facts | more)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("done", ""),
        ("max_turns", "--max-turns"),
        ("budget", "--max-budget-usd"),
        ("deadline", "--deadline"),
        ("interrupted", "Interrupted"),
        ("store_error", "d"),
    ],
)
def test_a_turn_that_was_not_finished_says_why(reason: str, said: str) -> None:
    assert said in ending(finished(reason))


@pytest.mark.parametrize(
    ("reason", "limit", "said"),
    [
        ("budget", "usd", "--max-budget-usd"),
        ("budget", "tokens", "--max-total-tokens"),
        ("budget", "requests", '"max_requests" in settings.json'),
        ("deadline", "seconds", '"max_seconds" in settings.json'),
    ],
)
def test_a_turn_that_a_limit_ended_says_which_to_raise(reason: str, limit: str, said: str) -> None:
    assert said in ending(finished(reason, limit=limit))


def test_a_budget_warning_says_how_much_of_what() -> None:
    tokens = BudgetWarned(agent=LEAD, limit="tokens", percent=80, spent=8_500, of=10_000, whose="Explore")
    assert budget_warning(tokens) == "80 % of the budget of Explore is spent: 8,500 tokens of 10,000 tokens"
    usd = BudgetWarned(agent=LEAD, limit="usd", percent=50, spent=0.51234, of=1.0)
    assert budget_warning(usd) == "50 % of the budget is spent: $0.5123 of $1"


def test_a_failed_turn_is_told_as_its_error() -> None:
    error = errors.Unauthorized("no", provider="openai", status=401)
    assert "OPENAI_API_KEY" in ending(finished("model_error", error=error))


def test_the_way_on_is_a_command_to_type() -> None:
    assert how_to_go_on("abc").endswith("shoal --resume abc")


@pytest.mark.parametrize("command", ["", "echo $(date)", "a\nb", "x" * 100])
def test_a_rule_that_cannot_be_typed_is_left_to_the_person(command: str) -> None:
    rule = f"Bash({command})" if command else ""
    question = MayRun(id="q", agent=LEAD, tool_use_id="t", tool="Bash", input={}, reason="r", rule=rule)
    assert "--allowedTools 'Bash(…)'" in how_to_allow([question])


def test_what_a_server_said_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say(explain(errors.RateLimited("slow\x1b]0;owned\x07 down\x1b[2J", status=429)))
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "\x07" not in told
    assert told.startswith("shoal: slow down. It was asked again")
