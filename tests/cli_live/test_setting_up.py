"""`shoal setup` at a terminal, and the offer of it where nothing is configured."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from cli_live.conftest import Place
from cli_live.test_interactive import CTRL_C
from shoal.testing import call, chat_server, in_thread, messages_server
from shoal.testing.replies import unauthorized

KEY = "sk-ant-pasted-secret-1234567890abcdef"
GOOD = ["ready", call("report", number=7)]
NOBODY = {"OLLAMA_HOST": "127.0.0.1:9"}


def test_a_provider_is_chosen_a_key_pasted_unseen_tried_and_kept(place: Place) -> None:
    with in_thread(messages_server([GOOD])) as server:
        terminal = place.shoal_at_terminal("setup", "--base-url", server.url, **NOBODY)
        terminal.wait_for("Which provider [1]:")
        terminal.type("anthropic\r")
        terminal.wait_for("(not shown; Enter for none):")
        terminal.type(f"{KEY}\r")
        terminal.wait_for("The model to ask [sonnet]:")
        terminal.type("haiku\r")
        text = terminal.wait_for("Asked where no model is named: anthropic:haiku")
        assert terminal.wait_for_end() == 0
        assert server.requests[0].headers["x-api-key"] == KEY
    assert "answers" in text
    assert "secret" not in terminal.raw
    kept = json.loads((place.home / "shoal" / "credentials.json").read_text())
    assert kept == {"anthropic": {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}}


@pytest.mark.parametrize(("answer", "kept"), [("n", False), ("y", True)])
def test_a_key_that_does_not_work_is_kept_only_on_demand(place: Place, answer: str, kept: bool) -> None:
    with in_thread(messages_server([unauthorized()])) as server:
        given = ("--provider", "anthropic", "--base-url", server.url, "--model", "haiku")
        terminal = place.shoal_at_terminal("setup", *given, **NOBODY)
        terminal.wait_for("Enter for none):")
        terminal.type(f"{KEY}\r")
        assert "did not accept the key" in terminal.wait_for("Keep it anyway? [y/N]:")
        terminal.type(f"{answer}\r")
        assert terminal.wait_for_end() == (0 if kept else 1)
    assert (place.home / "shoal" / "credentials.json").exists() == kept


def test_a_first_start_offers_to_set_up_and_goes_on_as_before_when_declined(place: Place) -> None:
    terminal = place.shoal_at_terminal("hello", **NOBODY)
    terminal.wait_for("Set one up now? [Y/n]:")
    terminal.type("n\r")
    assert terminal.wait_for_end() == 1
    assert "Three ways on" in terminal.screen.text


def test_a_first_start_is_set_up_and_then_talks(place: Place) -> None:
    with in_thread(chat_server([GOOD, "Hello from the model."], models=["tiny"])) as server:
        terminal = place.shoal_at_terminal("hello there", **NOBODY)
        terminal.wait_for("Set one up now? [Y/n]:")
        terminal.type("\r")
        terminal.wait_for("Which provider [1]:")
        terminal.type("5\r")
        terminal.wait_for("Its address")
        terminal.type(f"{server.url}/v1\r")
        terminal.wait_for("Enter for none):")
        terminal.type("\r")
        terminal.wait_for("The model to ask [tiny]:")
        terminal.type("\r")
        terminal.wait_for("Hello from the model.")


def test_who_has_a_key_is_offered_nothing(place: Place) -> None:
    with in_thread(messages_server(["Hello from the model."])) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        terminal = place.shoal_at_terminal("hi", **NOBODY, **env)
        assert "Set one up" not in terminal.wait_for("Hello from the model.")


def test_ctrl_c_at_a_question_ends_it_on_a_line_of_its_own(place: Place) -> None:
    terminal = place.shoal_at_terminal("setup", **NOBODY)
    terminal.wait_for("Which provider [1]:")
    # Of an interrupt that comes just before it reads, Python hears with the next key alone.
    for _ in range(10):
        terminal.type(CTRL_C)
        with suppress(AssertionError):
            assert terminal.wait_for_end(bound=2) == 130
            break
    assert terminal.status == 130
    assert "shoal: Interrupted." in terminal.screen.lines
