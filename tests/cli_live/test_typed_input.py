"""What the plain terminal does with lines and keys: prompts, answers, steering and interrupts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import ToolGate, call_tool, script_agents, spawn_agent
from cli_live.typed_terminal import open_typed_terminal
from shoal.surfaces.terminal.session_loop import print_session_farewell


def open_session(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, attended=True, **{"skip_permissions": True, **options})


async def test_the_second_interrupt_leaves_and_the_first_clears_a_line_or_says_so(tmp_path: Path) -> None:
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=["yes"]))) as terminal:
        terminal.prompt.draft = "half"
        terminal.press_interrupt("half")
        terminal.press_interrupt()
        await terminal.wait_for("Press Ctrl-C again to exit.")
        assert terminal.prompt.draft == ""
        assert terminal.controller.outcome is None
        terminal.press_interrupt()
        terminal.prompt.wake_reader()
        async with terminal.limit_wait("end"):
            await terminal.running
    assert terminal.controller.outcome == "ended"


async def test_input_during_a_turn_steers_it_and_comes_back_after_an_interrupt(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(lead=[call_tool("Gate"), "steered", call_tool("Gate"), "never"])
    async with open_typed_terminal(open_session(tmp_path, model, tools=[gate.tool])) as terminal:
        terminal.type_line("lead")
        await gate.wait_until_reached()
        sent = await terminal.run_line("  look\nleft ", "↳ sent;")
        assert "↳ sent; the agent reads it after its running calls: look left\n" in sent
        for line in ("/compact", "/model", "/export"):
            busy = f"{line} must wait until the agent is done. Ctrl-C stops the agent."
            assert busy in await terminal.run_line(line, "must wait")
        assert "$0.0" in await terminal.run_line("/cost", "tokens in")
        gate.is_open.set()
        await terminal.wait_for("steered")
        await terminal.wait_until_idle()
        assert any("look" in message.text for message in terminal.session.messages)
        gate.is_open.clear()
        gate.is_reached.clear()
        terminal.type_line("again")
        await gate.wait_until_reached()
        await terminal.run_line("too late", "↳ sent;")
        terminal.press_interrupt()
        await terminal.wait_for("interrupted")
        await terminal.wait_until_idle()
        assert terminal.prompt.draft == "too late"


async def test_a_permission_question_takes_over_the_prompt(tmp_path: Path) -> None:
    touch = [call_tool("Bash", f"t{n}", command=f"touch made{n}") for n in range(4)]
    model = script_agents(lead=[*touch, "over"])
    async with open_typed_terminal(open_session(tmp_path, model, skip_permissions=False)) as terminal:
        shown = await terminal.run_line("lead", "y once")
        assert "touch made0" in shown
        assert terminal.prompt.questions[-1] == "allow?"
        assert "$0.0" in await terminal.run_line("/cost", "tokens in")
        terminal.type_line("   ")
        await terminal.wait_for("y once")
        await terminal.run_line("y", "y once")
        assert (tmp_path / "made0").exists()
        await terminal.run_line("n", "y once")
        await terminal.run_line("not that one", "y once")
        await terminal.run_line("a", "over")
        await terminal.wait_until_idle()
        assert not terminal.prompt.is_question_open
        assert [(tmp_path / f"made{n}").exists() for n in range(4)] == [True, False, False, True]
    assert "not that one" in str(terminal.session.messages)
    assert "the user said no." in str(terminal.session.messages)
    assert "allowed for this session" in terminal.text


async def test_a_question_of_a_sub_agent_names_it(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("child", "c1", name="scout"), "over"],
        child=[call_tool("Bash", "t1", command="touch made"), "child done"],
    )
    async with open_typed_terminal(open_session(tmp_path, model, skip_permissions=False)) as terminal:
        assert "scout" in await terminal.run_line("lead", "y once")
        await terminal.run_line("y", "over")
    assert (tmp_path / "made").exists()


async def test_a_plan_is_approved_or_sent_back(tmp_path: Path) -> None:
    plan = [call_tool("ExitPlanMode", f"p{n}", plan=f"Step {n}") for n in range(2)]
    model = script_agents(lead=[*plan, "over"])
    async with open_typed_terminal(
        open_session(tmp_path, model, skip_permissions=False, mode="plan")
    ) as terminal:
        shown = await terminal.run_line("lead", "y approve")
        assert "? The plan (" in shown
        assert "\n    Step 0\n" in shown
        assert terminal.prompt.questions[-1] == "approve?"
        assert "Step 1" in await terminal.run_line("begin with the roof", "y approve")
        await terminal.run_line("e", "over")
        assert terminal.session.runtime.lead.permissions.mode == "acceptEdits"
    assert "begin with the roof" in str(terminal.session.messages)
    assert "the plan is approved" in terminal.text


async def test_delegating_and_foreign_habits_are_explained(tmp_path: Path) -> None:
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=["yes"]))) as terminal:
        terminal.press_shift_tab()
        await terminal.run_line("/cost", "tokens in")
        assert terminal.prompt.label == "delegate"
        await terminal.run_line("/delegate off", "elegat")
        await terminal.run_line("/cost", "tokens in")
        assert terminal.prompt.label == ""
        terminal.press_foreign_key("Ctrl-S")
        await terminal.wait_for("Shoal does not stash the input.")
        terminal.press_foreign_key("Ctrl-S")
        await terminal.run_prompt("lead", "yes")
        assert terminal.text.count("stash") == 1
        for _ in range(2):
            await terminal.run_prompt("!ls", "yes")
            await terminal.run_prompt("# remember", "yes")
            await terminal.run_prompt("# two\nlines", "yes")
        assert terminal.text.count("does not run lines that start with `!`") == 1
        assert terminal.text.count("does not store lines that start with `#`") == 1


@pytest.mark.parametrize(("line", "outcome"), [("/clear", "cleared"), ("/exit", "ended")])
async def test_commands_that_end_the_session(tmp_path: Path, line: str, outcome: str) -> None:
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=["yes"]))) as terminal:
        terminal.type_line(line)
        async with terminal.limit_wait("end"):
            await terminal.running
    assert terminal.controller.outcome == outcome


async def test_the_first_line_may_be_a_command_or_a_prompt(tmp_path: Path) -> None:
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=["yes"])), "/cost") as terminal:
        assert "› /cost\n" in await terminal.wait_for("tokens in")
        assert terminal.session.turn == 0
    async with open_typed_terminal(open_session(tmp_path, script_agents(lead=["yes"])), "lead") as terminal:
        assert "› lead\n" in await terminal.wait_for("yes")
        await terminal.wait_until_idle()
        assert terminal.session.turn == 1
        assert terminal.prompt.rows is None
        print_session_farewell(terminal.controller.screen, terminal.session, ())
        assert terminal.text.endswith(f" tokens\n  Resume it:  shoal --resume {terminal.session.id}\n")
        assert "To resume one" not in terminal.text


async def test_a_turn_is_rewound_with_its_files(tmp_path: Path) -> None:
    write = call_tool("Write", "w1", file_path=str(tmp_path / "a.txt"), content="one")
    async with open_typed_terminal(
        open_session(tmp_path, script_agents(lead=[write, "written"]))
    ) as terminal:
        await terminal.run_prompt("lead", "written")
        assert "  1  lead  1 changed file\n" in await terminal.run_line("/rewind", "/rewind TURN")
        terminal.type_line("/rewind 1")
        async with terminal.limit_wait("question"):
            while not terminal.prompt.is_question_open:
                terminal.prompt.is_updated.clear()
                await terminal.prompt.is_updated.wait()
        assert terminal.prompt.questions == ["Rewind the conversation too? y/n"]
        await terminal.run_line("Yes", "a.txt")
        await terminal.wait_until_idle()
        assert not (tmp_path / "a.txt").exists()
        assert terminal.session.messages == []
