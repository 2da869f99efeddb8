"""Keys of the full screen: modes, interrupts, steering, panels, and leaving."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.events import Key, Paste

from agent_scripts import ToolGate, call_tool, script_agents, spawn_agent
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.ids import LEAD_ID
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.tui.answer_screen import AnswerScreen
from tui.tui_helpers import wait_for_question
from tui_driver import drive_tui


@pytest.mark.spec("USR-18")
async def test_shift_tab_cycles_through_the_permission_modes(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["yes"]), mode="default") as at:
        await at.wait_for_text(" asks ")
        for mode, label in (("acceptEdits", "accepts edits"), ("plan", "plans"), ("default", "asks")):
            await at.press_keys("shift+tab")
            await at.wait_for_text(f" {label} ")
            assert at.session.runtime.lead.permissions.mode == mode


@pytest.mark.spec("USR-18")
async def test_shift_tab_returns_to_the_initial_permission_mode(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["yes"]), mode="dontAsk") as at:
        await at.wait_for_text(" never asks ")
        for label in ("asks", "accepts edits", "plans", "never asks", "asks"):
            await at.press_keys("shift+tab")
            await at.wait_for_text(f" {label} ")


@pytest.mark.slow
@pytest.mark.spec("RUN-04", "TRN-03")
async def test_escape_interrupts_the_turn_and_puts_unsent_input_back(tmp_path: Path) -> None:
    gate = ToolGate()
    async with drive_tui(
        tmp_path, ScriptedModel([[call_tool("Gate", "g")], "on"]), tools=[gate.tool], skip_permissions=True
    ) as at:
        await at.submit_text("go")
        await gate.wait_until_reached()
        await at.submit_text("and mind the paint")
        await at.wait_for_text("↳ sent; the agent")
        await at.press_keys("escape")
        await at.wait_for_text("interrupted", "✗ Gate")
        await at.wait_until_idle()
        assert at.app.composer.text == "and mind the paint"
        assert "on" not in at.screen_text.split("interrupted")[1].split("╭")[0]


@pytest.mark.slow
async def test_unsent_input_is_put_back_before_a_half_typed_line(tmp_path: Path) -> None:
    gate = ToolGate()
    model = ScriptedModel([[call_tool("Gate", "g")], "on"])
    async with drive_tui(tmp_path, model, tools=[gate.tool], skip_permissions=True) as at:
        await at.submit_text("go")
        await gate.wait_until_reached()
        await at.submit_text("mind the paint")
        await at.wait_for_text("↳ sent; the agent")
        await at.type_text("and then")
        await at.press_keys("escape")
        await at.wait_for_text("interrupted")
        await at.wait_until_idle()
        assert at.app.composer.text == "mind the paint\nand then"


@pytest.mark.slow
async def test_ctrl_c_at_a_confirmation_cancels_the_command(tmp_path: Path) -> None:
    written = tmp_path / "project" / "a"
    call = call_tool("Write", "w", file_path=str(written), content="x")
    async with drive_tui(tmp_path, ScriptedModel([[call], "written"])) as at:
        await at.submit_text("write it")
        await at.wait_for_text("written")
        await at.wait_until_idle()
        await at.submit_text("/rewind 1")
        await at.wait_for_text("Rewind the conversation too? y/n")
        await at.press_keys("ctrl+c")
        await at.wait_until_idle()
        assert written.exists()
        assert not at.app.is_person_answering
        await at.submit_text("/rewind 1")
        await at.wait_for_text("Rewind the conversation too? y/n")
        await at.submit_text("n")
        await at.wait_until(lambda: not written.exists(), "the undoing")


async def test_the_status_line_shows_a_new_model_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
    async with drive_tui(tmp_path, ScriptedModel(["hello"])) as at:
        await at.submit_text("hi")
        await at.wait_until_idle()
        assert "claude-opus" not in at.screen_text
        await at.submit_text("/model opus")
        await at.wait_until(lambda: "· claude-opus" in at.screen_text, "the new model")


async def test_pasted_text_survives_answering_a_confirmation(tmp_path: Path) -> None:
    pasted_text = "\n".join(map(str, range(30)))
    async with drive_tui(tmp_path, ScriptedModel(["yes"])) as at:
        at.app.composer.post_message(Paste(pasted_text))
        await at.wait_until(lambda: at.app.composer.text == "[pasted 30 lines]")
        answer = asyncio.create_task(at.client.ask_user_for_line("Sure?"))
        await at.wait_for_text("Sure?")
        await at.submit_text("y")
        assert await answer == "y"
        assert at.app.composer.text == "[pasted 30 lines]"
        assert at.app.unsent_texts == (pasted_text,)


@pytest.mark.spec("QUE-03")
async def test_input_typed_during_a_call_reaches_the_agent_after_it(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        go=[[call_tool("Gate", "g")], lambda request: f"heard: {request.messages[-1].text}"]
    )
    async with drive_tui(tmp_path, model, tools=[gate.tool], skip_permissions=True) as at:
        await at.submit_text("go")
        await gate.wait_until_reached()
        await at.submit_text("mind the paint")
        await at.wait_for_text("↳ sent; the agent")
        gate.is_open.set()
        await at.wait_for_text("heard: mind the paint", "› mind the paint")


@pytest.mark.slow
@pytest.mark.spec("USR-05")
async def test_a_question_opens_by_itself_and_is_answered_there(tmp_path: Path) -> None:
    model = ScriptedModel([[call_tool("Bash", "b", command="touch made")], "made it"])
    async with drive_tui(tmp_path, model, mode="default") as at:
        await at.submit_text("make it")
        await wait_for_question(at)
        await at.press_keys("y")
        await at.wait_for_text("made it", "? may Bash run?  allowed once")
        assert (tmp_path / "project" / "made").exists()


@pytest.mark.slow
@pytest.mark.spec("QUE-06")
@pytest.mark.parametrize("panel", [False, True])
@pytest.mark.parametrize("key", ["y", "escape"])
async def test_notifications_wait_until_a_question_is_answered_or_closed(
    tmp_path: Path, key: str, panel: bool
) -> None:
    gate = ToolGate()
    both = [spawn_agent(f"{who} works", who, run_in_background=True) for who in ("Asker", "Other")]
    model = script_agents(
        lead=[both, "both are out", "heard of it"],
        Asker=[[call_tool("Bash", "b", command="touch made")], "asked"],
        Other=[[call_tool("Gate", "g")], "the other part"],
    )
    options = {"mode": "default", "tools": [gate.tool], "allowed_tools": ["Gate"]}
    async with drive_tui(tmp_path, model, **options) as at:
        await at.submit_text("lead, go")
        screen = await wait_for_question(at)
        if panel:
            await at.press_keys("escape", "f4", "enter")
            await at.wait_until(
                lambda: at.app.screen is not screen and at.app.is_person_answering, "the question again"
            )
        await at.wait_until_idle()
        gate.is_open.set()
        await at.wait_until(
            lambda: at.session.runtime.inbox.queue.count_waking_items(LEAD_ID), "the end of the other"
        )
        await at.wait_for_redraw()
        assert not at.client.is_busy
        assert at.session.turn == 1
        await at.press_keys(key)
        await at.wait_until(lambda: at.session.turn > 1, "the turn that was held up")


@pytest.mark.slow
async def test_a_question_does_not_open_over_a_half_typed_line(tmp_path: Path) -> None:
    gate = ToolGate()
    model = ScriptedModel(
        [[call_tool("Gate", "g")], [call_tool("Bash", "b", command="touch made")], "made it"]
    )
    options = {"mode": "default", "tools": [gate.tool], "allowed_tools": ["Gate"]}
    async with drive_tui(tmp_path, model, size=(120, 30), **options) as at:
        await at.submit_text("make it")
        await gate.wait_until_reached()
        await at.type_text("half a li")
        gate.is_open.set()
        await at.wait_for_text("? 1 question: F4")
        await at.type_text("ne")
        assert at.app.composer.text == "half a line"
        assert not isinstance(at.app.screen, AnswerScreen)
        await at.press_keys("f4", "enter")
        await at.wait_until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        await at.press_keys("y")
        await at.wait_for_text("made it")
        assert at.app.composer.text == "half a line"


@pytest.mark.slow
@pytest.mark.spec("SRF-01", "RUN-03")
@pytest.mark.parametrize("columns", [80, 120])
async def test_an_agent_can_be_viewed_and_messaged(tmp_path: Path, columns: int) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("Digger digs", "spawn", name="digger", run_in_background=True), "sent one out"],
        Digger=[[call_tool("Gate", "g")], lambda request: f"I heard: {request.messages[-1].text}"],
    )
    async with drive_tui(tmp_path, model, size=(columns, 30), tools=[gate.tool], skip_permissions=True) as at:
        await at.submit_text("lead, go")
        await gate.wait_until_reached()
        await at.wait_for_text("sent one out", "1 agent at work")
        await at.press_keys("f2")
        await at.wait_for_text("Agents", "digger")
        assert ("sent one out" in at.screen_text) == (columns >= 100), (
            "a panel stands over a narrow conversation"
        )
        await at.press_keys("down", "enter")
        await at.wait_for_text("● digger", "› Digger digs", "● Gate", "F5 back to the lead")
        await at.submit_text("deeper")
        await at.wait_for_text("↳ sent to digger: deeper")
        gate.is_open.set()
        await at.wait_for_text("I heard: ", "› deeper")
        await at.press_keys("f5")
        await at.wait_for_text("sent one out")
        assert at.client.viewed == LEAD_ID


async def test_the_key_of_a_panel_focuses_it_and_then_closes_it(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["yes"])) as at:
        side, composer = at.app.side_panel, at.app.composer
        await at.press_keys("f2")
        await at.wait_until(lambda: side.has_focus_within, "the panel")
        await at.press_keys("f6")
        await at.wait_until(lambda: composer.has_focus, "the line")
        await at.press_keys("f2")
        await at.wait_until(lambda: side.has_focus_within, "the panel again")
        assert side.shown_panel == "agents"
        await at.press_keys("f2")
        await at.wait_until(lambda: composer.has_focus, "the line again")
        assert side.shown_panel == ""


async def test_ctrl_c_clears_the_line_then_warns_then_exits(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["yes"])) as at:
        await at.type_text("half")
        await at.press_keys("ctrl+c")
        assert at.app.composer.text == ""
        await at.press_keys("ctrl+c")
        await at.wait_for_text("Press Ctrl-C again to exit.")
        assert at.client.outcome is None
        await at.press_keys("ctrl+c")
        assert at.client.outcome == "ended"


async def test_ctrl_d_deletes_a_character_and_exits_on_an_empty_line(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["yes"])) as at:
        await at.type_text("ab")
        await at.press_keys("home", "ctrl+d")
        assert at.app.composer.text == "b"
        await at.press_keys("ctrl+d", "ctrl+d")
        assert at.client.outcome == "ended"


async def test_input_too_late_for_a_session_is_available_in_the_next(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["yes"])) as at:
        for key in (*"/clear", "enter", *"later", "enter"):
            at.app.post_message(Key(key, key if len(key) == 1 else None))
        await at.wait_until(
            lambda: at.client.outcome == "cleared" and not at.client.is_open, "the end of the session"
        )
        # A line typed between two sessions waits for the next. If a session took it unsent, it comes back.
        assert at.app.composer.text == "later" or at.app.is_unsent_text("later")


@pytest.mark.slow
async def test_ctrl_c_after_an_interrupt_clears_the_returned_input_and_does_not_exit(tmp_path: Path) -> None:
    gate = ToolGate()
    model = ScriptedModel([[call_tool("Gate", "g")], "on"])
    async with drive_tui(tmp_path, model, tools=[gate.tool], skip_permissions=True) as at:
        await at.submit_text("go")
        await gate.wait_until_reached()
        await at.submit_text("and mind the paint")
        await at.type_text("half")
        await at.press_keys("ctrl+c")
        assert at.app.composer.text == ""
        assert at.client.is_busy, "with something in the line, only that goes"
        await at.press_keys("ctrl+c")
        await at.wait_for_text("interrupted")
        await at.wait_until(lambda: at.app.composer.text == "and mind the paint", "the line offered again")
        await at.press_keys("ctrl+c")
        assert at.app.composer.text == ""
        assert at.client.outcome is None


@pytest.mark.slow
async def test_help_lists_the_keys_of_the_full_screen(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["yes"]), size=(110, 60)) as at:
        await at.submit_text("/help")
        await at.wait_for_text("F2 agents · Ctrl-T tasks", "Shift-Tab selects the next permission mode")
        await at.submit_text("/compact")
        await at.wait_for_text("There is nothing to summarize yet")


@pytest.mark.slow
@pytest.mark.spec("USR-18")
async def test_the_shown_mode_follows_plan_approval(tmp_path: Path) -> None:
    model = ScriptedModel([[call_tool("ExitPlanMode", "p", plan="Dig, then fill.")], "dug it"])
    async with drive_tui(tmp_path, model, mode="plan") as at:
        await at.wait_for_text(" plans ")
        await at.submit_text("dig")
        await wait_for_question(at)
        await at.press_keys("y")
        await at.wait_for_text("dug it", " asks ")
        assert at.session.runtime.lead.permissions.mode == "default"


@pytest.mark.slow
async def test_an_interrupted_question_is_not_reported_as_answered_elsewhere(tmp_path: Path) -> None:
    model = ScriptedModel([[call_tool("Bash", "b", command="touch made")], "made it"])
    async with drive_tui(tmp_path, model, mode="default") as at:
        await at.submit_text("make it")
        await wait_for_question(at)
        await at.press_keys("ctrl+c")
        await at.wait_for_text("lead is no longer waiting", "interrupted")
        assert "elsewhere" not in at.screen_text


async def test_a_failing_slash_command_is_reported_and_the_session_continues(tmp_path: Path) -> None:
    def choose_reply(request: ModelRequest) -> str:
        if "boom" in request.messages[-1].text:
            raise ZeroDivisionError("a fault of somebody's")
        return "still there"

    async with drive_tui(tmp_path, ScriptedModel(choose_reply), size=(120, 30)) as at:
        await at.submit_text("/btw boom")
        await at.wait_for_text(
            "/btw failed; everything else continues: ZeroDivisionError: a fault of somebody's"
        )
        await at.submit_text("hello")
        await at.wait_for_text("still there")


@pytest.mark.spec("CMP-103")
async def test_a_key_that_shoal_lacks_is_explained_once_and_leaves_the_text_alone(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["heard"]), size=(120, 30)) as at:
        await at.type_text("hello")
        await at.press_keys("ctrl+r", "ctrl+g", "ctrl+s", "alt+t", "ctrl+r", "ctrl+g")
        await at.wait_for_text("Shoal does not switch thinking on or off.", "does not stash the input")
        assert at.screen_text.count("does not search the history") == 1
        assert at.screen_text.count("does not open an editor") == 1
        assert at.app.composer.text == "hello"


async def test_a_typed_command_is_shown_as_it_was_typed(tmp_path: Path) -> None:
    commands = tmp_path / "project" / ".claude" / "commands"
    commands.mkdir(parents=True)
    (commands / "plain.md").write_text("Do it with care.")
    async with drive_tui(tmp_path, ScriptedModel(["first heard"]), size=(120, 30)) as at:
        await at.submit_text("/plain now")
        await at.wait_for_text("first heard")
        assert at.screen_text.count("/plain now") == 1
        assert "command-name" not in at.screen_text
