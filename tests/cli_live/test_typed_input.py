"""What the plain terminal does with lines and keys: prompts, answers, steering and interrupts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import ToolGate, call_tool, read_events, script_agents, spawn_agent
from cli_live.typed_terminal import open_typed_terminal
from shoal.core.agents.subagents import AgentStatusSnapshot
from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.model_requests import ModelReply, ModelRequest
from shoal.core.events import AgentEnded, QueueItemAdded
from shoal.core.ids import LEAD_ID, AgentId
from shoal.models.scripted_model import ScriptedModel
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


@pytest.mark.spec("QUE-03", "QUE-02", "QUE-06")
async def test_input_typed_during_a_turn_is_queued_in_order_and_before_earlier_notifications(
    tmp_path: Path,
) -> None:
    gate, done = ToolGate(), asyncio.Event()
    model = script_agents(
        lead=[[spawn_agent("child", "c1", run_in_background=True), call_tool("Gate")], "heard all", "end"],
        child=["the child is done"],
    )
    async with open_typed_terminal(open_session(tmp_path, model, tools=[gate.tool])) as terminal:
        session = terminal.session
        session.subscribe(lambda event: done.set() if isinstance(event, AgentEnded) else None)
        terminal.type_line("lead")
        await gate.wait_until_reached()
        async with terminal.limit_wait("end of the agent"):
            await done.wait()
            await session.supervisor.wait_until_idle()
        typed = ("look left", "look right")
        for line in typed:
            await terminal.run_line(line, "↳ sent;")
        gate.is_open.set()
        await terminal.wait_for("heard all")
        await terminal.wait_until_idle()
        said = "\n".join(message.text for message in session.messages if message.role == "user")
        queued = [event for event in read_events(session) if isinstance(event, QueueItemAdded)]
    assert [(each.text, each.by, each.mode) for each in queued] == [
        (line, "person", "prompt") for line in typed
    ]
    found = [said.index(text) for text in (*typed, "<task-notification>")]
    assert found == sorted(found)
    assert [said.count(line) for line in typed] == [1, 1]


class HeldModel:
    """A scripted model whose second reply waits until it is released."""

    def __init__(self, *replies: str) -> None:
        self._model = ScriptedModel(replies)
        self._count = 0
        self.is_asked, self.is_released = asyncio.Event(), asyncio.Event()
        self.requests: list[str] = []

    @property
    def card(self) -> ModelCard:
        return self._model.card

    async def generate_reply(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
        self._count += 1
        self.requests.append(request.messages[-1].text)
        reply = await self._model.generate_reply(request, on_delta)
        if self._count == 2:
            self.is_asked.set()
            await self.is_released.wait()
        return reply

    async def aclose(self) -> None:
        await self._model.aclose()


@pytest.mark.spec("QUE-03")
async def test_input_typed_during_the_last_reply_of_a_turn_is_answered_once(tmp_path: Path) -> None:
    model = HeldModel("ready", "almost", "heard it")
    async with open_typed_terminal(open_session(tmp_path, model)) as terminal:
        await terminal.run_prompt("begin", "ready")
        terminal.type_line("work")
        async with terminal.limit_wait("second request"):
            await model.is_asked.wait()
        await terminal.run_line("and one more", "↳ sent;")
        model.is_released.set()
        await terminal.wait_for("heard it")
        await terminal.wait_until_idle()
    assert model.requests == ["begin", "work", "and one more"]


async def test_a_permission_question_takes_over_the_prompt(tmp_path: Path) -> None:
    touch = [call_tool("Bash", f"t{n}", command=f"touch made{n}") for n in range(4)]
    model = script_agents(lead=[*touch, "over"])
    async with open_typed_terminal(open_session(tmp_path, model, skip_permissions=False)) as terminal:
        shown = await terminal.run_line("lead", "y once")
        assert "touch made0" in shown
        assert terminal.prompt.questions[-1] == "allow?"
        assert "? Bash asks to run: " in terminal.text
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
        stopped = AgentStatusSnapshot(
            agent=AgentId("a1"),
            kind="plumber",
            name="joe",
            description="mend it",
            status="running",
            parent=LEAD_ID,
            background=True,
            tool_calls=1,
            tokens=5,
            seconds=3.0,
            output="/out",
        )
        before = len(terminal.text)
        print_session_farewell(terminal.controller.screen, terminal.session, [stopped])
        assert terminal.text[before:].startswith(
            "Stopped before it finished:\n  a1  joe: mend it (1 tool call, 5 tokens, 3.0 s; output: /out)\n"
            "  To resume one, use /agents send ID TEXT in the session.\n"
        )


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
