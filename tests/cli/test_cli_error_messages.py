"""Error messages that tell a person what to do next."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shoal.core import errors
from shoal.core.budgets.usage import Usage
from shoal.core.events import BudgetThresholdReached, RunFinished
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import PermissionQuestion
from shoal.surfaces.terminal.user_messages import (
    describe_budget_warning,
    describe_turn_end,
    explain_error,
    format_permission_hint,
    format_resume_hint,
    print_user_message,
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
        (errors.ReplayMismatch("- a\n+ b"), "record the run again with --record"),
        (errors.NoModelConfigured("none"), "shoal demo"),
        (errors.SettingsError("bad value", path=Path("/s.json"), line=3), "/s.json:3: bad value"),
        (errors.MissingPackageExtra("PDF", "pdf"), "pip install 'shoal[pdf]'"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/h/x"),
            "The disk is full: cannot write (/h/x). Free some space",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/h/x"), "SHOAL_HOME"),
        (KeyError("x"), "--debug"),
    ],
)
def test_an_error_is_reported_with_advice(error: Exception, advice: str) -> None:
    assert advice in explain_error(error)


def test_an_error_inside_exception_groups_is_reported_itself() -> None:
    inner = errors.BudgetError("cannot be kept")
    assert explain_error(ExceptionGroup("outer", [ExceptionGroup("inner", [inner])])) == "cannot be kept"


def test_a_key_variable_that_was_named_already_is_not_named_twice() -> None:
    error = errors.Unauthorized("401. Set ANTHROPIC_API_KEY.", provider="anthropic", status=401)
    assert explain_error(error).count("ANTHROPIC_API_KEY") == 1


def make_run_finished(reason: str, **more: object) -> RunFinished:
    facts = {"text": "", "detail": "d", "requests": 1, "usage": Usage(), "cost_usd": None}
    return RunFinished(agent=LEAD_ID, reason=reason, duration_ms=1, duration_api_ms=1, **facts | more)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("done", ""),
        ("max_turns", "--max-turns"),
        ("budget", "--max-budget-usd"),
        ("deadline", "--deadline"),
        ("interrupted", "Interrupted"),
        ("store_error", "d"),
    ],
)
def test_an_unfinished_turn_is_reported_with_its_reason(reason: str, message: str) -> None:
    assert message in describe_turn_end(make_run_finished(reason))


@pytest.mark.parametrize(
    ("reason", "limit", "message"),
    [
        ("budget", "usd", "--max-budget-usd"),
        ("budget", "tokens", "--max-total-tokens"),
        ("budget", "requests", '"max_requests" in settings.json'),
        ("deadline", "seconds", '"max_seconds" in settings.json'),
    ],
)
def test_a_turn_ended_by_a_limit_names_the_limit_to_raise(reason: str, limit: str, message: str) -> None:
    assert message in describe_turn_end(make_run_finished(reason, limit=limit))


def test_a_budget_warning_names_the_amount_and_the_limit() -> None:
    tokens = BudgetThresholdReached(
        agent=LEAD_ID, limit="tokens", percent=80, spent=8_500, of=10_000, whose="Explore"
    )
    assert (
        describe_budget_warning(tokens)
        == "80% of the budget of Explore is spent: 8,500 tokens of 10,000 tokens"
    )
    usd = BudgetThresholdReached(agent=LEAD_ID, limit="usd", percent=50, spent=0.51234, of=1.0)
    assert describe_budget_warning(usd) == "50% of the budget is spent: $0.5123 of $1"


def test_a_failed_turn_is_reported_as_its_error() -> None:
    error = errors.Unauthorized("no", provider="openai", status=401)
    assert "OPENAI_API_KEY" in describe_turn_end(make_run_finished("model_error", error=error))


def test_advice_is_a_command_to_type() -> None:
    assert format_resume_hint("abc").endswith("shoal --resume abc")


def _make_question(tool: str, rule: str) -> PermissionQuestion:
    return PermissionQuestion(
        id="q", agent=LEAD_ID, tool_use_id="t", tool=tool, input={}, reason="r", rule=rule
    )


@pytest.mark.parametrize("command", ["echo $(date)", "a\nb", "x" * 100])
def test_a_rule_that_cannot_be_typed_is_shown_as_a_placeholder(command: str) -> None:
    hint = format_permission_hint([_make_question("Bash", f"Bash({command})")])
    assert "--allowedTools 'Bash(…)'" in hint


def test_no_rule_is_advised_for_a_call_that_a_person_must_approve_each_time() -> None:
    alone = format_permission_hint([_make_question("Write", "")])
    assert "permission question: Write. A person must approve it each time" in alone
    assert "--allowedTools" not in alone
    assert "--permission-mode" not in alone
    both = format_permission_hint([_make_question("Write", ""), _make_question("Bash", "Bash(make)")])
    assert "question: Bash. Allow it with --allowedTools 'Bash(make)'" in both
    assert "question: Write. A person must approve it each time" in both


def test_terminal_codes_from_a_server_are_removed(capsys: pytest.CaptureFixture[str]) -> None:
    print_user_message(explain_error(errors.RateLimited("slow\x1b]0;owned\x07 down\x1b[2J", status=429)))
    output = capsys.readouterr().err
    assert "\x1b" not in output
    assert "\x07" not in output
    assert output.startswith("shoal: slow down. Shoal retried several times")
