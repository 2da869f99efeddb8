"""Messages for a person at a terminal: errors, ends of turns, lists and hints, in tables."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cli_live.terminal_helpers import JOE, make_result
from shoal.core import errors
from shoal.core.agents.subagents import (
    AgentStatusSnapshot,
)
from shoal.core.budgets.usage import Usage
from shoal.core.events import (
    RunFinished,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.names import AgentName, TaskId
from shoal.core.permissions.permission_changes import (
    AddPermissionRulesSuggestion,
    SuggestedPermissionRule,
)
from shoal.core.permissions.questions import (
    PermissionQuestion,
)
from shoal.core.teams.tasks import Task
from shoal.core.teams.team_operations import TeammateStatusSnapshot
from shoal.surfaces.terminal import user_messages


def make_permission(**facts: Any) -> PermissionQuestion:
    known: dict[str, Any] = {
        "id": "q",
        "agent": LEAD_ID,
        "tool_use_id": "t",
        "tool": "Bash",
        "input": {},
        "reason": "r",
    }
    return PermissionQuestion(**known | facts)


RULE = SuggestedPermissionRule(tool_name="Bash", rule_content="make:*")
SAVE = AddPermissionRulesSuggestion(rules=(RULE,), destination="localSettings")


def make_end(reason: Any, detail: str = "why", **facts: Any) -> RunFinished:
    return RunFinished(
        agent=LEAD_ID,
        reason=reason,
        text="",
        detail=detail,
        requests=1,
        usage=Usage(),
        cost_usd=None,
        duration_ms=0,
        duration_api_ms=0,
        **facts,
    )


@pytest.mark.parametrize(
    ("finished", "text"),
    [
        (make_end("done"), ""),
        (make_end("max_turns"), "The turn limit was reached: why. Allow more with --max-turns."),
        (make_end("budget"), "A limit was reached: why. Allow more with --max-budget-usd."),
        (make_end("budget", limit="usd"), "A limit was reached: why. Allow more with --max-budget-usd."),
        (make_end("budget", limit="tokens"), "A limit was reached: why. Allow more with --max-total-tokens."),
        (
            make_end("budget", limit="requests"),
            'A limit was reached: why. Allow more with "max_requests" in settings.json under "shoal".',
        ),
        (make_end("deadline"), "Stopped: why. Allow more time with --deadline."),
        (make_end("deadline", limit="usd"), "Stopped: why. Allow more with --max-budget-usd."),
        (make_end("interrupted"), "Interrupted."),
        (make_end("blocked"), "Stopped: why."),
        (make_end("no_output"), "Stopped: why."),
        (make_end("error"), "why"),
        (make_end("store_error", ""), "The turn failed."),
        (make_end("model_error", error=errors.ShoalError("own text")), "own text"),
        (make_end("model_error", error="text"), "why"),
    ],
)
def test_the_end_of_a_turn_says_what_to_do(finished: RunFinished, text: str) -> None:
    assert user_messages.describe_turn_end(finished) == text


def make_os_error(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.Unauthorized("Bad key", provider="openai"), "Bad key. Set OPENAI_API_KEY to a valid key."),
        (errors.Unauthorized("Bad OPENAI_API_KEY!", provider="openai"), "Bad OPENAI_API_KEY! `shoal doctor`"),
        (errors.Unauthorized("Bad key.", provider="own"), "Bad key. `shoal doctor` shows which variables"),
        (errors.UnknownModel("No such model"), "No such model. Choose one with --model NAME"),
        (errors.ConnectionLost("Lost"), "Lost. Check the network and the base URL;"),
        (errors.Overloaded("Busy"), "Busy. Shoal retried several times."),
        (errors.ContextTooLong("Too long…"), "Too long… Start a new session,"),
        (errors.ReplayMismatch("Differs?"), "Differs? If the change is intended,"),
        (errors.BadRequest("Bad request \n"), "Bad request"),
        (errors.NoModelConfigured("x"), user_messages.NO_MODEL),
        (errors.SettingsError("Bad", path=Path("/s.json"), line=3), "/s.json:3: Bad"),
        (errors.SettingsError("Bad", path=Path("/s.json")), "/s.json: Bad"),
        (errors.SettingsError("Bad in /s.json", path=Path("/s.json"), line=3), "Bad in /s.json"),
        (errors.SettingsError("Bad"), "Bad"),
        (errors.ShoalError("plain"), "plain"),
        (ExceptionGroup("g", [ExceptionGroup("h", [errors.ShoalError("inner")])]), "inner"),
        (make_os_error(errno.ENOSPC, "/f"), "The disk is full: cannot write (/f). Free some space"),
        (make_os_error(errno.EDQUOT), "The disk is full: cannot write. Free some space"),
        (make_os_error(errno.EACCES, "/f"), "Permission denied (/f): Permission denied. Change"),
        (make_os_error(errno.EROFS), "Permission denied: Read-only file system. Change"),
        (make_os_error(errno.ENOENT, "/f"), "No such file or directory (/f)."),
        (make_os_error(errno.ENOENT), "No such file or directory."),
        (make_os_error(errno.EIO), "Input/output error."),
        (OSError("odd"), "odd."),
        (ValueError("odd"), "Shoal failed because of a bug: ValueError: odd\nThe conversation so far"),
    ],
)
def test_an_error_says_what_happened_and_what_to_do(error: BaseException, text: str) -> None:
    message = user_messages.explain_error(error)
    assert message == text or (message.startswith(text) and message.endswith("."))


def test_groups_of_several_errors_are_not_taken_apart() -> None:
    group = ExceptionGroup("g", [ValueError("a"), ValueError("b")])
    assert user_messages.unwrap_error_group(group) is group


def test_a_removed_working_directory_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    text = user_messages.explain_error(make_os_error(errno.ENOENT))
    assert text.startswith("The directory that Shoal was started in is gone.")


def make_snapshot(**facts: Any) -> AgentStatusSnapshot:
    known: dict[str, Any] = {
        "agent": JOE,
        "kind": "plumber",
        "name": "joe",
        "description": "mend it",
        "status": "running",
        "parent": LEAD_ID,
        "background": True,
        "tool_calls": 1,
        "tokens": 5,
        "seconds": 3.0,
        "output": "/out",
    }
    return AgentStatusSnapshot(**known | facts)


def test_stopped_agents_are_listed() -> None:
    line = "  a1  joe: mend it (1 tool call, 5 tokens, 3.0 s; output: /out)"
    other = "  a1  plumber: mend it (1 tool call, 5 tokens, 3.0 s; output: /out)"
    assert user_messages.describe_stopped_agents([make_snapshot()]) == f"Stopped before it finished:\n{line}"
    assert user_messages.describe_stopped_agents([make_snapshot(), make_snapshot(name="")]) == (
        f"Stopped before they finished:\n{line}\n{other}"
    )


def test_other_lists_at_the_end_of_a_run() -> None:
    members = [
        TeammateStatusSnapshot(
            agent=AgentId(f"{name}@roof"),
            name=AgentName(name),
            kind="k",
            state="down",
            color=None,
            model="m",
            down_cause="it\nfailed",
        )
        for name in ("ann", "bob")
    ]
    assert user_messages.describe_down_members(members).splitlines() == [
        "Down at the end of the run: ann, bob.",
        "  ann: it failed",
        "  bob: it failed",
        "They stay in the team. Resume the team to restart them: shoal team resume roof",
    ]
    tasks = [Task(id=TaskId(str(number)), subject=f"do {number}") for number in range(1, 12)]
    text = user_messages.describe_unfinished_tasks(tasks).splitlines()
    assert (text[0], text[1], text[10:]) == (
        "11 open tasks that nobody claimed:",
        "  #1 do 1",
        ["  #10 do 10", "  and 1 more"],
    )
    assert len(user_messages.describe_unfinished_tasks(tasks[:10]).splitlines()) == 11
    claimed = Task(id=TaskId("12"), subject="do 12", owner=AgentName("joe"), status="in_progress")
    assert user_messages.describe_unfinished_tasks((claimed, tasks[0])).splitlines() == [
        "1 open task that nobody claimed:",
        "  #1 do 1",
        "1 open task that the owner did not complete:",
        "  #12 do 12 (joe)",
    ]
    assert user_messages.describe_unfinished_tasks((claimed,)).startswith("1 open task that the owner")
    cut_off = user_messages.describe_cut_off_agents([make_result(name="joe"), make_result()])
    assert "died: joe (mend it, a1), plumber (mend it, a1). The lead" in cut_off
    assert user_messages.describe_ended_shells([("s1", "make\nall")]).splitlines() == [
        "Stopped because they were still running in the background:",
        "  s1  make all",
    ]
    assert user_messages.describe_message_delivery("joe", "resumed") == "joe continues with it."
    assert user_messages.describe_message_delivery("joe", "queued") == "joe reads it at its next step."
    assert user_messages.join_names("abc", most=3) == "a, b, c"
    assert user_messages.join_names("abcde", most=3) == "a, b, c and 2 more"
    assert user_messages.join_names("abcdefghi") == "a, b, c, d, e, f, g, h and 1 more"


RULES = {
    "once": (make_permission(rule="Bash(make:*)"), "Bash. Allow it with --allowedTools 'Bash(make:*)', or"),
    "suggested": (make_permission(suggestions=(SAVE,)), "Bash. Allow it with --allowedTools 'Bash(…)', or"),
    "long": (make_permission(rule="x" * 81), "Bash. Allow it with --allowedTools 'Bash(…)', or"),
    "longest": (make_permission(rule="x" * 80), f"Bash. Allow it with --allowedTools {'x' * 80}, or"),
    "nested": (make_permission(rule="Bash(a(b)"), "Bash. Allow it with --allowedTools 'Bash(…)', or"),
    "closed": (make_permission(rule="Bash(a))"), "Bash. Allow it with --allowedTools 'Bash(…)', or"),
    "unprintable": (make_permission(rule="Bash(\x1b)"), "Bash. Allow it with --allowedTools 'Bash(…)', or"),
    "denied": (
        make_permission(suggestions=(replace(SAVE, behavior="deny"),)),
        "Bash. A rule that allows it works only in a managed file.",
    ),
    "each time": (make_permission(), "Bash. A person must approve it each time:"),
}


@pytest.mark.parametrize("name", RULES)
def test_a_refused_call_is_explained_by_what_would_allow_it(name: str) -> None:
    question, text = RULES[name]
    [hint] = user_messages.format_permission_hint([question]).splitlines()
    assert hint.startswith(f"Not run because nobody can answer the permission question: {text}")


def test_several_refused_calls_have_one_hint_for_each_remedy() -> None:
    both = [RULES["once"][0], make_permission(tool="Edit", rule="Edit"), RULES["once"][0]]
    hints = user_messages.format_permission_hint([*both, RULES["denied"][0], RULES["each time"][0]])
    first, second, third = hints.splitlines()
    assert "question: Bash, Edit. Allow them with --allowedTools 'Bash(make:*) Edit'," in first
    assert "managed file" in second
    assert "each time" in third


def test_a_message_has_no_control_codes_and_ignores_a_closed_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    user_messages.print_user_message("a\x1b[31mb")
    assert capsys.readouterr().err == "shoal: ab\n"

    class LostTerminal(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("sys.stderr", LostTerminal())
    user_messages.print_user_message("lost")
