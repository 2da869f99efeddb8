"""Keys of the frame: modes, interrupts, steering, panels, and leaving."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.events import Key, Paste

from cast import Gate, agent, cast, use
from shoal.core.ids import LEAD
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.tui.answering import AnswerScreen
from tui_rig import sitting


@pytest.mark.spec("USR-18")
async def test_shift_tab_goes_round_the_permission_modes(tmp_path: Path) -> None:
    async with sitting(tmp_path, ScriptedModel(["yes"]), mode="default") as at:
        await at.shows(" asks ")
        for mode, words in (("acceptEdits", "accepts edits"), ("plan", "plans"), ("default", "asks")):
            await at.press("shift+tab")
            await at.shows(f" {words} ")
            assert at.session.parts.permissions.mode == mode


@pytest.mark.spec("USR-18")
async def test_shift_tab_comes_back_to_the_mode_that_the_session_began_with(tmp_path: Path) -> None:
    async with sitting(tmp_path, ScriptedModel(["yes"]), mode="dontAsk") as at:
        await at.shows(" never asks ")
        for words in ("asks", "accepts edits", "plans", "never asks", "asks"):
            await at.press("shift+tab")
            await at.shows(f" {words} ")


@pytest.mark.spec("RUN-04", "TRN-03")
async def test_escape_ends_the_turn_and_what_was_typed_meanwhile_is_offered_again(tmp_path: Path) -> None:
    gate = Gate()
    async with sitting(
        tmp_path, ScriptedModel([[use("Gate", "g")], "on"]), tools=[gate.tool], skip_permissions=True
    ) as at:
        await at.say("go")
        await gate.wait()
        await at.say("and mind the paint")
        await at.shows("↳ told the agent")
        await at.press("escape")
        await at.shows("interrupted", "✗ Gate")
        await at.rests()
        assert at.app.composer.text == "and mind the paint"
        assert "on" not in at.text.split("interrupted")[1].split("╭")[0]


async def test_what_was_not_heard_is_offered_before_what_is_half_typed(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel([[use("Gate", "g")], "on"])
    async with sitting(tmp_path, model, tools=[gate.tool], skip_permissions=True) as at:
        await at.say("go")
        await gate.wait()
        await at.say("mind the paint")
        await at.shows("↳ told the agent")
        await at.type("and then")
        await at.press("escape")
        await at.shows("interrupted")
        await at.rests()
        assert at.app.composer.text == "mind the paint\nand then"


async def test_ctrl_c_at_a_question_of_the_program_carries_nothing_out(tmp_path: Path) -> None:
    written = tmp_path / "project" / "a"
    call = use("Write", "w", file_path=str(written), content="x")
    async with sitting(tmp_path, ScriptedModel([[call], "written"])) as at:
        await at.say("write it")
        await at.shows("written")
        await at.rests()
        await at.say("/rewind 1")
        await at.shows("The conversation too? y/n")
        await at.press("ctrl+c")
        await at.rests()
        assert written.exists()
        assert not at.app.is_asking
        await at.say("/rewind 1")
        await at.shows("The conversation too? y/n")
        await at.say("n")
        await at.until(lambda: not written.exists(), "the undoing")


async def test_what_is_pasted_outlives_an_answer_to_the_program(tmp_path: Path) -> None:
    pasted = "\n".join(map(str, range(30)))
    async with sitting(tmp_path, ScriptedModel(["yes"])) as at:
        at.app.composer.post_message(Paste(pasted))
        await at.until(lambda: at.app.composer.text == "[pasted 30 lines]")
        asked = asyncio.create_task(at.seat.ask("Sure?"))
        await at.shows("Sure?")
        await at.say("y")
        assert await asked == "y"
        assert at.app.composer.text == "[pasted 30 lines]"
        assert at.app.unsent == (pasted,)


async def test_what_is_typed_while_the_agent_works_is_heard_after_its_calls(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(go=[[use("Gate", "g")], lambda request: f"heard: {request.messages[-1].text}"])
    async with sitting(tmp_path, model, tools=[gate.tool], skip_permissions=True) as at:
        await at.say("go")
        await gate.wait()
        await at.say("mind the paint")
        await at.shows("↳ told the agent")
        gate.opened.set()
        await at.shows("heard: mind the paint", "› mind the paint")


@pytest.mark.spec("USR-05")
async def test_a_question_comes_up_by_itself_and_is_answered_in_place(tmp_path: Path) -> None:
    model = ScriptedModel([[use("Bash", "b", command="touch made")], "made it"])
    async with sitting(tmp_path, model, mode="default") as at:
        await at.say("make it")
        await at.until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        screen = at.app.screen
        assert isinstance(screen, AnswerScreen)
        await screen.ready.wait()
        await at.press("y")
        await at.shows("made it", "? may Bash run?  allowed once")
        assert (tmp_path / "project" / "made").exists()


@pytest.mark.spec("QUE-06")
@pytest.mark.parametrize("panel", [False, True])
@pytest.mark.parametrize("key", ["y", "escape"])
async def test_what_arrives_waits_until_the_person_is_done_with_a_question(
    tmp_path: Path, key: str, panel: bool
) -> None:
    gate = Gate()
    both = [agent(f"{who} works", who, run_in_background=True) for who in ("Asker", "Other")]
    model = cast(
        lead=[both, "both are out", "heard of it"],
        Asker=[[use("Bash", "b", command="touch made")], "asked"],
        Other=[[use("Gate", "g")], "the other part"],
    )
    options = {"mode": "default", "tools": [gate.tool], "allowed_tools": ["Gate"]}
    async with sitting(tmp_path, model, **options) as at:
        await at.say("lead, go")
        await at.until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        screen = at.app.screen
        assert isinstance(screen, AnswerScreen)
        await screen.ready.wait()
        if panel:
            await at.press("escape", "f4", "enter")
            await at.until(lambda: at.app.screen is not screen and at.app.is_asking, "the question again")
        await at.rests()
        gate.opened.set()
        await at.until(lambda: at.session.parts.queue.size(LEAD), "the end of the other")
        await at.drawn()
        assert not at.seat.busy
        assert at.session.turn == 1
        await at.press(key)
        await at.until(lambda: at.session.turn > 1, "the turn that was held up")


async def test_a_question_does_not_come_between_a_person_and_their_half_typed_line(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel([[use("Gate", "g")], [use("Bash", "b", command="touch made")], "made it"])
    options = {"mode": "default", "tools": [gate.tool], "allowed_tools": ["Gate"]}
    async with sitting(tmp_path, model, size=(120, 30), **options) as at:
        await at.say("make it")
        await gate.wait()
        await at.type("half a li")
        gate.opened.set()
        await at.shows("? 1 question: F4")
        await at.type("ne")
        assert at.app.composer.text == "half a line"
        assert not isinstance(at.app.screen, AnswerScreen)
        await at.press("f4", "enter")
        await at.until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        await at.press("y")
        await at.shows("made it")
        assert at.app.composer.text == "half a line"


@pytest.mark.spec("SRF-01", "RUN-03")
@pytest.mark.parametrize("columns", [80, 120])
async def test_one_agent_is_viewed_and_talked_to(tmp_path: Path, columns: int) -> None:
    gate = Gate()
    model = cast(
        lead=[agent("Digger digs", "spawn", name="digger", run_in_background=True), "sent one out"],
        Digger=[[use("Gate", "g")], lambda request: f"I heard: {request.messages[-1].text}"],
    )
    async with sitting(tmp_path, model, size=(columns, 30), tools=[gate.tool], skip_permissions=True) as at:
        await at.say("lead, go")
        await gate.wait()
        await at.shows("sent one out", "1 agent at work")
        await at.press("f2")
        await at.shows("Agents", "digger")
        assert ("sent one out" in at.text) == (columns >= 100), "a panel stands over a narrow conversation"
        await at.press("down", "enter")
        await at.shows("● digger", "› Digger digs", "● Gate", "F5 back to the lead")
        await at.say("deeper")
        await at.shows("↳ told digger: deeper")
        gate.opened.set()
        await at.shows("I heard: ", "› deeper")
        await at.press("f5")
        await at.shows("sent one out")
        assert at.seat.viewed == LEAD


async def test_the_key_of_a_panel_leads_there_from_the_line_and_closes_it_from_there(tmp_path: Path) -> None:
    async with sitting(tmp_path, ScriptedModel(["yes"])) as at:
        side, composer = at.app.side, at.app.composer
        await at.press("f2")
        await at.until(lambda: side.has_focus_within, "the panel")
        await at.press("f6")
        await at.until(lambda: composer.has_focus, "the line")
        await at.press("f2")
        await at.until(lambda: side.has_focus_within, "the panel again")
        assert side.shown == "agents"
        await at.press("f2")
        await at.until(lambda: composer.has_focus, "the line again")
        assert side.shown == ""


async def test_control_c_clears_the_line_then_warns_then_ends(tmp_path: Path) -> None:
    async with sitting(tmp_path, ScriptedModel(["yes"])) as at:
        await at.type("half")
        await at.press("ctrl+c")
        assert at.app.composer.text == ""
        await at.press("ctrl+c")
        await at.shows("Ctrl-C again ends Shoal.")
        assert at.seat.outcome is None
        await at.press("ctrl+c")
        assert at.seat.outcome == "ended"


async def test_control_d_deletes_in_a_line_and_ends_where_there_is_none(tmp_path: Path) -> None:
    async with sitting(tmp_path, ScriptedModel(["yes"])) as at:
        await at.type("ab")
        await at.press("home", "ctrl+d")
        assert at.app.composer.text == "b"
        await at.press("ctrl+d", "ctrl+d")
        assert at.seat.outcome == "ended"


async def test_what_was_said_too_late_for_a_session_is_there_for_the_next(tmp_path: Path) -> None:
    async with sitting(tmp_path, ScriptedModel(["yes"])) as at:
        for key in (*"/clear", "enter", *"later", "enter"):
            at.app.post_message(Key(key, key if len(key) == 1 else None))
        await at.until(lambda: at.seat.outcome == "cleared" and not at.seat.open, "the end of the session")
        # Between two sessions a line waits for the next; one that a session took and did not say comes back.
        assert at.app.composer.text == "later" or at.app.is_holding("later")


async def test_control_c_after_an_interrupt_clears_what_came_back_and_ends_nothing(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel([[use("Gate", "g")], "on"])
    async with sitting(tmp_path, model, tools=[gate.tool], skip_permissions=True) as at:
        await at.say("go")
        await gate.wait()
        await at.say("and mind the paint")
        await at.type("half")
        await at.press("ctrl+c")
        assert at.app.composer.text == ""
        assert at.seat.busy, "with something in the line, only that goes"
        await at.press("ctrl+c")
        await at.shows("interrupted")
        await at.until(lambda: at.app.composer.text == "and mind the paint", "the line offered again")
        await at.press("ctrl+c")
        assert at.app.composer.text == ""
        assert at.seat.outcome is None


async def test_help_names_the_keys_of_this_screen(tmp_path: Path) -> None:
    async with sitting(tmp_path, ScriptedModel(["yes"]), size=(110, 60)) as at:
        await at.say("/help")
        await at.shows("F2 agents · Ctrl-T tasks", "Shift-Tab is the next permission mode")
        await at.say("/compact")
        await at.shows("Nothing was said yet")


@pytest.mark.spec("USR-18")
async def test_the_mode_on_the_screen_is_the_one_after_a_plan_was_approved(tmp_path: Path) -> None:
    model = ScriptedModel([[use("ExitPlanMode", "p", plan="Dig, then fill.")], "dug it"])
    async with sitting(tmp_path, model, mode="plan") as at:
        await at.shows(" plans ")
        await at.say("dig")
        await at.until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        screen = at.app.screen
        assert isinstance(screen, AnswerScreen)
        await screen.ready.wait()
        await at.press("y")
        await at.shows("dug it", " asks ")
        assert at.session.parts.permissions.mode == "default"


async def test_a_question_that_the_person_interrupts_is_not_answered_from_elsewhere(tmp_path: Path) -> None:
    model = ScriptedModel([[use("Bash", "b", command="touch made")], "made it"])
    async with sitting(tmp_path, model, mode="default") as at:
        await at.say("make it")
        await at.until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        screen = at.app.screen
        assert isinstance(screen, AnswerScreen)
        await screen.ready.wait()
        await at.press("ctrl+c")
        await at.shows("lead waits no longer", "interrupted")
        assert "elsewhere" not in at.text


async def test_a_fault_in_a_command_is_told_and_the_talk_goes_on(tmp_path: Path) -> None:
    def mind(request: Request) -> str:
        if "boom" in request.messages[-1].text:
            raise ZeroDivisionError("a fault of somebody's")
        return "still there"

    async with sitting(tmp_path, ScriptedModel(mind), size=(120, 30)) as at:
        await at.say("/btw boom")
        await at.shows("/btw failed, and everything else goes on: ZeroDivisionError: a fault of somebody's")
        await at.say("hello")
        await at.shows("still there")
