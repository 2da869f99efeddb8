"""`shoal setup` at a terminal, and the offer of it where nothing is configured."""

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


def test_a_provider_is_chosen_a_key_pasted_unseen_tried_and_kept(place: CliProject) -> None:
    with run_in_thread(messages_server([GOOD])) as server:
        terminal = place.start_shoal_terminal("setup", "--base-url", server.url, **NOBODY)
        terminal.wait_for("Which provider [1]:")
        terminal.type_text("anthropic\r")
        terminal.wait_for("(not shown; Enter for none):")
        terminal.type_text(f"{KEY}\r")
        terminal.wait_for("The model to ask [sonnet]:")
        terminal.type_text("haiku\r")
        text = terminal.wait_for("Asked where no model is named: anthropic:haiku")
        assert terminal.wait_for_end() == 0
        assert server.requests[0].headers["x-api-key"] == KEY
    assert "answers" in text
    assert "secret" not in terminal.raw
    kept = json.loads((place.home / "shoal" / "credentials.json").read_text())
    assert kept == {"anthropic": {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}}


@pytest.mark.parametrize(("answer", "kept"), [("n", False), ("y", True)])
def test_a_key_that_does_not_work_is_kept_only_on_demand(place: CliProject, answer: str, kept: bool) -> None:
    with run_in_thread(messages_server([make_unauthorized_fault()])) as server:
        given = ("--provider", "anthropic", "--base-url", server.url, "--model", "haiku")
        terminal = place.start_shoal_terminal("setup", *given, **NOBODY)
        terminal.wait_for("Enter for none):")
        terminal.type_text(f"{KEY}\r")
        assert "did not accept the key" in terminal.wait_for("Keep it anyway? [y/N]:")
        terminal.type_text(f"{answer}\r")
        assert terminal.wait_for_end() == (0 if kept else 1)
    assert (place.home / "shoal" / "credentials.json").exists() == kept


def test_a_first_start_offers_to_set_up_and_goes_on_as_before_when_declined(place: CliProject) -> None:
    terminal = place.start_shoal_terminal("hello", **NOBODY)
    terminal.wait_for("Set one up now? [Y/n]:")
    terminal.type_text("n\r")
    assert terminal.wait_for_end() == 1
    assert "Three ways on" in terminal.screen.text


def test_a_first_start_is_set_up_and_then_talks(place: CliProject) -> None:
    with run_in_thread(chat_server([GOOD, "Hello from the model."], models=["tiny"])) as server:
        terminal = place.start_shoal_terminal("hello there", **NOBODY)
        terminal.wait_for("Set one up now? [Y/n]:")
        terminal.type_text("\r")
        terminal.wait_for("Which provider [1]:")
        terminal.type_text("5\r")
        terminal.wait_for("Its address")
        terminal.type_text(f"{server.url}/v1\r")
        terminal.wait_for("Enter for none):")
        terminal.type_text("\r")
        terminal.wait_for("The model to ask [tiny]:")
        terminal.type_text("\r")
        terminal.wait_for("Hello from the model.")


def test_setup_is_not_offered_when_a_key_exists(place: CliProject) -> None:
    with run_in_thread(messages_server(["Hello from the model."])) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        terminal = place.start_shoal_terminal("hi", **NOBODY, **env)
        assert "Set one up" not in terminal.wait_for("Hello from the model.")


def test_ctrl_c_at_a_question_ends_it_on_a_line_of_its_own(place: CliProject) -> None:
    terminal = place.start_shoal_terminal("setup", **NOBODY)
    terminal.wait_for("Which provider [1]:")
    # Of an interrupt that comes just before it reads, Python hears with the next key alone.
    for _ in range(10):
        terminal.type_text(CTRL_C)
        with suppress(AssertionError):
            assert terminal.wait_for_end(timeout=2) == 130
            break
    assert terminal.status == 130
    assert "shoal: Interrupted." in terminal.screen.lines
