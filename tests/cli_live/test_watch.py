"""`shoal watch`: a run seen from another process."""

from __future__ import annotations

import json
import os
import signal

import pytest

from cli_live.conftest import Place
from cli_live.test_interactive import CTRL_D, bash, is_at_prompt


def session_of(place: Place) -> str:
    return next((place.home / "projects").glob("*/*.jsonl")).stem


@pytest.mark.spec("USR-18")
def test_a_live_run_is_seen_as_it_happens_and_to_its_end(place: Place) -> None:
    gate = place.gate()
    talk = place.talk(
        {"match": "go", "text": "I begin.", "tools": [bash(gate.command)]},
        {"match": "gate opened", "text": "It is open now."},
        mode="bypassPermissions",
        prompt="go on",
    )
    talk.wait_for("Bash waiting")
    watch = place.shoal_at_terminal("watch")
    text = watch.wait_for("● Bash")
    assert f"session {session_of(place)}" in text
    assert "› go on" in text
    assert "I begin." in text
    watch.wait_for("lead · Bash")
    gate.open()
    watch.wait_for("It is open now.")
    assert "→ exit 0 · gate opened" in watch.screen.text
    talk.wait_for(is_at_prompt)
    talk.type(CTRL_D)
    assert talk.wait_for_end() == 0
    assert watch.wait_for_end() == 0
    assert "tokens" in watch.screen.lines[-2] + watch.screen.lines[-1]


def test_a_run_is_found_before_anything_was_said_in_it(place: Place) -> None:
    talk = place.talk({"text": "Hello."})
    talk.wait_for("/help lists")
    watch = place.shoal_at_terminal("watch")
    watch.wait_for("session ")
    talk.type("hi\r")
    watch.wait_for("Hello.")


def test_words_are_seen_while_they_are_said(place: Place) -> None:
    words = " ".join(f"word{number}" for number in range(400))
    talk = place.talk({"text": "ready"}, {"match": "speak", "text": words}, pace=0.005, prompt="go")
    talk.wait_for(lambda text: "ready" in text and is_at_prompt(text))
    watch = place.shoal_at_terminal("watch")
    watch.wait_for("ready")
    talk.type("speak\r")
    text = watch.wait_for("word10 ")
    assert "word399" not in text
    watch.wait_for("word399")


@pytest.mark.spec("USR-18")
def test_a_finished_run_is_printed_from_its_journal(place: Place) -> None:
    talk = place.talk(
        {"match": "go", "text": "I begin.", "tools": [bash("echo hi")]},
        {"text": "All done."},
        mode="bypassPermissions",
        prompt="go",
    )
    talk.wait_for(lambda text: "All done." in text and is_at_prompt(text))
    talk.type(CTRL_D)
    talk.wait_for_end()
    none_live = place.shoal("watch")
    assert none_live.returncode == 1
    assert f"shoal watch {session_of(place)[:8]}" in none_live.stderr
    printed = place.shoal("watch", session_of(place)[:8])
    assert printed.returncode == 0
    assert "I begin.\n\n● Bash echo hi  → exit 0\n\nAll done.\n" in printed.stdout
    assert "\x1b" not in printed.stdout


def test_json_gives_the_events_themselves(place: Place) -> None:
    talk = place.talk({"text": "Hello."}, prompt="go")
    talk.wait_for(lambda text: "Hello." in text and is_at_prompt(text))
    talk.type(CTRL_D)
    talk.wait_for_end()
    printed = place.shoal("watch", session_of(place), "--json")
    kinds = [json.loads(line)["type"] for line in printed.stdout.splitlines()]
    assert kinds[0] == "session_started"
    assert kinds[-1] == "session_ended"
    assert "request_settled" in kinds


@pytest.mark.spec("USR-18")
def test_frames_give_the_live_view_as_json(place: Place) -> None:
    gate = place.gate()
    talk = place.talk(
        {"match": "go", "tools": [bash(gate.command)]},
        {"match": "gate opened", "text": "It is open."},
        mode="bypassPermissions",
        prompt="go",
    )
    talk.wait_for("Bash waiting")
    watching = place.shoal_at_terminal("watch", "--frames")
    watching.wait_for('"state":"working"')
    gate.open()
    talk.wait_for(lambda text: "It is open." in text and is_at_prompt(text))
    talk.type(CTRL_D)
    talk.wait_for_end()
    assert watching.wait_for_end() == 0
    printed = place.shoal("watch", session_of(place), "--frames").stdout.splitlines()
    frame = json.loads(printed[-1])
    (lead,) = frame["agents"]
    assert (lead["name"], lead["state"], lead["tool_calls"]) == ("lead", "idle", 1)
    assert lead["tokens"] == sum(row["input_tokens"] + row["output_tokens"] for row in frame["costs"]) > 0
    assert (frame["live"], frame["run"]["ended"]) == (False, True)


def test_a_run_that_is_killed_ends_the_watching_with_a_word_about_it(place: Place) -> None:
    gate = place.gate()
    talk = place.talk({"tools": [bash(gate.command)]}, mode="bypassPermissions", prompt="go")
    talk.wait_for("Bash waiting")
    watch = place.shoal_at_terminal("watch")
    watch.wait_for("● Bash")
    os.kill(talk.pid, signal.SIGKILL)
    assert watch.wait_for_end() == 0
    assert "its process is gone" in watch.screen.text
    assert f"shoal --resume {session_of(place)}" in watch.screen.text


def test_an_unknown_run_is_a_sentence(place: Place) -> None:
    run = place.shoal("watch", "nonesuch")
    assert run.returncode == 1
    assert "'nonesuch' names no run" in run.stderr
