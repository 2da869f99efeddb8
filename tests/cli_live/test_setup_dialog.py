"""`shoal setup` at a terminal, and the setup offered when nothing is configured."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from cli_live.conftest import CliProject
from cli_live.terminal_helpers import CTRL_C
from shoal.testing import chat_server, make_tool_call, messages_server, run_in_thread
from shoal.testing.mock_replies import make_unauthorized_fault

KEY = "sk-ant-pasted-secret-1234567890abcdef"
GOOD = ["ready", make_tool_call("report", number=7)]
NOBODY = {"OLLAMA_HOST": "127.0.0.1:9"}


def test_setup_tests_and_stores_a_key_without_showing_it(cli_project: CliProject) -> None:
    with run_in_thread(messages_server([GOOD])) as server:
        terminal = cli_project.start_shoal_terminal("setup", "--base-url", server.url, **NOBODY)
        terminal.wait_for("Which provider [1]:")
        terminal.type_text("anthropic\r")
        terminal.wait_for("(not shown; Enter for none):")
        terminal.type_text(f"{KEY}\r")
        terminal.wait_for("Default model [sonnet]:")
        terminal.type_text("haiku\r")
        text = terminal.wait_for("Default model: anthropic:haiku")
        assert terminal.wait_for_end() == 0
        assert server.requests[0].headers["x-api-key"] == KEY
    assert "answers" in text
    assert "secret" not in terminal.raw
    credentials = json.loads((cli_project.home / "shoal" / "credentials.json").read_text())
    assert credentials == {"anthropic": {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}}


@pytest.mark.parametrize(("answer", "is_stored"), [("n", False), ("y", True)])
def test_a_rejected_key_is_stored_only_on_confirmation(
    cli_project: CliProject, answer: str, is_stored: bool
) -> None:
    with run_in_thread(messages_server([make_unauthorized_fault()])) as server:
        flags = ("--provider", "anthropic", "--base-url", server.url, "--model", "haiku")
        terminal = cli_project.start_shoal_terminal("setup", *flags, **NOBODY)
        terminal.wait_for("Enter for none):")
        terminal.type_text(f"{KEY}\r")
        assert "did not accept the key" in terminal.wait_for("Store it anyway? [y/N]:")
        terminal.type_text(f"{answer}\r")
        assert terminal.wait_for_end() == (0 if is_stored else 1)
    assert (cli_project.home / "shoal" / "credentials.json").exists() == is_stored


def test_declining_setup_at_the_first_start_shows_the_usual_error(cli_project: CliProject) -> None:
    terminal = cli_project.start_shoal_terminal("hello there", **NOBODY)
    terminal.wait_for("Set one up now? [Y/n]:")
    terminal.type_text("n\r")
    assert terminal.wait_for_end() == 1
    assert "You can do one of these" in terminal.screen.text


def test_setup_at_the_first_start_continues_with_the_conversation(cli_project: CliProject) -> None:
    with run_in_thread(chat_server([GOOD, "Hello from the model."], models=["tiny"])) as server:
        terminal = cli_project.start_shoal_terminal("hello there", **NOBODY)
        terminal.wait_for("Set one up now? [Y/n]:")
        terminal.type_text("\r")
        terminal.wait_for("Which provider [1]:")
        terminal.type_text("5\r")
        terminal.wait_for("Its URL")
        terminal.type_text(f"{server.url}/v1\r")
        terminal.wait_for("Enter for none):")
        terminal.type_text("\r")
        terminal.wait_for("Default model [tiny]:")
        terminal.type_text("\r")
        terminal.wait_for("Hello from the model.")


def test_setup_is_not_offered_when_a_key_exists(cli_project: CliProject) -> None:
    with run_in_thread(messages_server(["Hello from the model."])) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        terminal = cli_project.start_shoal_terminal("hi there", **NOBODY, **env)
        assert "Set one up" not in terminal.wait_for("Hello from the model.")


def test_ctrl_c_at_a_setup_question_ends_the_dialog_on_a_new_line(cli_project: CliProject) -> None:
    terminal = cli_project.start_shoal_terminal("setup", **NOBODY)
    terminal.wait_for("Which provider [1]:")
    # Of an interrupt that comes just before it reads, Python hears with the next key alone.
    for _ in range(10):
        terminal.type_text(CTRL_C)
        with suppress(AssertionError):
            assert terminal.wait_for_end(timeout=2) == 130
            break
    assert terminal.status == 130
    assert "shoal: Interrupted." in terminal.screen.lines
